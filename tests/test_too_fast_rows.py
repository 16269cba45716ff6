"""Rows that are faster than their chip: the reason has the row's own cells, as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from distsim.cli.app import run
from distsim.engine.evidence import replay
from distsim.interop.runs import Run

CELLS = {
    "id": "q", "source": "ours", "model": "llama-3-8b", "seq_len": "8192", "gpu": "h100-sxm", "n_gpus": "8", "tp": "2",
    "zero_stage": "1", "micro_batch": "1", "global_batch": "128", "precision": "bf16", "framework": "megatron-core",
    "step_time_s": "13.9",
}  # fmt: skip


def _reason(**cells: str) -> str:
    return replay(Run({**CELLS, **cells}, 2)).reason


def test_a_row_that_is_possible_has_no_reason() -> None:
    assert not _reason()


@pytest.mark.parametrize(("cells", "words"), [
    ({"n_gpus": ""}, "check n_gpus (blank: taken as 2, the product of its degrees), gpu h100-sxm, global_batch 128, "
                     "seq_len 8192, model llama-3-8b, step_time_s"),
    ({"gpu": "2 x H100", "n_gpus": ""}, "check n_gpus (blank: taken as 2), gpu 2 x H100, global_batch 128"),
    ({"gpu": "A100-SXM4-80GB"},
     "485 TFLOP/s of each GPU, over 90% of the 312 that a100-sxm4-80gb has in bf16: check gpu A100-SXM4-80GB, "
     "n_gpus 8, global_batch 128, seq_len 8192, model llama-3-8b, step_time_s"),
    ({"global_batch": "", "grad_accum": "320"}, "check global_batch (blank: taken as 1280), gpu h100-sxm, n_gpus 8, "
                                                "micro_batch 1, grad_accum 320, seq_len 8192"),
    ({"precision": "", "n_gpus": "2"}, "check precision (blank: taken as bf16"),
    ({"precision": "tf32"}, "that h100-sxm has in tf32: check gpu h100-sxm, precision tf32, n_gpus 8"),
    ({"step_time_s": "", "tokens_per_s_per_gpu": "94000"},
     "tokens_per_s_per_gpu 94000 makes 4,838 TFLOP/s of each GPU, over 90% of the 989 that h100-sxm has in bf16: check "
     "gpu h100-sxm, seq_len 8192, model llama-3-8b, tokens_per_s_per_gpu"),
    ({"step_time_s": "", "samples_per_s": "92"}, "check gpu h100-sxm, n_gpus 8, seq_len 8192, model"),
    ({"step_time_s": "", "mfu_pct": "120"}, "check gpu h100-sxm, model llama-3-8b, mfu_pct"),
])  # fmt: skip
def test_the_cells_that_make_its_speed_are_named(cells: dict[str, str], words: str) -> None:
    assert words in _reason(**cells)


def test_calibrate_gives_the_same_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {**CELLS, "n_gpus": ""}
    (tmp_path / "mine.csv").write_text("\n".join([",".join(row), ",".join(row.values())]))
    assert run(["calibrate", str(tmp_path / "mine.csv"), "--alone", "--folder", str(tmp_path / "out")]) == 2
    assert "check n_gpus (blank: taken as 2, the product of its degrees)" in capsys.readouterr().err
