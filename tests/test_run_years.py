"""What the year of a measured run's cell means: its months, and the software of the time."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.evidence import replay
from distsim.engine.runs.memory import held_by
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.years import run_year
from distsim.interop.runs import Run
from distsim.interop.runs.release import stated_year

ROW = {"model": "gpt2", "gpu": "h100-sxm", "n_gpus": 1, "seq_len": 512, "micro_batch": 64, "grad_accum": 1,
       "global_batch": 64, "recompute": "none"}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**ROW, **cells}.items()}, 2)


@pytest.mark.parametrize(
    ("cell", "year"),
    [
        ("2025", 2025), ("2025.75", 2025.75), ("2025-03", 2025 + 2.5 / 12), ("2025/3", 2025 + 2.5 / 12),
        ("March 2025", 2025 + 2.5 / 12), ("2025-03-21", 2025 + 2.5 / 12), ("", None), ("soon", None),
    ],
)  # fmt: skip
def test_years_with_months(cell: str, year: float | None) -> None:
    assert stated_year(_run(year=cell)) == (year if year is None else pytest.approx(year))


@pytest.mark.parametrize(
    ("cells", "kernel"),
    [
        ({"year": "2022-12"}, "flash-1"), ({"year": "2022"}, "flash-1"), ({"year": "2023-05"}, "flash-1"),
        ({"year": "2023"}, "flash-2"), ({"year": "2023-10"}, "flash-2"),
        ({"year": "2022", "attention": "flash-2"}, "flash-2"),
        ({"year": "2023-12", "notes": "torch 2.0.1, flash-attn 1.0.3"}, "flash-1"),
    ],
)  # fmt: skip
def test_flash_attention_had_a_first_generation(cells: dict[str, Any], kernel: str) -> None:
    """FlashAttention-2 is of July 2023."""
    run = _run(**{"framework": "llm-foundry", "attention": "flash", **cells})
    assert setup_of(run).kernels.attention_kernel == kernel


@pytest.mark.parametrize(
    ("notes", "kernel"),
    [
        ("", "own"), ("torch 2.4.1+cu124", "flash-2"), ("PyTorch v2.4", "flash-2"),
        ("torch 2.5.0", "own"), ("torch 2.5.1", "flash-2"), ("torch 2.5", "flash-2"),
        ("torch==2.10.0", "flash-2"), ("torch 2.10 of NGC 26.01", "own"), ("torch 2.11", "own"),
        ("torch 2.4 and torch 2.9 measured alike", "own"), ("transformers 2.4", "own"), ("torch 3.4", "own"),
    ],
)  # fmt: skip
def test_the_torch_that_notes_name_has_the_attention_of_its_time(notes: str, kernel: str) -> None:
    """An old torch stays old in a run of later; where notes name none, or several, the year of the run counts. 2.5.0
    preferred cuDNN, which 2.5.1 took back; wheels of 2.10 have a cuDNN that torch does not prefer, NVIDIA's containers
    one that it does."""
    run = _run(framework="torch-ddp", year="2026-03", attention="sdpa", notes=notes)
    assert setup_of(run).kernels.attention_kernel == kernel


@pytest.mark.parametrize(
    ("cells", "recipe"),
    [
        ({"year": "2022-12"}, "fsdp-autocast"), ({"year": "2022"}, "fsdp-autocast"), ({"year": "2023-06"}, "fsdp-bf16"),
        ({"year": "2023"}, "fsdp-bf16"), ({}, "fsdp-bf16"), ({"year": "2022-12", "notes": "MP mode PURE"}, "fsdp-pure"),
    ],
)  # fmt: skip
def test_composer_gathered_fp32_until_march_2023(cells: dict[str, Any], recipe: str) -> None:
    """Its default gathers in the autocast type since then; PURE always did."""
    setup = setup_of(_run(framework="llm-foundry", precision="bf16", zero_stage="3", **cells))
    assert setup.precision.name == recipe
    assert setup.precision.gather_dtype == ("fp32" if recipe == "fsdp-autocast" else "bf16")


@pytest.mark.parametrize("framework", ["torch-ddp", "huggingface"])
def test_gradients_stayed_from_step_to_step_before_torch_2(framework: str) -> None:
    """Until release 2.0 of March 2023 zero_grad filled them with zeros; they were there at the loss, too."""
    kept = {}
    for year in ("2022", "2022-12", "2023", "2023-06"):
        run = _run(framework=framework, precision="fp32", year=year)
        held = held_by(run, setup_of(run), run_year(run))
        kept[year] = held.framework.buffers.gradients_grow
    assert kept == {"2022": False, "2022-12": False, "2023": True, "2023-06": True}


def test_gradients_that_are_added_up_are_there_at_the_next_loss() -> None:
    one, several = (
        distsim.memory(
            "gpt2", gpu="h100-sxm", gpus=1, framework="torch-ddp", micro_batch=64, global_batch=batch, seq=512
        )
        for batch in (64, 128)
    )
    loss = [max(m.total for m in report.worst.moments if "loss" in m.name) for report in (one, several)]
    assert loss[1] - loss[0] == pytest.approx(4 * 124_439_808, rel=0.01)


@pytest.mark.parametrize(
    ("cells", "attention"),
    [
        ({"year": "2025-09"}, "eager"), ({"year": "2025-09", "attention": ""}, "eager"), ({"year": "2026-05"}, "flash"),
        ({"year": "2025-09", "notes": "PyTorch 2.8, IPEX 2.8.10"}, "flash"),
        ({"year": "2025-09", "gpu": "h100-sxm"}, "flash"),
        ({"year": "2025-09", "attention": "flash-2"}, "flash"),
    ],
)  # fmt: skip
def test_torch_composed_attention_on_intels_gpus_until_it_trained_by_a_kernel(
    cells: dict[str, str], attention: str
) -> None:
    """Kernels with a backward came with torch 2.11 (intel/torch-xpu-ops issue 2232); Intel's extension had its own."""
    row = {"id": "a", "framework": "torchtitan", "model": "llama-3-8b", "gpu": "max-1550-stack", "n_gpus": "12",
           "seq_len": "2048", "micro_batch": "1", "precision": "bf16", "attention": "flash",
           "step_time_s": "5"}  # fmt: skip
    found = replay(Run({**row, **cells}, 2))
    assert found.setup is not None and found.setup.layout.attention == attention
    told = attention == "eager" and cells.get("attention") != ""
    assert ("attention is unfused" in found.assumed) == told


@pytest.mark.parametrize(
    ("year", "notes", "expected"),
    [("", "torch 1.13.0a0 of a container", 2022.82), ("", "PyTorch 1.8", 2021.17), ("2024", "torch 1.13", 2024.0),
     ("", "torch 1.13 and torch 2.4", None), ("", "", None)],
)  # fmt: skip
def test_the_torch_that_notes_name_dates_a_run_without_a_year(year: str, notes: str, expected: float | None) -> None:
    """BERT of FlagPerf by torch 1.13 had been taken for one of today, with attention in one kernel."""
    assert stated_year(Run({"year": year, "notes": notes}, 1)) == expected
