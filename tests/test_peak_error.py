"""How sure a peak is: quantiles of measured over predicted, the share that fits, and where it is told."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from peaks import comparable, peaks_toml

import distsim
from distsim import catalog
from distsim.engine.evidence import Replay
from distsim.engine.footprint.peak_error import QUANTILES, TABLE, peak_error, share_below
from distsim.interop.runs import Run
from distsim.units import GIB

TIGHT: dict[str, Any] = {"model": "llama-3-70b", "gpu": "h100-sxm", "gpus": 64, "tp": 4, "pp": 4, "vpp": 10, "zero": 1,
                         "global_batch": 128, "seq": 7168, "sequence_parallel": True}  # fmt: skip


def _replay(ratio: float, source: str = "a", **cells: str) -> Replay:
    """A run that needed ``ratio`` times what was predicted."""
    run = Run({"source": source, "framework": "megatron-core", "recompute": "full", **cells}, 2)
    return Replay(run, measured_peak=ratio * GIB, predicted_peak=GIB)


def test_shipped_quantiles_rise_and_hold_one() -> None:
    at = catalog.raw("timing", "peaks")[TABLE]["at"]
    assert len(at) == QUANTILES + 1
    assert at == sorted(at)
    assert at[0] < 1 < at[-1]


@pytest.mark.parametrize(("ratio", "share"), [(0.4, 0.0), (0.5, 0.0), (1.0, 0.5), (1.25, 0.75), (2.0, 1.0), (9.0, 1.0)])
def test_share_between_quantiles(ratio: float, share: float) -> None:
    assert share_below([0.5, 1.0, 1.5], ratio) == pytest.approx(share)


def test_more_room_fits_more_often() -> None:
    shares = [peak_error(peak * GIB, 80 * GIB).fitting for peak in range(20, 200, 4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.95
    assert shares[-1] < 0.1


def test_bounds_hold_the_half() -> None:
    known = distsim.memory(**TIGHT).known
    assert known.low < known.half[0] < known.half[1] < known.high


def test_sources_weigh_alike_and_blank_cells_are_left_out() -> None:
    many = [_replay(1.0)] * 99 + [_replay(2.0, "b")]
    text = peaks_toml([*many, _replay(5.0, "c", recompute=""), _replay(5.0, "d", framework="nobody-knows")], "x.csv")
    assert tomllib.loads(text)[TABLE]["at"] == [1.0] * 11 + [2.0] * 10
    assert "runs = 100\nsources = 2" in text
    assert not comparable(_replay(1.0, recompute=""))


def test_step_and_search_tell_what_fits_by_little(capsys: pytest.CaptureFixture[str]) -> None:
    from distsim.cli.app import run

    words = [text for name, value in TIGHT.items() if name not in ("model", "sequence_parallel")
             for text in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
    run(["step", "llama-3-70b", *words])
    assert "barely fits" in capsys.readouterr().out
    run(["memory", "llama-3-70b", *words])
    assert "would fit" in capsys.readouterr().out
    run(["search", "llama-3-70b", "--gpu", "h100-sxm", "--gpus", "64", "--global-batch", "128", "--seq", "7808"])
    assert "Rank 1 barely fits" in capsys.readouterr().out


def test_nine_tenths_of_measured_runs_are_within_the_ends() -> None:
    known = peak_error(1e9, 1e9)
    at = catalog.raw("timing", "peaks")[TABLE]["at"]
    assert [share_below(at, end / 1e9) for end in (known.low, known.high)] == pytest.approx([0.05, 0.95])
