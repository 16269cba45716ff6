"""Times of a model's own stages for ``distsim pipeline --model``: what ``distsim step`` would compose, pass by pass."""

from __future__ import annotations

from typing import Any

from distsim.engine.compose import gpu_seconds, layout_numbers, micro_batch, product_seconds, stage_numbers
from distsim.engine.resolve import Setup, resolve
from distsim.engine.stages import build_stages
from distsim.engine.step import timing_of
from distsim.engine.work import Work, work_of
from distsim.specs.job import Job


def model_times(model: str, stages: int, micro: int, chunks: int | None, **options: Any) -> dict[str, Any]:
    """Seconds of each pass of one micro-batch through each whole stage, and of one hop between neighbours.

    ``options`` are further job options (gpu, tp, micro_batch, seq, framework …). One data-parallel replica is timed;
    an uneven first or last stage, embedding and loss included, shows in the lists of ``stages`` numbers.
    """
    stated = {name: value for name, value in options.items() if value is not None}
    tp, sequences = stated.get("tp", 1), stated.get("micro_batch", 1)
    vpp = chunks if chunks and chunks > 1 else None
    job = Job.read({**stated, "model": model, "pp": stages, "vpp": vpp, "gpus": tp * stages * stated.get("cp", 1),
                    "global_batch": sequences * micro})  # fmt: skip
    return pass_times(resolve(job))


def pass_times(setup: Setup) -> dict[str, Any]:
    """Forward, input gradient, weight gradient and full backward of every stage, in seconds; and the longest hop."""
    timing, y = timing_of(setup).model_dump(), layout_numbers(setup)
    forward, inputs, weights, hops = [], [], [], [0.0]
    work = work_of(setup)
    for stage, of_weights in zip(stage_numbers(work), _weight_shares(setup, work), strict=True):
        one = micro_batch(stage, y, timing)
        hop = float(one.others["pipeline_transfer"])
        whole = float(one.seconds) - hop
        phases = {phase: float(gpu_seconds(stage, phase, timing)) for phase in ("forward", "backward", "recompute")}
        share = whole / sum(phases.values())  # host overhead and exposed traffic spread over the passes
        products = product_seconds(stage, "backward", timing)
        weight = float(products) * of_weights
        times = int(stage["count"])
        forward += [phases["forward"] * share] * times
        weights += [weight * share] * times
        inputs += [(phases["backward"] + phases["recompute"] - weight) * share] * times
        hops.append(hop / 2)  # one there, one back
    backward = [first + second for first, second in zip(inputs, weights, strict=True)]
    return {"forward": forward, "backward": backward, "input_gradient": inputs, "weight_gradient": weights,
            "hop": max(hops)}  # fmt: skip


def _weight_shares(setup: Setup, work: Work) -> list[float]:
    """Per stage, what part of the backward products gives gradients of weights: half, less where most are frozen."""
    if setup.tuning is None:
        return [0.5] * len(work.stages)
    stages = build_stages(setup)
    shares = []
    for one in work.stages:
        products = [(op, count) for op, count in stages[one.index].operations() if op.kind == "matmul"]
        weights = sum(op.flops_forward * count for op, count in products if op.weight_gradient)
        shares.append(float(weights / sum(op.flops_backward * count for op, count in products)))
    return shares
