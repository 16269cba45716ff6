"""Releases of transformers that a run's notes name: what its modules did then, what loops over experts cost there."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import replay
from distsim.interop.runs import Run
from distsim.interop.runs.transformers_releases import transformers_released

CELLS = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "n_gpus": "16", "seq_len": "4096", "micro_batch": "1",
         "global_batch": "16", "precision": "bf16", "recompute": "full", "zero_stage": "3", "framework": "huggingface",
         "step_time_s": "10", "source": "somebody"}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({**CELLS, **{name: str(value) for name, value in cells.items()}}, 2)


@pytest.mark.parametrize(
    ("notes", "year"),
    [("transformers 4.57.6, a loop", 2025.76), ("transformers v5", 2026.07), ("transformers==4.45.2", 2024.73),
     ("transformers 5.6.0.dev0", 2026.07), ("sentence-transformers 4.1", None),
     ("transformers 4.45, later transformers 4.57", None),
     ("24 transformers", None), ("transformers 48 layers deep", None)],
)  # fmt: skip
def test_release_in_notes(notes: str, year: float | None) -> None:
    assert transformers_released(_run(notes=notes)) == year


@pytest.mark.parametrize(
    ("year", "notes", "modules"),
    [(2026.4, "", "one"), (2026.4, "transformers 4.57.6", "each"), (2025.3, "", "each"),
     (2025.3, "transformers 5.0", "one")],
)  # fmt: skip
def test_release_says_more_than_the_year(year: float, notes: str, modules: str) -> None:
    """TRL's Qwen3-30B-A3B of April 2026 ran on 4.57.6, whose experts are modules: 80% too fast by its year."""
    kernels = replay(_run(year=year, notes=notes)).setup.kernels
    assert kernels.expert_modules == modules
    assert (kernels.expert_products == "modules") == (modules == "each")


def test_other_software_keeps_its_year() -> None:
    cells = {"framework": "megatron-core", "zero_stage": 1, "year": 2025.3}
    named, plain = _run(**cells, notes="converted with transformers 4.57.6"), _run(**cells)
    assert replay(named).setup.kernels == replay(plain).setup.kernels


def test_experts_are_gathered_one_by_one() -> None:
    """Under DeepSpeed's ZeRO 3 modules of experts make a step several times as long as one module of all, and longer
    than DDP's loop over them; FSDP gathers layers."""
    old, new = (replay(_run(notes=notes)).predicted_seconds for notes in ("transformers 4.57.6", "transformers 5.0"))
    torchs = replay(_run(notes="transformers 4.57.6", fsdp_kind="FSDP2")).predicted_seconds
    assert old > 4 * new
    assert old > 2 * torchs
    passes = 48 * 128 * 3 * 3  # layers, experts, matrices; forward, again and backward
    assert 0.4e-3 < (old - torchs) / passes < 1.2e-3
