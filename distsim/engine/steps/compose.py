"""From a step's work to its time: every part on the critical path, for one job or for arrays of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distsim.arrays import Number, largest, maximum, nothing, plus, product, total, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.sums import CLASSES, PHASES
from distsim.engine.steps.after import after_last
from distsim.engine.steps.beside import behind_first, beside_another, beside_attention, beside_products, hidden_share
from distsim.engine.steps.copies import copied, copies_left, free_seconds, loses_to_copies, one_link, waited
from distsim.engine.steps.laid import Pair, end_numbers, ends_apart
from distsim.engine.steps.ramp import ramp_of, waits_apart
from distsim.engine.steps.stage_seconds import Queue, gpu_seconds, host_seconds, phase_seconds
from distsim.engine.steps.vocabulary import passing_seconds, vocabulary_seconds
from distsim.engine.steps.weight_gradients import whole_share
from distsim.engine.steps.within_layer import expert_numbers, without_experts
from distsim.engine.steps.work import Work, kinds_of
from distsim.engine.timelines.ramps import even_ramp, uneven_number
from distsim.engine.timelines.schedule_shape import both_ways, forwards_first, interleaved_share, paired
from distsim.formulas.step import (
    LEAST_SECONDS,
    check_seconds,
    evaluation_seconds,
    jitter_share,
    paced_seconds,
    ramp_seconds,
    spanning_seconds,
    stall_seconds,
)  # fmt: skip
from distsim.specs.timing import CHECKED, PLAIN, STALLED

PARTS = ("compute", "tensor_parallel", "data_parallel", "pipeline_bubble", "pipeline_transfer", "expert_parallel",
         "context_parallel", "optimizer", "offload", "recompute", "other")  # fmt: skip
EXCHANGES = (
    ("tensor_parallel", "tp", "tensor_factor"),
    ("expert_parallel", "ep", "expert_factor"),
    ("context_parallel", "cp", "context_factor"),
)


def stage_numbers(work: Work) -> list[dict[str, Number]]:
    """Each distinct stage as flat numbers; of devices that hold two stages, the mean of both."""
    layout, found = work.setup.layout, own_numbers(work)
    return _of_devices(work.setup, found) if layout.pp > 1 and both_ways(layout.schedule) else found


def own_numbers(work: Work) -> list[dict[str, Number]]:
    """Each distinct stage as flat numbers, by itself also where a device holds two."""
    found = []
    for stage in work.stages:
        flat: dict[str, Number] = {
            "count": stage.count,
            "layers": stage.layers,
            "optimizer": stage.compute.optimizer,
            "update_products": stage.compute.update.seconds,
            "updates": stage.compute.update.kernels,
            "decomposing": stage.compute.decomposing,
            "vocabulary": stage.shared,
            "one_link": one_link(work.setup),
        }
        for phase in PHASES:
            for name in CLASSES:
                flat[f"{phase}.{name}"] = getattr(stage.compute.phases[phase], name)
        parts = {**end_numbers(work.setup, stage.compute), **expert_numbers(stage.experts)}
        found.append({**flat, **parts, **stage.traffic})
    return found


def _of_devices(setup: Setup, found: list[dict[str, Number]]) -> list[dict[str, Number]]:
    """Stages of two copies of the model in opposite directions: half of the micro-batches visit a device's own stage,
    half that of the other copy."""
    kinds = kinds_of(setup)
    kind = {stage.index: number for number, alike in enumerate(kinds) for stage in alike}
    last, mean = len(kind) - 1, []
    for own, alike in zip(found, kinds, strict=True):
        others = [found[kind[last - stage.index]] for stage in alike]
        mean.append({
            name: value if name == "count" else (value + sum(other[name] for other in others) / len(others)) / 2
            for name, value in own.items()
        })  # fmt: skip
    return mean


def layout_numbers(setup: Setup, state: Number = PLAIN) -> dict[str, Number]:
    """What composing a step needs of the layout; ``state`` is that of the software (specs/timing.py)."""
    layout = setup.layout
    overlaps, weights = setup.kernels.expert_overlap, whole_share(setup)
    beside = product(interleaved_share(layout) if overlaps else paired(layout.schedule, layout.pp), hidden_share(setup))
    return {"tp": layout.tp, "pp": layout.pp, "vpp": layout.vpp, "micro_batches": layout.micro_batches, "state": state,
            "blocking": int(setup.kernels.launches == "blocking"),
            "end_to_end": int(setup.framework.laid_end_to_end),
            "gpus": layout.gpus, "nodes": layout.gpus / setup.cluster.gpus_per_node,
            "node_size": setup.cluster.gpus_per_node,
            "ramp": even_ramp(layout.schedule, layout.pp, layout.micro_batches, layout.vpp),
            "uneven": uneven_number(layout.schedule, layout.pp),
            "forwards_first": forwards_first(layout.schedule, layout.pp),
            "weights": weights, "paired": beside, "copies_lost": loses_to_copies(setup),
            "evaluated": setup.evaluated, "ring": behind_first(setup)}  # fmt: skip


def compose(
    stages: Sequence[Mapping[str, Number]],
    layout: Mapping[str, Number],
    timing: Mapping[str, Number],
    apart: bool = True,
) -> dict[str, Number]:
    """Seconds of each part of a step, on the critical path: the slowest stage, the ramp, what follows the last
    micro-batch. Everything may be an array over jobs (stages that a job lacks have count 0). Parts that are not wanted
    ``apart`` are all in one."""
    each = [micro_batch(stage, layout, timing) for stage in stages]
    tails = [after_last(stage, timing, one) for stage, one in zip(stages, each, strict=True)]
    totals = [where(stage["count"] > 0, one.seconds, 0.0) for stage, one in zip(stages, each, strict=True)]
    slowest, parts = _largest(totals, [one.parts() for one in each] if apart else [])
    after, tail = _largest(
        [where(stage["count"] > 0, one.seconds, 0.0) for stage, one in zip(stages, tails, strict=True)],
        [one.parts() for one in tails] if apart else [],
    )
    summed, longest = passing_seconds(stages, totals, slowest, each)
    if not apart:
        parts, tail = {"other": slowest}, {"other": after}
    answer = {name: seconds * layout["micro_batches"] for name, seconds in parts.items()}
    ramp = ramp_seconds(summed, longest, layout["vpp"]) * ramp_of(stages, each, layout, timing)
    answer["pipeline_bubble"] = ramp + waits_apart(stages, each, layout)
    if not nothing(layout["evaluated"]):
        answer["other"] = answer.get("other", 0.0) + evaluation_seconds(
            total(*answer.values()),
            sum(one.forward for one in each),
            sum(one.backward for one in each),
            layout["evaluated"],
        )
    for name, seconds in tail.items():
        answer[name] = answer.get(name, 0.0) + seconds
    busy = total(*answer.values())
    share = jitter_share(timing["jitter"], layout["gpus"])
    if not apart:
        return {"other": busy * (1 + share) + timing["step_seconds"]}
    answer["other"] = answer["other"] + busy * share + timing["step_seconds"]
    return {name: answer.get(name, 0.0) for name in PARTS}


def _largest(totals: list[Number], parts: list[dict[str, Number]]) -> tuple[Number, dict[str, Number]]:
    """The largest total with its parts, where they are given."""
    if not parts:
        return largest(totals), {}
    best, found = totals[0], parts[0]
    for one, own in zip(totals[1:], parts[1:], strict=True):
        more = one > best
        best = maximum(one, best)
        found = {name: where(more, own[name], found[name]) for name in found}
    return best, found


class MicroBatch(NamedTuple):
    """One micro-batch on one stage, forward and backward."""

    forward: Number
    backward: Number
    """With what is computed again."""
    again: tuple[Number, Number]
    """Seconds on the GPU of what is computed again, and of all of backward."""
    exchange: dict[str, Number]
    queued: dict[str, tuple[Number, Number]]
    """The same by pass, as if no other micro-batch hid any of it."""
    others: dict[str, Number]
    shared: Number = 0.0
    """Seconds for a vocabulary that all stages share."""
    sent: Number = 0.0
    """Seconds in which forward sends to other stages, part of ``others``."""
    trailing: Number = 0.0
    """Seconds by which backward is longer for the gradients that it reduces, part of ``others``: other stages have what
    they wait for before that."""
    waits: Number = 0.0
    """Seconds in which backward waits for copies from host memory, part of ``others``."""
    gathers: Number = 0.0
    """Seconds in which backward waits for what it gathers and reduces, part of ``others``."""
    copied: tuple[Number, Number] = (0.0, 0.0)
    """Seconds of forward's copies to host memory and of backward's from it, waited for or not."""
    moved: Number = 0.0
    """Seconds of what backward gathers and reduces, waited for or not."""

    @property
    def passes(self) -> tuple[Number, Number]:
        """Forward and backward with the exchanges inside of their layers."""
        before, after = (sum(pair[index] for pair in self.queued.values()) for index in (0, 1))
        return self.forward + before, self.backward + after

    @property
    def seconds(self) -> Number:
        """All parts."""
        return total(self.forward, self.backward, *self.exchange.values(), *self.others.values())

    @property
    def passed_on(self) -> Number:
        """What the other stages wait for while a pipeline fills and drains."""
        return self.seconds - self.shared - self.trailing

    def parts(self) -> dict[str, Number]:
        """Computation apart from recomputation, and all that is exposed beside them."""
        again = self.backward * self.again[0] / maximum(self.again[1], LEAST_SECONDS)
        return {"compute": self.forward + self.backward - again, "recompute": again, **self.exchange, **self.others}


def sharded_seconds(stage: Mapping[str, Number], m: Number, timing: Mapping[str, Number]) -> list[Number]:
    """Of one of ``m`` micro-batches: parameters gathered for forward and for backward, gradients reduced each time."""
    gathers = [product(stage[f"gather_{phase}"], timing["gather_factor"] / m) for phase in PHASES[:2]]
    return [*gathers, product(stage["reduce_each"], timing["data_factor"] / m)]


def waiting_seconds(stage: Mapping[str, Number], m: Number, timing: Mapping[str, Number]) -> list[Number]:
    """The same where nothing hides them."""
    return [product(stage[f"dp_{kind}"], timing["data_factor"] / m) for kind in ("forward", "backward", "reduce")]


def micro_batch(stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number]) -> MicroBatch:
    """Seconds of one micro-batch on one stage."""
    m, never = layout["micro_batches"], timing["exposed_fraction"]
    f, b, r = (gpu_seconds(stage, phase, timing) for phase in PHASES)
    (forward, backward), exchange, queues = queued(stage, layout, timing)
    before, after = (sum(pair[index] for pair in exchange.values()) for index in (0, 1))
    *gathers, reduces = sharded_seconds(stage, m, timing)
    *waits, last = waiting_seconds(stage, m, timing)
    sends = [product(stage[f"pp_{phase}"], timing["pipeline_factor"] / m) for phase in PHASES[:2]]
    passed, shared = vocabulary_seconds(stage, m, forward + backward, never)
    apart = beside_another(exchange["expert_parallel"], f + b + r, layout["paired"])
    work = forward + before - apart[0], backward + after - apart[1]
    moved = gathers[0], gathers[1] + reduces
    hiding = without_experts(work, exchange["expert_parallel"], stage, timing)
    left = [queue.left(one, beside, never) for queue, one, beside in zip(queues, moved, hiding, strict=True)]
    beside = [free_seconds(*phase, stage["one_link"]) for phase in zip(work, moved, left, strict=True)]
    lost = never * layout["copies_lost"]
    copies = copies_left(stage, m, beside, lost)
    trailing = last
    if not nothing(reduces):
        alone = queues[1].left(gathers[1], hiding[1], never)
        free = free_seconds(work[1], gathers[1], alone, stage["one_link"])
        sooner = alone + copies_left(stage, m, (beside[0], free), lost)[1]
        trailing = last + maximum(left[1] + copies[1] - sooner, 0.0)  # no less but for rounding
    others = {
        "data_parallel": total(left[0], left[1], *waits, last),
        "pipeline_transfer": sends[0] + sends[1] + passed,
        "offload": sum(copies) + waited(stage, m),
        "other": _stalls(stage, layout, timing, forward + backward + before + after),
    }  # fmt: skip
    added = {name: sum(pair) for name, pair in exchange.items()}
    added["expert_parallel"] = added["expert_parallel"] - sum(apart)
    found = MicroBatch(forward, backward, (r, b + r), added, exchange, others, shared, sends[0], trailing)
    return found._replace(waits=copies[1], gathers=left[1], copied=copied(stage, m), moved=moved[1])


def queued(
    stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number]
) -> tuple[Pair, dict[str, Pair], list[Queue]]:
    """A micro-batch's forward and backward without exchanges, what exchanges add to each, and each pass with them: they
    run in the GPU's queue, so that a pass waits for GPU and exchanges or for the host, whichever is longer."""
    m = layout["micro_batches"]
    f, b, r = (gpu_seconds(stage, phase, timing) for phase in PHASES)
    gpu, host = (f, b + r), host_seconds(stage, layout, timing)
    (gpu, host), ends = ends_apart(stage, layout, timing, (gpu, host))
    alone = phase_seconds(gpu[0], host[0], layout), phase_seconds(gpu[1], host[1], layout)
    waiting = {
        name: [product(stage[f"{key}_{phase}"], timing[factor] / m) for phase in PHASES[:2]]
        for name, key, factor in EXCHANGES
    }
    waiting["tensor_parallel"][1] = waiting["tensor_parallel"][1] + beside_products(stage, layout, timing)
    waiting["context_parallel"] = beside_attention(waiting["context_parallel"], stage, layout, timing)
    shares, queues = [], []
    for index in (0, 1):
        waits = sum(pair[index] for pair in waiting.values())
        queue = Queue(gpu[index], host[index], alone[index], layout)
        longer = queue.longer(waits)
        shares.append(longer / maximum(waits, LEAST_SECONDS))
        queues.append(queue._replace(gpu=plus(gpu[index], waits), paced=plus(alone[index], longer)))
    added = {name: (pair[0] * shares[0], pair[1] * shares[1]) for name, pair in waiting.items()}
    return (alone[0] + ends[0], alone[1] + ends[1]), added, queues


def _stalls(
    stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number], busy: Number
) -> Number:
    """What a micro-batch loses to the state of the software."""
    stall, layer_stall = timing["stall_seconds"], timing["layer_stall_seconds"]
    if nothing(stall) and nothing(layer_stall):
        return 0.0
    nodes, size, layers, tp = layout["nodes"], layout["node_size"], stage["layers"], layout["tp"]
    checks = check_seconds(layer_stall, layout["state"] >= CHECKED, nodes, size, layers, tp)
    host = sum(host_seconds(stage, layout, timing)) + checks
    waits = where(checks > 0, paced_seconds(busy, host) - busy, spanning_seconds(layer_stall, size, layers, tp))
    return stall_seconds(stall, layout["state"] >= STALLED, nodes, layout["pp"], layout["micro_batches"]) + waits
