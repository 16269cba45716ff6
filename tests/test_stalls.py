"""States of a framework's software: what each costs, and how runs alike tell the one that a job was in."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from distsim import catalog
from distsim.engine.corrections.correction import Publication, correction_of
from distsim.engine.corrections.stalls import Vote, distinct_state, likeliest, state_of
from distsim.engine.fitting.runs import examples_of
from distsim.engine.fitting.states import shares_of, voted, votes_of
from distsim.engine.fitting.table import Example, Table, allowed_states, nearest_states
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.breakdown import breakdown_of, timing_of
from distsim.engine.steps.work import work_of
from distsim.formulas.step import check_seconds, spanning_seconds, stall_seconds
from distsim.interop.runs import read_runs
from distsim.specs.job import Job
from distsim.specs.timing import CHECKED, NAMES, PLAIN, STALLED, STATES, Timing

SWEEP = "vinjn/nanotron-ultrascale-playbook"


def test_checks_are_paid_per_layer_and_rank() -> None:
    common = {"layer_stall": 0.003, "nodes": 4, "node_size": 8, "layers": 10}
    assert check_seconds(**common, checked=1, tp=1) == 0
    assert check_seconds(**common, checked=1, tp=8) == pytest.approx(0.003 * 10 * 8)
    assert check_seconds(**common, checked=1, tp=16) > 2 * check_seconds(**common, checked=1, tp=8)
    assert check_seconds(**common, checked=0, tp=16) == 0
    assert check_seconds(**{**common, "nodes": 1}, checked=1, tp=8) == 0


def test_groups_over_several_nodes_wait_unchecked_too() -> None:
    common = {"layer_stall": 0.003, "node_size": 8, "layers": 10}
    assert spanning_seconds(**common, tp=8) == 0
    checked = check_seconds(**common, checked=1, nodes=4, tp=16)
    assert 0 < spanning_seconds(**common, tp=16) < spanning_seconds(**common, tp=32) < checked


def test_checks_hide_behind_what_the_gpu_does() -> None:
    """The host sets the pace of small micro-batches, the GPU that of large ones."""
    options = {"model": "llama-7b", "framework": "nanotron", "gpu": "h100-sxm", "gpus": 16, "tp": 8, "seq": 4096}
    lost = {}
    for micro in (1, 16):
        setup = resolve(Job(**options, micro_batch=micro, global_batch=64))
        work, timing = work_of(setup), timing_of(setup)
        both = [sum(breakdown_of(work, timing, state).values()) for state in (PLAIN, CHECKED)]
        lost[micro] = (both[1] - both[0]) / setup.layout.micro_batches
    assert lost[1] > 0.4
    assert lost[16] < lost[1] / 5


def test_stalls_count_neighbours() -> None:
    """A stage of a long pipeline waits for two neighbours, one of two for one; filling costs little."""
    common = {"stall": 0.5, "stalled": 1, "nodes": 1, "micro_batches": 1000}
    assert stall_seconds(**common, pp=1) == 0
    assert stall_seconds(**common, pp=2) == pytest.approx(0.5, rel=0.01)
    assert stall_seconds(**common, pp=8) == pytest.approx(1.0, rel=0.01)
    assert stall_seconds(**{**common, "stalled": 0}, pp=8) == 0
    few = {**common, "micro_batches": 8}
    assert stall_seconds(**few, pp=8) * (8 + 7) < 0.5 * (2 * 8 + 7)


def test_a_state_that_changes_nothing_is_the_lesser_one() -> None:
    assert distinct_state(STALLED, tp=8, pp=1, nodes=4) == CHECKED
    assert distinct_state(STALLED, tp=1, pp=1, nodes=4) == PLAIN
    assert distinct_state(STALLED, tp=1, pp=2, nodes=4) == STALLED
    assert distinct_state(CHECKED, tp=8, pp=2, nodes=1) == PLAIN


def test_votes() -> None:
    """The likeliest state wins; far from every run it is the plain one, and arrays agree with numbers."""
    votes = [Vote((0.0, 0.0), 0.1, 0.8), Vote((3.0, 0.0), 0.7, 0.1)]
    assert state_of((0.1, 0.0), votes)[0] == STALLED
    assert state_of((2.9, 0.0), votes)[0] == CHECKED
    far, sure = state_of((99.0, 0.0), votes)
    assert far == PLAIN and sure == pytest.approx(1)
    together, _ = state_of((numpy.array([0.1, 2.9, 99.0]), 0.0), votes)
    assert together.tolist() == [STALLED, CHECKED, PLAIN]
    assert likeliest(0.2, 0.3) == (PLAIN, pytest.approx(0.5))


@pytest.fixture(scope="module")
def sweep() -> list[Example]:
    runs = [one for one in read_runs(catalog.path("runs", "published")) if one.source == SWEEP]
    return examples_of(runs[::9])[0]


def test_states_of_runs_are_found_again(sweep: list[Example]) -> None:
    """Times made in known states lead back to them, and each run's state agrees with what runs like it were in."""
    priors = {name: float(field.default) for name, field in Timing.model_fields.items()} | dict(sweep[0].kin.prior)
    timing = {name: numpy.full(len(sweep), priors[name]) for name in NAMES}
    allowed = allowed_states(sweep)
    wanted = numpy.array([int(e.layout["nodes"] >= 16) * STALLED for e in sweep])
    wanted = numpy.where(allowed[wanted, numpy.arange(len(sweep))], wanted, PLAIN)
    made = numpy.exp(Table.of(sweep).in_states(wanted).log_predicted(timing))
    runs = [replace(e, seconds=float(s)) for e, s in zip(sweep, made, strict=True)]
    residuals = Table.of(runs).residuals_by_state(timing)
    assert (nearest_states(runs, residuals) == wanted).all()
    _, alone, sure = votes_of(runs, shares_of(runs, residuals))
    assert (alone == wanted).mean() > 0.8 and (sure >= 0).all() and (sure <= 1).all()
    again, _ = voted(runs, shares_of(runs, residuals), runs)
    assert (again == wanted).mean() > 0.95


def test_a_job_of_today_is_plain() -> None:
    """Measured sweeps ran in other states too; what a user asks for does not."""
    job = {"model": "nanotron-8b", "gpu": "h100-sxm", "gpus": 512, "tp": 4, "pp": 8, "global_batch": 256, "seq": 4096}
    setup = resolve(Job.read({**job, "framework": "nanotron"}))
    assert correction_of(setup).state == PLAIN
    work, timing = work_of(setup), timing_of(setup)
    seconds = [sum(breakdown_of(work, timing, state).values()) for state in STATES]
    assert seconds == sorted(seconds) and seconds[STALLED] > 5 * seconds[PLAIN]
    other = resolve(Job.read({**job, "framework": "megatron-core"}))
    work, timing = work_of(other), timing_of(other)
    assert math.isclose(*(sum(breakdown_of(work, timing, state).values()) for state in (PLAIN, STALLED)))


def test_who_else_measured_ran_other_software(sweep: list[Example]) -> None:
    """States are those of a sweep's own history: runs of another source under nanotron are plain."""
    stalled = max(sweep, key=lambda one: one.layout["nodes"])
    run = next(one for one in read_runs(catalog.path("runs", "published")) if one.id == stalled.id)
    setup = setup_of(run)
    assert correction_of(setup, Publication("", 2024.0, run.source)).state != PLAIN
    assert correction_of(setup, Publication("", 2024.0, "somebody's own sweep")).state == PLAIN


def test_only_frameworks_of_several_states_vote() -> None:
    """Their evidence says in which state each run was; the others' tables have no such columns."""
    folder = Path(catalog.path("timing", "fitted")).parent / "evidence"
    for file in folder.glob("*.csv"):
        with open(file, newline="", encoding="utf-8") as table:
            head = next(csv.reader(table))
        assert ("stalled" in head) <= kin_of(catalog.load("frameworks", file.stem)).several
