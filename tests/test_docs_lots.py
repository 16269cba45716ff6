"""The figures of docs/findings/README.md: what of lots of measured runs is kept as rows is counted in these."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from distsim.engine.evidence import quantile
from distsim.interop.runs import read_runs

ROOT = Path(__file__).parent.parent
FINDINGS = ROOT / "docs" / "findings"
UNSEEN = ROOT / "presets" / "runs" / "unseen.csv"
OWN = "distsim/benchmarks"
FIRST_KEPT = 39
"""The first lot whose rows have its number in their ids (``l39-0001``); rows of lots before have been merged."""
GONE = {44: 5, 58: 1, 61: 7}
"""Rows of a lot that were taken out once they had been counted."""
_SMALL = """zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"""
UNITS = _SMALL.split()
TENS = {"twent": 20, "thirt": 30, "fort": 40, "fift": 50, "sixt": 60, "sevent": 70, "eight": 80, "ninet": 90}


def number(word: str) -> int:
    """Of ``fifty-seventh``."""
    if word in UNITS:
        return UNITS.index(word)
    tens, _, unit = word.partition("-")
    return TENS[tens.removesuffix("ieth").removesuffix("y")] + (UNITS.index(unit) if unit else 0)


@cache
def table() -> dict[int, tuple[int, str]]:
    """How many runs (or peaks) each lot has and the rest of its row, as it was gathered."""
    text = (FINDINGS / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| lot (\d+): (\d+) ([^|]*\|.*)\|$", text, re.MULTILINE)
    return {int(lot): (int(count), rest) for lot, count, rest in found}


@cache
def rows() -> list[dict[str, str]]:
    with UNSEEN.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def of_lot(lot: int) -> list[dict[str, str]]:
    return [row for row in rows() if row["id"].startswith(f"l{lot}-")]


KEPT = [lot for lot in table() if lot >= FIRST_KEPT]


def test_numbers_of_words() -> None:
    words = "first twelfth twentieth twenty-first fortieth forty-fourth fifty-seventh"
    assert [number(word) for word in words.split()] == [1, 12, 20, 21, 40, 44, 57]


def test_what_is_shipped_is_counted() -> None:
    text = (FINDINGS / "README.md").read_text(encoding="utf-8")
    told = re.search(r"holds ([\d,]+) further published runs of (\d+) sources .*? and (\d+) \[measured for", text)
    assert told is not None
    runs = read_runs(UNSEEN)
    own = [run for run in runs if run.source.startswith(OWN)]
    published = [run for run in runs if not run.source.startswith(OWN)]
    counts = (len(published), len({run.source for run in published}), len(own))
    assert tuple(int(one.replace(",", "")) for one in told.groups()) == counts


def test_lots_follow_each_other_and_all_that_have_rows_are_in_the_table() -> None:
    assert list(table()) == [*range(1, len(table()) + 1)]
    kept = {int(found[1]) for row in rows() if (found := re.match(r"l(\d+)-", row["id"]))}
    assert kept == set(KEPT)


@pytest.mark.parametrize("lot", KEPT)
def test_a_lots_figures_are_those_of_its_rows(lot: int) -> None:
    """Runs, peaks, and how far the first predictions were off; the mean of publishers joins sources by hand."""
    count, rest = table()[lot]
    _, median, ninetieth, _, peaks = (cell.strip() for cell in rest.split("|"))
    own = of_lot(lot)
    assert len(own) == count - GONE.get(lot, 0)
    if lot in GONE:
        return
    errors = sorted(abs(float(ratio) - 1) for row in own if (ratio := row["first_predicted_over_measured"]))
    assert median.split("%")[0] == f"{100 * statistics.median(errors):.1f}"
    if told := re.search(r"\((\d+) runs\)", median):
        assert int(told[1]) == len(errors)
    if told := re.match(r"(\d+)%", ninetieth):
        assert int(told[1]) == pytest.approx(100 * quantile(errors, 0.9), abs=0.6)
    if told := re.search(r"\((\d+) peaks\)", peaks):
        assert int(told[1]) == sum(bool(row["mem_peak_gb_per_gpu"]) for row in own)


def pages() -> Iterable[tuple[str, str]]:
    return ((page.name, page.read_text(encoding="utf-8")) for page in sorted(FINDINGS.glob("*.md")))


def test_pages_tell_of_as_many_runs_as_the_table() -> None:
    told = {
        (name, number(word.lower())): int(count)
        for name, text in pages()
        for word, count in re.findall(r"[Tt]he ([a-z-]+) lot (?:is|of) (\d+) runs", text)
    }
    assert len(told) > 40
    wrong = {key: (count, table()[key[1]][0]) for key, count in told.items() if table()[key[1]][0] != count}
    assert not wrong


def test_the_pages_of_lots_are_those_that_the_index_says() -> None:
    index = (FINDINGS / "README.md").read_text(encoding="utf-8")
    spans = re.findall(
        r"\]\(([a-z-]+\.md)\) \| (?:the|lots from the|lots) ([\w-]+) to (?:the )?([\w-]+)(?: lot)?[, ]", index
    )
    assert len(spans) == 5
    for name, *ends in spans:
        first, last = (int(end) if end.isdigit() else number(end) for end in ends)
        text = (FINDINGS / name).read_text(encoding="utf-8")
        here = {number(word.lower()) for word in re.findall(r"[Tt]he ([a-z-]+) lot is ", text)}
        assert here <= {*range(first, last + 1)} and {first, last} <= here, name
