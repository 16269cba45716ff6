"""Messages between pipeline stages: counted on the placement that the simulated schedule has."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from distsim.engine.exchanges.pipeline import messages, pipeline_flows
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.steps.pass_times import model_times
from distsim.schedules.registry import build
from distsim.specs.job import Job

STAGES, MICRO = 4, 8


def setup(schedule: str, vpp: int, **options: Any) -> Setup:
    given = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": STAGES, "pp": STAGES, "global_batch": MICRO}
    return resolve(Job.read({**given, "schedule": schedule, "vpp": vpp, **options}))


def by_placement(schedule: str, chunks: int) -> Counter[tuple[str, int, int]]:
    """Messages (phase, from, to) of all micro-batches, from the simulated schedule's own placement and chains."""
    parts = build(schedule, STAGES, MICRO, chunks)
    found: Counter[tuple[str, int, int]] = Counter()
    for chain in parts.chains:
        for before, after in pairwise(parts.placement[chunk] for chunk in chain):
            if before != after:
                found["forward", before, after] += MICRO // len(parts.chains)
                found["backward", after, before] += MICRO // len(parts.chains)
    return found


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [
        ("1f1b", 1),
        ("interleaved-1f1b", 2),
        ("interleaved-1f1b", 4),
        ("zb-v", 2),
        ("dualpipe-v", 2),
        ("hanayo", 4),
        ("dualpipe", 1),
        ("chimera", 1),
    ],
)
def test_every_message_goes_where_the_next_chunk_is(schedule: str, chunks: int) -> None:
    one = setup(schedule, chunks)
    counted: Counter[tuple[str, int, int]] = Counter()
    for stage in build_stages(one):
        for flow in pipeline_flows(one, stage):
            assert flow.span.ends is not None
            if flow.calls:
                ends = [int(end / flow.span.stride) for end in flow.span.ends]
                counted[flow.phase, ends[0], ends[1]] += int(flow.calls)
    assert counted == by_placement(schedule, chunks)
    assert sum(counted.values()) == MICRO * sum(messages(one, stage) for stage in range(STAGES))


def test_a_v_sends_nothing_around_the_ends() -> None:
    """On two nodes only the middle of a V crosses between them; interleaved chunks do so at the ends as well."""
    far = {"gpus": 16, "tp": 4}
    crossing = {}
    for schedule in ("dualpipe-v", "interleaved-1f1b"):
        one = setup(schedule, 2, **far)
        crossing[schedule] = [
            stage.index
            for stage in build_stages(one)
            if any(
                f.calls and len({int(end) // 8 for end in f.span.ends or ()}) > 1 for f in pipeline_flows(one, stage)
            )
        ]
    assert crossing == {"dualpipe-v": [1, 2], "interleaved-1f1b": [0, 1, 2, 3]}


def test_a_hop_is_one_message_however_many_chunks_a_stage_has() -> None:
    hops = [model_times("llama-70b", stages, 8, chunks, gpu="h100-sxm", tp=8)["hop"]
            for stages, chunks in ((2, 1), (4, 1), (4, 2), (4, 5))]  # fmt: skip
    assert hops == [pytest.approx(hops[0])] * 4
