"""Rows of a search's tables can be told apart by their layouts at any width."""

from __future__ import annotations

import pytest

import distsim
from distsim.engine.layouts.report import SearchReport
from distsim.report.search_table import fitted, table, telling_apart
from distsim.report.style import style

NUMBERS = ("#", "step", "tokens/s/GPU", "MFU", "GiB", "over by", "limits", "limit", "limited by", "similar")


@pytest.fixture(scope="module")
def report() -> SearchReport:
    return distsim.search("llama-3-70b", gpu="h100-sxm", gpus=64, seq=8192)


def cells(lines: list[str]) -> list[tuple[str, ...]]:
    """Of each row, what its layout says: words of several parts are of the last column alone."""
    head = lines[0].split()
    shown = [place for place, name in enumerate(head) if name not in NUMBERS]
    rows = [line.replace(" ms", "ms").replace(" s ", "s ").replace(" min", "min").split(None, len(head) - 1)
            for line in lines[1:]]  # fmt: skip
    return [tuple(row[place].strip() for place in shown if place < len(row)) for row in rows]


@pytest.mark.parametrize("width", [76, 80, 100, 140])
def test_near_misses_do_not_look_the_same(report: SearchReport, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert len(report.almost) > 2
    made = table(report, report.almost, style(), over=True)
    assert max(map(len, made)) <= width and "vpp" in made[0].split()
    rows = cells(made)
    assert len(set(rows)) == len(rows)


def test_columns_that_tell_nothing_apart_go_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    same = {"#": "1", "step": "1 s", "MFU": "50%", "tp": "8", "vpp": "2", "schedule": "1f1b", "recompute": "none"}
    other = {**same, "#": "2", "tp": "4", "vpp": "1"}
    assert telling_apart([same, other]) == []
    assert telling_apart([same, {**same, "vpp": "4", "schedule": "zb-h1"}]) == ["vpp"]
    assert telling_apart([same, {**same, "schedule": "zb-h1"}]) == ["schedule"]
    assert "vpp" in fitted([same, {**same, "vpp": "4"}])[0]
