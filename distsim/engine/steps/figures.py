"""How a step time came about: every part with its formula, its numbers and where they come from.

Formulas are evaluated again for the stage that sets the pace, and each is held against what engine/steps/compose.py
made of it: a value that a formula does not give is shown without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from distsim.engine.figures import Figures
from distsim.engine.kernels.sums import PHASES
from distsim.engine.steps.after import AfterLast, Hiding, after_last
from distsim.engine.steps.beside import beside_products, ring_attention
from distsim.engine.steps.compose import (
    EXCHANGES,
    MicroBatch,
    layout_numbers,
    micro_batch,
    queued,
    sharded_seconds,
    stage_numbers,
    waiting_seconds,
)
from distsim.engine.steps.copies import copied, copies_left, free_seconds
from distsim.engine.steps.flop_figures import utilisation_figures
from distsim.engine.steps.kernel_figures import product_figures
from distsim.engine.steps.laid import ends_apart
from distsim.engine.steps.pipeline_figures import pipeline_figures, simulation_figure
from distsim.engine.steps.report import StepReport
from distsim.engine.steps.stage_seconds import gpu_seconds, host_seconds
from distsim.engine.steps.within_layer import without_experts
from distsim.formulas.step import (
    at_share_seconds,
    exposed_seconds,
    jitter_share,
    micro_batch_seconds,
    paced_seconds,
    queued_seconds,
    scaled_seconds,
    step_seconds,
    waited_seconds,
)

FITTED = "presets/timing/fitted.toml"
COMPOSED = "distsim/engine/steps/compose.py"
PASSES = ("forward", "backward and recomputation")
KINDS = (
    ("matmul", ("matmul",), "matrix products in 16 bits or more"),
    ("matmul8", ("matmul", "matmul_narrow"), "matrix products in 8 bits or fewer"),
    ("grouped", ("matmul", "grouped"), "expert products"),
    ("grouped8", ("matmul", "matmul_narrow", "grouped"), "expert products in 8 bits or fewer"),
    ("attention", ("attention",), "flash attention"), ("memory", ("stream",), "memory-bound kernels"),
)  # fmt: skip


class Section(NamedTuple):
    """Figures that belong together."""

    title: str
    figures: Figures


class _Stage(NamedTuple):
    place: int
    numbers: Mapping[str, Any]
    batch: MicroBatch
    after: AfterLast


def sections(report: StepReport) -> list[Section]:
    """From kernels to the step."""
    layout, timing = layout_numbers(report.setup, report.correction.state), report.timing.model_dump()
    stages = []
    for work, numbers in zip(report.work.stages, stage_numbers(report.work), strict=True):
        batch = micro_batch(numbers, layout, timing)
        stages.append(_Stage(work.index, numbers, batch, after_last(numbers, timing, batch)))
    slowest = max(stages, key=lambda stage: float(stage.batch.seconds))
    last = max(stages, key=lambda stage: float(stage.after.seconds))
    several = len(stages) > 1
    where = f" on stage {slowest.place}, which sets the pace" if several else ""
    after = f" on stage {last.place}, which takes longest" if several else ""
    found = [
        Section("Largest matrix product of a middle layer, forward", product_figures(report)),
        Section(f"Computation of one micro-batch{where}", _computation(slowest, layout, timing)),
        Section(f"Communication of one micro-batch{where}", _exchanges(slowest, layout, timing)),
        Section(f"After the last micro-batch{after}", _after(last, timing)),
        Section("The step", _step(report, stages, slowest, layout, timing)),
    ]
    return [section for section in found if section.figures]


def _formula(
    figures: Figures, label: str, composed: Any, function: Callable[..., Any], numbers: str = "", /, **arguments: Any
) -> None:
    """A composed value with the formula that gives it; without one where that gives another."""
    if math.isclose(function(**arguments), float(composed), rel_tol=1e-9, abs_tol=1e-15):
        figures.use(label, function, numbers, **arguments)
    else:
        figures.note(label, float(composed), "s", COMPOSED)


def _computation(stage: _Stage, layout: Mapping[str, Any], timing: Mapping[str, float]) -> Figures:
    figures, numbers = Figures(), stage.numbers
    for phase in PHASES:
        for name, shares, words in KINDS:
            ideal = float(numbers[f"{phase}.{name}"])
            if ideal:
                of = " and ".join(f"{share} {timing[share]:.4g}" for share in shares)
                figures.use(f"{phase}, {words}", at_share_seconds, f"ideal at measured rates; {of} ({FITTED})",
                            ideal_seconds=ideal, share=math.prod(timing[share] for share in shares))  # fmt: skip
        gaps = float(numbers[f"{phase}.kernels"])
        if gaps:
            figures.use(f"{phase}, gaps between kernels", scaled_seconds, f"kernels; kernel_gap_seconds ({FITTED})",
                        seconds=timing["kernel_gap_seconds"], factor=gaps)  # fmt: skip
        if waits := float(numbers[f"{phase}.waits"]):
            words = f"{phase}, idle while the host issues kernels that need the router's counts"
            figures.use(words, scaled_seconds, f"operations; kernel_issue_seconds ({FITTED})",
                        seconds=timing["kernel_issue_seconds"], factor=waits)  # fmt: skip
    f, b, r = (float(gpu_seconds(numbers, phase, timing)) for phase in PHASES)
    paced, ends = ends_apart(numbers, layout, timing, ((f, b + r), host_seconds(numbers, layout, timing)))
    composed = float(stage.batch.forward), float(stage.batch.backward)
    for words, whole, gpu, host, apart in zip(PASSES, composed, *paced, ends, strict=True):
        layers = f"{words}, layers" if apart else words
        _formula(figures, layers, whole - float(apart), paced_seconds, gpu_seconds=gpu, host_seconds=host)
        if apart:
            figures.note(
                f"{words}, embedding and output layer", float(apart), "s", "as the layers, of their own seconds"
            )
            figures.note(words, whole, "s", "both of them: operators laid end to end")
    return figures


def _unhidden(
    figures: Figures, stage: _Stage, key: str, index: int, layout: Mapping[str, Any], timing: Mapping[str, float]
) -> tuple[float, float, str]:
    """Of an exchange of one micro-batch in a phase: what is priced and waits whole, what is left of it where it runs
    beside computation, and what that is called."""
    numbers, m = stage.numbers, layout["micro_batches"]
    priced = float(numbers[f"{key}_{PHASES[index]}"]) / m
    if key == "tp" and PHASES[index] == "backward" and numbers["tp_beside"]:
        left = float(beside_products(numbers, layout, timing))
        return priced, left, "; what overlapping exchanges leave beside products" if left else ""
    if key == "cp" and layout["ring"] and priced:
        ring = figures.use(
            f"context parallel, {PHASES[index]}, left beside the ring's attention", exposed_seconds,
            "the ring as distsim comm prices it, times context_factor; attention of all its steps but one",
            exchange_seconds=priced * timing["context_factor"],
            compute_seconds=float(ring_attention(numbers, layout, timing)[index]),
            exposed_fraction=timing["exposed_fraction"],
        )  # fmt: skip
        return 0.0, float(ring), "; what is left beside the ring's attention"
    return priced, 0.0, ""


def _exchanges(stage: _Stage, layout: Mapping[str, Any], timing: Mapping[str, float]) -> Figures:
    figures, numbers, batch, m = Figures(), stage.numbers, stage.batch, layout["micro_batches"]
    beside = {"forward": float(batch.forward), "backward": float(batch.backward)}
    _, added, queues = queued(numbers, layout, timing)
    for name, key, factor in EXCHANGES:
        for index, phase in enumerate(beside):
            seconds = float(added[name][index])
            if seconds:
                priced, unhidden, told = _unhidden(figures, stage, key, index, layout, timing)
                source = f"priced as by distsim comm; {factor} ({FITTED}){told}; less where the host sets the pace"
                words, whole = f"{name.replace('_', ' ')}, {phase}", priced * timing[factor] + unhidden
                if whole:
                    figures.use(words, queued_seconds, source, priced_seconds=priced, factor=timing[factor],
                                beside_seconds=unhidden, share_left=seconds / whole)  # fmt: skip
                else:
                    figures.note(words, seconds, "s", source)
                beside[phase] += seconds
    hiding = without_experts(tuple(beside.values()), added["expert_parallel"], numbers, timing)
    worked = [float(queue.worked(whole)) for queue, whole in zip(queues, hiding, strict=True)]
    moved = sharded_seconds(numbers, m, timing)
    gathered = {"forward": moved[0], "backward": moved[1] + moved[2]}
    for phase, seconds in _gathers(figures, stage, worked, layout, timing).items():
        beside[phase] = float(free_seconds(beside[phase], gathered[phase], seconds, numbers["one_link"]))
    lost = timing["exposed_fraction"] * layout["copies_lost"]
    left = copies_left(numbers, m, tuple(beside.values()), lost)
    for (phase, work), size, seconds in zip(beside.items(), copied(numbers, m), left, strict=True):
        if size:
            _formula(figures, f"exposed offload, {phase}", seconds, exposed_seconds, exchange_seconds=size,
                     compute_seconds=work, exposed_fraction=lost)  # fmt: skip
    if numbers["offload_waited"]:
        figures.use("blocking copies", scaled_seconds, "of a step, as distsim comm prices them; one micro-batch's",
                    seconds=float(numbers["offload_waited"]), factor=1 / m)  # fmt: skip
    if sent := numbers["pp_forward"] + numbers["pp_backward"]:
        sends = float(figures.use("pipeline transfers", scaled_seconds, f"as priced; pipeline_factor ({FITTED})",
                                  seconds=sent / m, factor=timing["pipeline_factor"]))  # fmt: skip
        if passing := float(batch.others["pipeline_transfer"]) - sends:
            figures.note("exposed vocabulary parallel exchanges", passing, "s", "not hidden by overlapping passes")
    if batch.others["other"]:
        figures.note("stalls", float(batch.others["other"]), "s", f"stall_seconds, layer_stall_seconds ({FITTED})")
    return figures


def _gathers(
    figures: Figures, stage: _Stage, worked: Sequence[float], layout: Mapping[str, Any], timing: Mapping[str, float]
) -> dict[str, float]:
    """What gathered parameters and gradients that each micro-batch reduces leave of themselves beside each pass."""
    forward, backward, reduced = map(float, sharded_seconds(stage.numbers, layout["micro_batches"], timing))
    gathers = {"forward": forward, "backward": backward + reduced}
    waited = sum(map(float, waiting_seconds(stage.numbers, layout["micro_batches"], timing)))
    after = float(stage.batch.gathers)
    left = {"forward": float(stage.batch.others["data_parallel"]) - waited - after, "backward": after}
    if waited:
        factor = timing["data_factor"]
        figures.use("gathers and reductions that nothing hides", scaled_seconds,
                    f"of a micro-batch, as distsim comm prices them; data_factor ({FITTED})",
                    seconds=waited / factor, factor=factor)  # fmt: skip
    for phase, words, beside in zip(gathers, ("gathers", "gathers and reductions"), worked, strict=True):
        if gathers[phase]:
            never = timing["exposed_fraction"]
            alone = float(exposed_seconds(gathers[phase], beside, never))
            figures.use(f"exposed {words} in {phase}", waited_seconds, exchange_seconds=gathers[phase],
                        compute_seconds=beside, exposed_fraction=never,
                        share_left=left[phase] / alone if alone else 1.0)  # fmt: skip
    return left


def _after(stage: _Stage, timing: Mapping[str, float]) -> Figures:
    figures, numbers, after = Figures(), stage.numbers, stage.after
    if numbers["reduce"]:
        _hiding(figures, "exposed gradient reduction", after.reduce, timing)
    if after.copied.whole:
        _hiding(figures, "exposed copies of gradients to host memory", after.copied, timing)
    if after.step:
        words = "gradient norm" if after.ahead.whole else "gradient norm, parameter gathers"
        figures.use(words, scaled_seconds, f"as distsim comm prices it; data_factor ({FITTED})",
                    seconds=float(numbers["dp_step"]), factor=timing["data_factor"])  # fmt: skip
    if after.stated:
        source = "at the rate of --sync-gbps, as distsim comm prices it"
        figures.note("averaging of replicas", float(after.stated), "s", source)
    if after.ahead.whole:
        _hiding(figures, "exposed gather of updated parameters, in the next forward", after.ahead, timing)
    if after.replicated:
        figures.note("replicated gradients over tp", float(after.replicated), "s", "as distsim comm prices it")
    _formula(figures, "optimizer step", after.optimizer, at_share_seconds,
             f"ideal at the bandwidth that copies tell; optimizer ({FITTED})",
             ideal_seconds=float(numbers["optimizer"]), share=timing["optimizer"])  # fmt: skip
    if after.offload:
        words = "copies of states and parameters for the step"
        figures.note(words, float(after.offload), "s", "as distsim comm prices them; nothing overlaps them")
    return figures


def _hiding(figures: Figures, label: str, one: Hiding, timing: Mapping[str, float]) -> None:
    _formula(figures, label, one.left, exposed_seconds, exchange_seconds=float(one.whole),
             compute_seconds=float(one.beside), exposed_fraction=timing["exposed_fraction"])  # fmt: skip


def _step(
    report: StepReport, stages: list[_Stage], slowest: _Stage, sizes: Mapping[str, Any], timing: Mapping[str, float]
) -> Figures:
    figures, layout = Figures(), report.setup.layout
    scale = math.exp(report.correction.logarithm)
    whole = float(slowest.batch.seconds)
    forward, backward = float(slowest.batch.forward), float(slowest.batch.backward)
    figures.use("one micro-batch", micro_batch_seconds, "the figures above", forward=forward, backward=backward,
                communication=whole - forward - backward)  # fmt: skip
    figures.use("all micro-batches", scaled_seconds, seconds=whole, factor=sizes["micro_batches"])
    after = max(float(stage.after.seconds) for stage in stages)
    each = [stage.numbers for stage in stages], [stage.batch for stage in stages]
    waits, apart = pipeline_figures(figures, *each, sizes, timing, layout) if layout.pp > 1 else (0.0, 0.0)
    jitter = float(figures.use("jitter, as a share of all of the above", jitter_share, jitter=timing["jitter"],
                               gpus=sizes["gpus"]))  # fmt: skip
    figures.note("fixed time per step", timing["step_seconds"], "s", f"step_seconds ({FITTED})")
    named = zip(report.evidence.runs, report.evidence.sources, strict=True)
    nearest = "; ".join(f"{run} of {source.strip()}" for run, source in named) or "no similar run"
    figures.note("correction factor from similar runs", scale, "1", f"presets/timing/evidence; {nearest}")
    source = f"the figures above; interval from {report.interval.basis}"
    parts_of = {"micro_batches": whole * sizes["micro_batches"], "ramp": waits, "apart": apart, "after": after,
                "jitter": jitter, "fixed": timing["step_seconds"], "correction": scale}  # fmt: skip
    if math.isclose(step_seconds(**parts_of), report.seconds, rel_tol=1e-9):
        figures.use("step", step_seconds, source, **parts_of)
    else:
        simulation_figure(figures, report)
        figures.note("step", report.seconds, "s", source)
    utilisation_figures(figures, report)
    return figures
