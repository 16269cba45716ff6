"""Tables of measured runs in the docs are those that replays give now: benchmarks/replays.py writes them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from scripts import load

from distsim.engine.validate import shipped_runs, summarise, validate_file

ROOT = Path(__file__).parent.parent
MEDIAN, P90 = 0.03, 0.15
"""Of peak memory: the goal that docs/evidence.md tells."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("benchmarks/replays.py")


def test_what_is_kept_of_fits_is_of_the_shipped_one(script: ModuleType) -> None:
    known = script.kept()
    assert known["fits"]["fitted"] == script.fingerprint(), f"run {script.HOW_FITTED}"
    assert known["unseen"]["fitted"] == script.fingerprint(), f"run {script.HOW}"


@pytest.mark.slow
def test_the_docs_have_what_replays_say(script: ModuleType) -> None:
    """One replay of all shipped runs for all pages."""
    replays = validate_file(shipped_runs()).replays
    for name, tables in script.pages(replays, script.kept()).items():
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert sorted(found[2] for found in script.MARK.finditer(page)) == sorted(tables), name
        assert page == script.with_tables(page, tables), f"docs/{name}.md: run {script.HOW}"
    told = summarise(replays)
    assert told.memory_median_abs_error is not None and told.memory_median_abs_error <= MEDIAN
    assert told.memory_p90_abs_error is not None and told.memory_p90_abs_error <= P90
