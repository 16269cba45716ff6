"""Accelerator-hours of whole training runs: what was published against what a plan would have said."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import load
from whole_hours import WholeRun, median_error, shipped, whole_run, whole_runs

from distsim.engine.campaigns.pace import campaign_ends, campaign_pace
from distsim.engine.corrections.correction import Publication
from distsim.engine.runs.years import run_year
from distsim.engine.step import timed
from distsim.interop.runs import Run, read_runs
from distsim.units import HOUR

ORACLE = Path(__file__).parent / "oracles" / "whole_runs.csv"  # figures as published, each row with its source
DOCS = Path(__file__).parent.parent / "docs"
SCRIPT = Path(__file__).parent.parent / "benchmarks" / "whole_runs.py"
RUNS = read_runs(shipped())
SEARCHED = ("llama-65b", "llama-2-13b", "deepseek-67b")


@pytest.fixture(scope="module")
def found() -> list[WholeRun]:
    return [whole_run(run) for run in RUNS]


def test_hours_within_fifteen_per_cent_in_the_median(found: list[WholeRun]) -> None:
    assert median_error(found) <= 0.15
    for name in SEARCHED:
        error = next(one for one in found if one.run.id == name).error
        assert error is not None
        assert abs(error) <= 0.25


def test_the_docs_have_these_hours(found: list[WholeRun]) -> None:
    """`python benchmarks/whole_runs.py --docs` writes the table."""
    script = load("benchmarks/whole_runs.py")
    text = script.PAGE.read_text(encoding="utf-8")
    page = text.splitlines()
    assert script.MARK.search(text) and script.summary(found) in page
    for one in found:
        if one.published:
            assert script.table_row(one) in page


def test_the_docs_have_this_pace_and_energy(found: list[WholeRun]) -> None:
    pages = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("whole-runs", "goodput", "prices")}
    low, high = campaign_ends(1.0, 1.0)
    assert f"times the pace of campaigns, {campaign_pace():g} (" in pages["whole-runs"]
    assert f"took {campaign_pace():g} times as long" in pages["goodput"]
    for name in ("whole-runs", "goodput"):
        assert f"{low:.2f} to {high:.2f} times" in pages[name]
    errors = {one.run.id: f"{one.energy_error:+.0%}".replace("-", "−")
              for one in found if one.energy_error is not None}  # fmt: skip
    short, seven, thirteen = (errors[run] for run in ("olmo-7b", "olmo-2-7b", "olmo-2-13b"))
    assert f"OLMo 7B {short}, OLMo 2 7B {seven}, 13B {thirteen}" in pages["whole-runs"]
    for run, error in (("OLMo 7B, A100", short), ("OLMo 2 7B, H100", seven), ("OLMo 2 13B, H100", thirteen)):
        assert re.search(rf"^\| {run} \|.*\| {re.escape(error)} \|$", pages["prices"], re.MULTILINE), run


def test_hours_are_those_that_were_published() -> None:
    with ORACLE.open(encoding="utf-8") as file:
        published = {float(row["gpu_hours"]) for row in csv.DictReader(file) if row["gpu_hours"]}
    assert {run.number("gpu_hours") for run in RUNS if run.text("gpu_hours")} <= published


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_each_run_says_where_its_figures_are_from(run: object) -> None:
    for cell in ("source", "layout_source", "tokens", "seq_len", "global_batch", "n_gpus", "gpu"):
        assert run.text(cell), cell  # type: ignore[attr-defined]
    assert run.text("gpu_hours") or run.text("accelerator_mwh")  # type: ignore[attr-defined]
    assert run.text("hours_count") in ("steps", "campaign", "everything")  # type: ignore[attr-defined]
    assert run.text("layout") in ("known", "searched")  # type: ignore[attr-defined]


def test_failures_count_where_the_published_hours_hold_them(found: list[WholeRun]) -> None:
    for one in found:
        if not one.reason:
            assert one.with_failures > one.of_steps
            assert one.judged == (one.of_steps if one.run.text("hours_count") == "steps" else one.with_failures)


def test_two_of_three_published_hours_lie_in_the_intervals_of_their_steps(found: list[WholeRun]) -> None:
    """Fewer than nine in ten: campaigns vary more than steps, so that plans take the wider of two intervals."""
    judged = [one for one in found if one.covered is not None and not one.reason]
    assert sum(one.covered is True for one in judged) >= 2 / 3 * len(judged)


def test_measured_energy_within_twenty_per_cent(found: list[WholeRun]) -> None:
    """From tokens and layout alone: steps give the hours, utilisation gives the watts. GPUs only, no PUE."""
    measured = [one for one in found if one.run.text("accelerator_mwh")]
    assert len(measured) == 3
    for one in measured:
        assert one.energy_error is not None
        assert abs(one.energy_error) <= 0.20, one.run.id


def test_a_run_beyond_the_peak_is_not_replayed(found: list[WholeRun]) -> None:
    """Its header says 150 ms on A100, which is more than their peak."""
    impossible = next(one for one in found if one.run.id == "llmc-gpt3-125m")
    assert "of each GPU, over 90% of the 312" in impossible.reason


def test_first_flash_kernels_were_slower() -> None:
    run = next(run for run in RUNS if run.id == "starcoderbase-15b")
    newer = type(run)({**run.cells, "attention": "flash"}, run.line)
    assert whole_run(run).of_steps > 1.1 * whole_run(newer).of_steps


def test_your_own_runs(tmp_path: Path) -> None:
    own = tmp_path / "mine.csv"
    text = shipped().read_text(encoding="utf-8").splitlines()
    own.write_text("\n".join([text[0], *[line for line in text if line.startswith("pythia-1.4b")]]), encoding="utf-8")
    assert [one.run.id for one in whole_runs(own)] == ["pythia-1.4b"]


def test_one_judged_run_has_no_others_to_fit_a_pace_to(tmp_path: Path) -> None:
    text = shipped().read_text(encoding="utf-8").splitlines()
    own = tmp_path / "mine.csv"
    own.write_text("\n".join([text[0], *[line for line in text if line.startswith("pythia-1b")]]), encoding="utf-8")
    told = subprocess.run([sys.executable, SCRIPT, own], capture_output=True, text=True, check=True).stdout
    assert "median error, all" in told


def test_context_parallel_ranks_read_one_sequence_together() -> None:
    """A step is a batch of whole sequences, however many ranks have parts of each."""
    known = (run for run in read_runs(shipped()) if run.text("layout") == "known")
    plain = next(run for run in known if (run.count("dp") or 1) % 2 == 0)
    found = whole_run(Run({**plain.cells, "cp": "2", "dp": str((plain.count("dp") or 0) // 2)}, 2))
    assert found.setup is not None, found.reason
    y = found.setup.layout
    steps = (plain.number("tokens") or 0) / (plain.need("global_batch") * y.seq)
    seconds, _ = timed(found.setup, Publication(plain.id, run_year(plain)))
    assert found.of_steps == pytest.approx(steps * seconds * campaign_pace() * y.gpus / HOUR)
