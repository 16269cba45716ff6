"""From a step's work to its time: every part on the critical path, for one job or for arrays of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distsim.arrays import Number, maximum, where
from distsim.engine.compute import CLASSES, PHASES
from distsim.engine.resolve import Setup
from distsim.engine.work import Work
from distsim.formulas.step import exposed_seconds, jitter_share, paced_seconds, ramp_seconds, stall_seconds

PARTS = ("compute", "tensor_parallel", "data_parallel", "pipeline_bubble", "pipeline_transfer", "expert_parallel",
         "context_parallel", "optimizer", "offload", "recompute", "other")  # fmt: skip
EXCHANGES = (
    ("tensor_parallel", "tp", "tensor_factor"),
    ("expert_parallel", "ep", "expert_factor"),
    ("context_parallel", "cp", "context_factor"),
)
BACKWARD_ISSUE = 0.7
"""Host time per kernel in backward over forward: autograd issues from C++."""
BACKWARD_SHARE = 2 / 3
"""Backward's share of a micro-batch: two products for each one of forward."""


def stage_numbers(work: Work) -> list[dict[str, Number]]:
    """Each distinct stage as flat numbers."""
    found = []
    for stage in work.stages:
        flat: dict[str, Number] = {"count": stage.count, "layers": stage.layers, "optimizer": stage.compute.optimizer}
        for phase in PHASES:
            for name in CLASSES:
                flat[f"{phase}.{name}"] = getattr(stage.compute.phases[phase], name)
        found.append({**flat, **stage.traffic})
    return found


def layout_numbers(setup: Setup) -> dict[str, Number]:
    """What composing a step needs of the layout."""
    y = setup.layout
    return {"tp": y.tp, "pp": y.pp, "vpp": y.vpp, "zero": y.zero, "micro_batches": y.micro_batches,
            "nodes": y.gpus / setup.cluster.gpus_per_node, "node_size": setup.cluster.gpus_per_node}  # fmt: skip


def compose(
    stages: Sequence[Mapping[str, Number]], y: Mapping[str, Number], timing: Mapping[str, Number]
) -> dict[str, Number]:
    """Seconds of each part of a step, on the critical path: the slowest stage, the ramp, what follows the last
    micro-batch. Everything may be an array over jobs (stages that a job lacks have count 0)."""
    m = y["micro_batches"]
    each = [micro_batch(stage, y, timing) for stage in stages]
    totals = [where(stage["count"] > 0, sum(parts.values()), 0.0) for stage, parts in zip(stages, each, strict=True)]
    tails = [_tail(stage, y, timing, parts) for stage, parts in zip(stages, each, strict=True)]
    slowest, parts = _largest(totals, each)
    summed = sum(stage["count"] * total for stage, total in zip(stages, totals, strict=True))
    answer: dict[str, Number] = {name: parts.get(name, 0.0) * m for name in PARTS}
    answer["pipeline_bubble"] = ramp_seconds(summed, slowest, y["vpp"])
    _, tail = _largest([where(s["count"] > 0, sum(t.values()), 0.0) for s, t in zip(stages, tails, strict=True)], tails)
    for name, seconds in tail.items():
        answer[name] = answer[name] + seconds
    busy = sum(answer.values())
    answer["other"] = answer["other"] + busy * jitter_share(timing["jitter"], y["nodes"]) + timing["step_seconds"]
    return answer


def _largest(totals: list[Number], parts: list[dict[str, Number]]) -> tuple[Number, dict[str, Number]]:
    """The largest total with its parts."""
    best, found = totals[0], parts[0]
    for total, one in zip(totals[1:], parts[1:], strict=True):
        more = total > best
        best = maximum(total, best)
        found = {name: where(more, one[name], found[name]) for name in found}
    return best, found


def product_seconds(stage: Mapping[str, Number], phase: str, timing: Mapping[str, Number]) -> Number:
    """Matrix products with weights, dense and grouped."""
    wide = stage[f"{phase}.matmul"] + stage[f"{phase}.grouped"] / timing["grouped"]
    narrow = stage[f"{phase}.matmul8"] + stage[f"{phase}.grouped8"] / timing["grouped"]
    return wide / timing["matmul"] + narrow / timing["matmul_narrow"]


def gpu_seconds(stage: Mapping[str, Number], phase: str, timing: Mapping[str, Number]) -> Number:
    return (
        product_seconds(stage, phase, timing)
        + stage[f"{phase}.attention"] / timing["attention"] + stage[f"{phase}.memory"] / timing["stream"]
        + stage[f"{phase}.kernels"] * timing["kernel_gap_seconds"]
    )  # fmt: skip


def micro_batch(
    stage: Mapping[str, Number], y: Mapping[str, Number], timing: Mapping[str, Number]
) -> dict[str, Number]:
    """One micro-batch on one stage, forward and backward."""
    m, issue = y["micro_batches"], timing["kernel_issue_seconds"]
    f, b, r = (gpu_seconds(stage, phase, timing) for phase in PHASES)
    forward = paced_seconds(f, stage["forward.kernels"] * issue)
    backward = paced_seconds(b + r, (stage["backward.kernels"] + stage["recompute.kernels"]) * issue * BACKWARD_ISSUE)
    again = backward * r / maximum(b + r, 1e-12)
    exchange = {
        name: (stage[f"{key}_forward"] * timing[factor] / m, stage[f"{key}_backward"] * timing[factor] / m)
        for name, key, factor in EXCHANGES
    }
    before, after = (sum(pair[index] for pair in exchange.values()) for index in (0, 1))
    sharded = where(y["zero"] >= 3, 1, 0)
    gathers = (
        stage["gather_forward"] * timing["gather_factor"] / m,
        stage["gather_backward"] * timing["gather_factor"] / m,
    )
    reduces = stage["reduce"] * timing["data_factor"] / m * sharded
    data = exposed_seconds(gathers[0], forward + before, timing["exposed_fraction"]) + exposed_seconds(
        gathers[1] + reduces, backward + after, timing["exposed_fraction"]
    )
    return {
        "compute": forward + backward - again, "recompute": again,
        **{name: sum(pair) for name, pair in exchange.items()},
        "data_parallel": data, "pipeline_transfer": stage["pp"] * timing["pipeline_factor"] / m,
        "offload": exposed_seconds(stage["offload"] / m, forward + backward, timing["exposed_fraction"]),
        "other": stall_seconds(timing["stall_seconds"], timing["layer_stall_seconds"], y["nodes"], y["node_size"],
                               stage["layers"], y["tp"], y["pp"]),
    }  # fmt: skip


def _tail(
    stage: Mapping[str, Number], y: Mapping[str, Number], timing: Mapping[str, Number], parts: Mapping[str, Number]
) -> dict[str, Number]:
    """What follows the last micro-batch: gradients that did not hide, the optimizer, gathered parameters."""
    reduce = stage["reduce"] * timing["data_factor"] * where(y["zero"] >= 3, 0, 1)
    hiding = (parts["compute"] + parts["recompute"] + parts["tensor_parallel"]) * BACKWARD_SHARE
    return {
        "data_parallel": exposed_seconds(reduce, hiding, timing["exposed_fraction"])
        + stage["dp_step"] * timing["data_factor"],
        "tensor_parallel": stage["tp_step"],
        "optimizer": stage["optimizer"] / timing["optimizer"],
    }  # fmt: skip
