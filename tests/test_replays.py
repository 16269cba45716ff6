"""One replay of all shipped runs: tables of the docs (benchmarks/replays.py writes them), peaks of memory, reasons for
skipping, what frameworks run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load

from distsim.engine.evidence import Replay
from distsim.engine.fitting.others import as_strange
from distsim.engine.validate import shipped_runs, summarise, validate_file
from distsim.interop.runs import read_runs
from distsim.interop.runs.models import layer_alone
from distsim.specs.support_rules import unsupported

ROOT = Path(__file__).parent.parent
MEDIAN, P90 = 0.03, 0.15
"""Of peak memory: the goal that docs/evidence.md tells."""
BARS = {"megatron-lm": 0.04, "megatron-deepspeed": 0.06, "nemo-mlperf": 0.06, "nanotron": 0.08, "deepspeed": 0.1}
"""Median error of peak memory, by framework."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("benchmarks/replays.py")


def test_what_is_kept_of_fits_is_of_the_shipped_one(script: ModuleType) -> None:
    known = script.kept()
    assert known["fits"]["fitted"] == script.fingerprint(), f"run {script.HOW_FITTED}"
    assert known["unseen"]["fitted"] == script.fingerprint(), f"run {script.HOW}"


@pytest.fixture(scope="module")
def replays() -> Sequence[Replay]:
    return validate_file(shipped_runs()).replays


@pytest.fixture(scope="module")
def strange(replays: Sequence[Replay]) -> Sequence[Replay]:
    """The same, none corrected by others of its source: what the ledger alone says."""
    return as_strange(replays, read_runs(shipped_runs()))


@pytest.mark.slow
def test_the_docs_have_what_replays_say(
    script: ModuleType, replays: Sequence[Replay], strange: Sequence[Replay]
) -> None:
    for name, tables in script.pages(replays, strange, script.kept()).items():
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert sorted(found[2] for found in script.MARK.finditer(page)) == sorted(tables), name
        assert page == script.with_tables(page, tables), f"docs/{name}.md: run {script.HOW}"
    for told in map(summarise, (replays, strange)):
        assert told.memory_median_abs_error is not None and told.memory_median_abs_error <= MEDIAN
        assert told.memory_p90_abs_error is not None and told.memory_p90_abs_error <= P90


@pytest.mark.slow
@pytest.mark.parametrize("framework", BARS)
def test_peak_memory_against_measured_runs(framework: str, strange: Sequence[Replay]) -> None:
    rows = [one for one in strange if one.run.text("framework") == framework]
    errors = [abs(error) for one in rows if (error := one.memory_error) is not None]
    assert len(errors) >= 7
    assert statistics.median(errors) <= BARS[framework]


@pytest.mark.slow
def test_no_shipped_run_is_in_doubt_over_its_weights(replays: Sequence[Replay]) -> None:
    """What is taken for granted is no evidence to fit to."""
    assert not [one.run.id for one in replays if "fp32 weights" in one.assumed]


@pytest.mark.slow
def test_every_skip_has_a_reason(replays: Sequence[Replay]) -> None:
    for one in replays:
        assert one.reason or layer_alone(one.run) or one.predicted_peak is not None, one.run.id
        if one.predicted_peak is not None:
            assert 0 < one.predicted_peak < 1e15, one.run.id
        if one.predicted_seconds is not None:
            assert 0 < one.predicted_seconds < 1e6, one.run.id


@pytest.mark.slow
def test_no_measured_run_did_what_its_framework_is_said_not_to_run(replays: Sequence[Replay]) -> None:
    seen = 0
    for one in replays:
        if one.setup is None or not (one.run.text("zero_stage") or one.run.text("pp")):
            continue  # the row does not say
        supports = one.setup.framework.supports
        assert not unsupported(supports, one.setup.model, one.setup.layout), one.run.id
        assert set(one.setup.offload) <= set(supports.offload), one.run.id
        seen += 1
    assert seen > 1000
