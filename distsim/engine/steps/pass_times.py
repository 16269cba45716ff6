"""Times of a model's own stages for ``distsim pipeline --model``: what ``distsim step`` would compose, pass by pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from distsim import keywords
from distsim.engine.exchanges.all_flows import network_of, price_of
from distsim.engine.exchanges.pipeline import hop_flows, messages, shape_flows
from distsim.engine.exchanges.reach import refuse_unjoined
from distsim.engine.jobs.layout import usual_etp
from distsim.engine.jobs.models import load_model, named
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.software import framework_of
from distsim.engine.jobs.stage_chunks import folded
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.sums import PHASES
from distsim.engine.steps.beside import hidden_share
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.compose import layout_numbers, micro_batch, stage_numbers
from distsim.engine.steps.content import chunk_shares
from distsim.engine.steps.weight_gradients import share_of, weight_seconds
from distsim.engine.steps.work import kinds_of, work_of
from distsim.engine.timelines.schedule_shape import paired
from distsim.schedules.action import looped_chunk, wave_chunk
from distsim.schedules.names import plain
from distsim.schedules.registry import SCHEDULES, chunks_for, find
from distsim.specs.job import Job
from distsim.specs.model import Model
from distsim.specs.support_rules import refuse_unsupported
from distsim.specs.written import as_written

SAME = 1e-9
"""Links whose hops differ by less are alike: sums are rounded."""


def model_setup(
    model: str | Model, stages: int, micro: int, chunks: int | None, schedule: str | None = None, **options: Any
) -> Setup:
    """One data-parallel replica of a model, or as many as its experts are spread over; ``options`` are further job
    options (gpu, tp, ep, micro_batch, seq …).

    A schedule decides which stage holds which chunks; it is drawn for a framework that has not got it too. Where copies
    of the model run in two directions, the stages are those of one: the simulation puts two on each device.
    """
    stated = {name: value for name, value in options.items() if value is not None}
    tp, cp, ep, sequences = (keywords.whole(name, stated.get(name, 1)) for name in ("tp", "cp", "ep", "micro_batch"))
    etp = keywords.whole("etp", stated.get("etp") or _usual_etp(model, stated, ep, tp))
    replicas = ep * etp // math.gcd(ep * etp, tp * cp)
    gpus = tp * stages * cp * replicas
    degrees = {"pp": stages, "vpp": chunks or 1, "gpus": gpus}
    if schedule is not None and stages > 1 and find(schedule).placement != "bidirectional":
        degrees["vpp"] = chunks_for(schedule, chunks)
        stated["schedule"] = schedule
    job = Job.read({**stated, **degrees, "model": model, "global_batch": sequences * micro * replicas})
    if schedule is None or "framework" not in stated:
        return resolve(job)
    framework = framework_of(job)
    any_schedule = framework.supports.model_copy(update={"schedules": None})
    setup = resolve(job, {"framework": framework.model_copy(update={"supports": any_schedule})})
    refuse_unsupported(setup.framework, setup.model, setup.layout, setup.offload, setup.job)
    return setup


def _usual_etp(model: str | Model, stated: Mapping[str, Any], ep: int, tp: int) -> int:
    """Tensor parallel ranks of an expert where nobody says."""
    framework = framework_of(Job.read({**stated, "model": model}))
    return usual_etp({"ep": ep, "tp": tp}, load_model(model).spec, framework)


def job_written(setup: Setup, schedule: str | None) -> dict[str, Any]:
    """The JSON's ``job`` of a pipeline under its schedule, which the setup has not where copies of the model run in two
    directions."""
    name = plain(schedule or "")
    if name not in SCHEDULES or setup.layout.pp == 1 or find(name).placement != "bidirectional":
        return setup.written()
    job = setup.job.model_copy(update={"schedule": name})
    return as_written(named(job), {**setup.to_dict(), "schedule": name})


def model_times(
    model: str, stages: int, micro: int, chunks: int | None, schedule: str | None = None, **options: Any
) -> dict[str, Any]:
    """Seconds of each pass of one micro-batch through each stage (or chunk), and of one hop between neighbours.

    An uneven first or last stage, embedding and loss included, shows in the lists of numbers.
    """
    return pass_times(model_setup(model, stages, micro, chunks, schedule, **options), schedule)


def launch_waits(setup: Setup, times: Mapping[str, Any], schedule: str | None = None) -> tuple[float, float]:
    """By how much the longest forward and the longest backward pass of ``pass_times`` are longer, in seconds, because
    the GPU waits for a host that issues kernels."""
    free = pass_times(setup, schedule, kernel_issue_seconds=0.0)
    forward, backward = (max(max(times[name]) - max(free[name]), 0.0) for name in ("forward", "backward"))
    return forward, backward


def pass_times(setup: Setup, schedule: str | None = None, **instead: float) -> dict[str, Any]:
    """Forward, input gradient, weight gradient and full backward, in seconds, of every stage, or where stages hold
    several of every chunk in model order: the first with the embedding, the last with head and loss, whichever stages
    hold these. And a hop, or where some lie between nodes one of each link. ``instead`` are numbers of another
    timing than the job's; ``schedule`` is the one that is drawn, where the setup has another."""
    refuse_unjoined(setup, setup.layout.gpus)
    timing, layout = {**timing_of(setup).model_dump(), **instead}, layout_numbers(setup)
    if schedule is not None and paired(plain(schedule), layout["pp"]):  # also of copies in two directions
        layout["paired"] = hidden_share(setup)
    work, waits = work_of(setup), [0.0]
    pp = int(layout["pp"])
    chunks = len(setup.chunk_layers) // pp
    place_of = wave_chunk if folded(setup) else looped_chunk
    found: dict[int, tuple[float, float, float]] = {}
    stages = build_stages(setup)
    kinds = kinds_of(setup)
    for alike, stage, one_of in zip(kinds, stage_numbers(work), work.stages, strict=True):
        one = micro_batch(stage, layout, timing)
        moving = float(one.others["pipeline_transfer"])
        whole = float(one.seconds) - moving
        before, behind = map(float, one.passes)
        share = whole / (before + behind) if before + behind else 0.0  # the rest is spread over both
        split = share_of(setup, [stages[one_of.index]])
        weight, after = float(weight_seconds(stage, one, layout, timing, split)), behind * share
        for each in alike:
            parts = chunk_shares(setup, each, timing) if chunks > 1 else [(1.0, 1.0)]
            for turn, (of_forward, of_backward) in enumerate(parts):
                place = place_of(turn, each.index, pp)
                found[place] = (before * share * of_forward, (after - weight) * of_backward, weight * of_backward)
        sends = sum(one_of.traffic[f"pp_{phase}"] for phase in PHASES[:2]) * timing["pipeline_factor"]
        waits.append((moving - sends / layout["micro_batches"]) / max(messages(setup, one_of.index), 1))
    forward, inputs, weights = (list(column) for column in zip(*(found[i] for i in sorted(found)), strict=True))
    backward = [first + second for first, second in zip(inputs, weights, strict=True)]
    return {"forward": forward, "backward": backward, "input_gradient": inputs, "weight_gradient": weights,
            "hop": _hops(setup, timing["pipeline_factor"], max(waits))}  # fmt: skip


def _hops(setup: Setup, factor: float, waits: float) -> float | list[float]:
    """Seconds of a message between stages, with what a stage ``waits`` for others at each: one number, or where links
    differ one of each."""
    network = network_of(setup)
    each = [float(price_of(flow, network).seconds) * factor + waits for flow in hop_flows(setup)]
    if ahead := shape_flows(setup):
        each = [one + float(price_of(flow, network).seconds) for one, flow in zip(each, ahead, strict=True)]
    alike = not each or max(each) - min(each) <= SAME * max(each)
    return max(each, default=0.0) if alike else each
