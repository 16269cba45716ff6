"""How far a long search has come, where nobody watches."""

from __future__ import annotations

import pytest

from distsim.cli import progress
from distsim.cli.app import run


def test_a_long_search_says_something_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After ten seconds, then after each twice as many; nothing once all is done, or in less than a second."""
    clock = iter([0.0, 9.0, 11.0, 12.0, 23.0, 98.0, 99.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    told = progress.Progress()
    for done in (1, 250, 300, 600, 999, 1000):
        told.show(done, 1000)
    told.clear()
    captured = capsys.readouterr()
    notes = captured.err.splitlines()
    assert notes == [
        "note: 250 of 1,000 layouts, 23 per second, 33 s left", "note: 600 of 1,000 layouts, 26 per second, 15 s left"
    ] and not captured.out  # fmt: skip


def test_help_says_what_a_calibration_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--help"]) == 0
    assert "which takes minutes; --alone leaves" in " ".join(capsys.readouterr().out.split())


def test_each_file_that_is_read_has_a_clock_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second file begun a minute after the first is not told to take days."""
    clock = iter([0.0, 1.0, 60.0, 61.0, 72.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.shown("runs read") as show:
        show(10, 10)
        show(1, 3000)
        show(1200, 3000)
    assert capsys.readouterr().err.splitlines() == ["note: 1,200 of 3,000 runs read, 100 per second, 18 s left"]
