"""Bytes and calls of the events of a step's trace: together they are those that ``distsim comm`` counts."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import pytest

import distsim
from distsim.engine.steps.passes import STREAMS
from distsim.engine.steps.timeline import StepTimeline, timeline_of
from distsim.engine.traffic import Row, comm_of
from distsim.report.step_trace import events
from tests.test_step_timeline import JOBS as DRAWN

JOBS: dict[str, dict[str, Any]] = {
    **{name: job for name, job in DRAWN.items() if job["gpus"] != 1},
    "several sizes": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 3, "framework": "torchtitan",
                      "global_batch": 32},
    "gathered once": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 2, "framework": "torchtitan",
                      "global_batch": 64},
    "updated ahead": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 1, "global_batch": 64},
    "drives": {"model": "llama-13b", "gpus": 8, "zero": 3, "offload": "optimizer,parameters", "offload_to": "nvme",
               "framework": "deepspeed"},
}  # fmt: skip
TWO_COPIES = {
    "dualpipe": {"model": "llama-13b", "gpus": 16, "pp": 4, "schedule": "dualpipe", "global_batch": 32, "zero": 1},
    "chimera": {"model": "llama-13b", "gpus": 16, "pp": 4, "schedule": "chimera", "global_batch": 32, "zero": 3},
}
STREAM_OF = {"dp": "dp", "zero": "dp", "tp": "tp", "cp": "cp", "ep": "ep", "pp": "pp", "host": "offload"}
ROUNDED = 1e-5
"""Of sums of bytes that are told whole."""


@functools.cache
def traced(name: str) -> tuple[StepTimeline, dict[str, Any]]:
    step = timeline_of(distsim.step(**{**JOBS, **TWO_COPIES}[name]))
    return step, events(step, (0.0, step.seconds))


def moving(trace: dict[str, Any], stage: int) -> list[dict[str, Any]]:
    return [one for one in trace["traceEvents"] if one["pid"] == stage and "bytes" in one["args"]]


def stream_of(row: Row) -> str:
    if row.phase == "step" and row.groups != ("tp",) and row.group != "host":
        return "dp"  # norms and a tied table's gradient go with what data parallel ranks exchange
    return STREAM_OF[row.group]


@pytest.mark.parametrize("name", list(JOBS))
def test_events_of_a_stream_move_what_comm_counts(name: str) -> None:
    """Each kind of exchange of every stage: bytes, calls and seconds at their price."""
    step, trace = traced(name)
    for stage, rows in enumerate(comm_of(step.report.setup).stages):
        wanted: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for row in rows:
            calls = row.calls / row.every_steps
            for place, part in enumerate((row.bytes_per_call * calls, calls, row.seconds)):
                wanted[stream_of(row)][place] += float(part)
        found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for one in moving(trace, stage):
            for place, part in enumerate(("bytes", "calls", "priced_seconds")):
                found[STREAMS[one["tid"]]][place] += one["args"][part]
        assert found.keys() == wanted.keys()
        for stream, sums in wanted.items():
            assert found[stream] == pytest.approx(sums, rel=ROUNDED), (stage, stream)


@pytest.mark.parametrize("name", list(JOBS))
def test_every_exchange_is_drawn_and_listed(name: str) -> None:
    step, trace = traced(name)
    listed = trace["otherData"]["exchanges"]
    assert all(one["drawn_seconds"] > 0 for one in listed)
    told = sorted((one["stage"], one["purpose"], one["phase"], one["bytes_per_call"], one["calls_per_step"])
                  for one in listed)  # fmt: skip
    wanted = sorted((stage, row.purpose, row.phase, round(row.bytes_per_call), row.calls / row.every_steps)
                    for stage, rows in enumerate(comm_of(step.report.setup).stages) for row in rows)  # fmt: skip
    assert told == wanted


def test_an_event_has_the_bytes_of_its_part_of_a_call() -> None:
    """Gathers of 524 and 405 MB follow one another; the first 54 us had been told to be a whole one, at 7 TB/s."""
    _, trace = traced("several sizes")
    gathers = [one for one in moving(trace, 0) if one["name"] == "gather parameters"]
    assert sum(one["args"]["calls"] for one in gathers) == pytest.approx(130)
    whole = 130 * 404_766_720 + 2 * (524_296_192 - 404_766_720)
    assert sum(one["args"]["bytes"] for one in gathers) == pytest.approx(whole, rel=ROUNDED)
    rates = [one["args"]["bytes"] / one["dur"] for one in gathers]
    assert max(rates) < 1.2 * min(rates)
    assert max(rates) < 450e3  # bytes per microsecond: eight rails of 50 GB/s, each rank's own part not sent


def test_an_event_of_one_size_tells_how_many_calls_it_stands_for() -> None:
    step, trace = traced("3d")
    for one in moving(trace, step.slowest):
        if "bytes_per_call" in one["args"]:
            assert one["args"]["bytes"] == pytest.approx(one["args"]["calls"] * one["args"]["bytes_per_call"], abs=1)


@pytest.mark.parametrize("name", list(TWO_COPIES))
def test_a_rank_of_two_copies_moves_half_of_what_each_of_its_stages_does(name: str) -> None:
    step, trace = traced(name)
    rows = comm_of(step.report.setup).stages
    totals = [sum(float(row.bytes_per_call) * row.calls for row in some) for some in rows]
    for stage, own in enumerate(totals):
        mean = (own + totals[-1 - stage]) / 2
        assert sum(one["args"]["bytes"] for one in moving(trace, stage)) == pytest.approx(mean, rel=ROUNDED)
