"""A user's own table of runs: times in another unit, settings that its cells leave open, software without a profile."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy
import pytest

from distsim import catalog
from distsim.cli.app import run
from distsim.engine.evidence import replay
from distsim.engine.likeness import FARTHEST, bounded
from distsim.engine.run_units import unit_of
from distsim.interop.runs import Run, read_runs

ROW = {
    "source": "ourcluster", "model": "llama-3-8b", "seq_len": "8192", "gpu": "h100-sxm", "micro_batch": "1",
    "zero_stage": "1", "global_batch": "128", "recompute": "none", "framework": "megatron-core", "precision": "bf16",
}  # fmt: skip


def _rows(**cells: str) -> list[dict[str, str]]:
    """Twelve runs on a cluster that takes 1.3 times as long as told, with ``cells`` in place of usual ones."""
    layouts = [(gpus, tp) for gpus in (8, 16, 32, 64) for tp in (1, 2, 4)]
    rows = [
        {**ROW, "id": f"m{place}", "n_gpus": str(gpus), "tp": str(tp), **({} if tp > 1 else {"recompute": "full"})}
        for place, (gpus, tp) in enumerate(layouts)
    ]
    times = [1.3 * (replay(Run(row, 2)).predicted_seconds or 0) for row in rows]
    return [{**row, **cells, "step_time_s": f"{time:.6g}"} for row, time in zip(rows, times, strict=True)]


def _write(path: Path, rows: list[dict[str, str]], seconds_per_unit: float = 1.0) -> Path:
    """A table with its times in a unit."""
    names = list(rows[0])
    told = [{**row, "step_time_s": f"{float(row['step_time_s']) / seconds_per_unit:.6g}"} for row in rows]
    path.write_text("\n".join([",".join(names), *(",".join(row[name] for name in names) for row in told)]))
    return path


def test_times_in_milliseconds_are_told_and_not_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _write(tmp_path / "mine.csv", _rows(), 1e-3)
    assert run(["calibrate", str(runs), "--folder", str(tmp_path / "out")]) == 2
    assert "milliseconds?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run(["validate", str(runs), "--json"]) == 0
    told = capsys.readouterr()
    assert "takes 1,300 times what is predicted" in told.err and "is it milliseconds?" in told.err
    assert all("milliseconds?" in row["assumed"] for row in json.loads(told.out)["rows"])


@pytest.mark.parametrize(("seconds_per_unit", "words"), [(60, "is it minutes?"), (0.1, "of one optimizer step?")])
def test_tables_that_no_source_is_as_far_off_as(
    seconds_per_unit: float, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes, whose rows are all beyond the chip's peak; ten steps in the place of one."""
    assert run(["validate", str(_write(tmp_path / "mine.csv", _rows(), seconds_per_unit))]) == 0
    assert words in capsys.readouterr().err


def test_tables_in_seconds_are_not_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(_write(tmp_path / "mine.csv", _rows()))]) == 0
    assert not capsys.readouterr().err


def test_units_by_what_they_make_of_the_cell() -> None:
    assert unit_of("step_time_s", 1300) == "milliseconds" and unit_of("step_time_s", 1 / 50) == "minutes"
    assert unit_of("samples_per_s", 1 / 50) == "per minute" and unit_of("tokens_per_s_per_gpu", 800) == "in thousands"
    assert not unit_of("step_time_s", 60) and not unit_of("mfu_pct", 1000)


def test_no_shipped_run_is_as_far_off_and_no_correction_farther() -> None:
    waits = next(one for one in read_runs(catalog.path("runs", "published")) if one.id == "nanotron-1505")
    assert 40 < (replay(waits).ratio or 0) < FARTHEST
    assert bounded(0.7) == 0.7 and bounded(-9) == -math.log(FARTHEST)
    assert bounded(numpy.array([0.7, 9])).tolist() == pytest.approx([0.7, math.log(FARTHEST)])
