"""What the year of a measured run's cell means: its months, and the software of the time."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.runs.setup import setup_of
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
