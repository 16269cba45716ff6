"""How a step time came about: every part with its formula, its numbers and where they come from.

Formulas are evaluated again for the stage that sets the pace, and each is held against what engine/steps/compose.py
made of it: a value that a formula does not give is shown without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from distsim.engine.figures import Figures
from distsim.engine.jobs.flops import active_parameters, attended, reach_of
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.sums import PHASES
from distsim.engine.steps.after import AfterLast, Hiding, after_last
from distsim.engine.steps.beside import beside_products
from distsim.engine.steps.compose import (
    EXCHANGES,
    MicroBatch,
    exchanged,
    host_seconds,
    layout_numbers,
    micro_batch,
    sharded_seconds,
    stage_numbers,
)
from distsim.engine.steps.copies import copied, copies_left, waited
from distsim.engine.steps.ramp import lengths_of, ramp_of, slowest_of
from distsim.engine.steps.report import StepReport
from distsim.engine.steps.stage_seconds import gpu_seconds
from distsim.formulas import compute as forms
from distsim.formulas.flops import flops_utilisation, model_flops_per_token
from distsim.formulas.step import apart_seconds, exposed_seconds, jitter_share, paced_seconds, ramp_seconds
from distsim.layers.ledger import Operation

FITTED = "presets/timing/fitted.toml"
COMPOSED = "distsim/engine/steps/compose.py"
KINDS = (
    ("matmul", ("matmul",), "products in 16 bits or more"),
    ("matmul8", ("matmul", "matmul_narrow"), "products in 8 bits or fewer"),
    ("grouped", ("matmul", "grouped"), "products of experts"),
    ("grouped8", ("matmul", "matmul_narrow", "grouped"), "products of experts in 8 bits or fewer"),
    ("attention", ("attention",), "flash attention"), ("memory", ("stream",), "kernels that move bytes"),
)  # fmt: skip


class Section(NamedTuple):
    """Figures that belong together."""

    title: str
    figures: Figures


class Kernel(NamedTuple):
    """One operation of a layer: its shape and its seconds as the profile has them."""

    name: str
    kind: str
    shape: tuple[Any, ...]
    forward: float
    backward: float


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
        Section("A product of a middle layer, forward", _product(report)),
        Section(f"Computation of one micro-batch{where}", _computation(slowest, layout, timing)),
        Section(f"Exchanges of one micro-batch{where}", _exchanges(slowest, layout, timing)),
        Section(f"After the last micro-batch{after}", _after(last, timing)),
        Section("The step", _step(report, stages, slowest, layout, timing)),
    ]
    return [section for section in found if section.figures]


def _formula(figures: Figures, label: str, composed: Any, function: Callable[..., Any], **arguments: Any) -> None:
    """A composed value with the formula that gives it; without one where that gives another."""
    if math.isclose(function(**arguments), float(composed), rel_tol=1e-9, abs_tol=1e-15):
        figures.use(label, function, **arguments)
    else:
        figures.note(label, float(composed), "s", COMPOSED)


def kernels(report: StepReport) -> tuple[str, list[Kernel]]:
    """The operations of a usual layer of the middle stage with their seconds, as the profile has them."""
    setup, timing = report.setup, report.timing.model_dump()
    block, _ = build_stages(setup)[setup.layout.pp // 2].usual_layer
    chip, found = Chip(setup), []
    for operation in block.operations:
        sums = dict(zip(PHASES, operation_sums(setup, chip, operation), strict=False))
        flat = {f"{phase}.{name}": value for phase, one in sums.items() for name, value in vars(one).items()}
        forward, backward = (float(gpu_seconds(flat, phase, timing)) for phase in PHASES[:2])
        found.append(Kernel(operation.name, operation.kind, tuple(operation.shape), forward, backward))
    return block.name, found


def _product(report: StepReport) -> Figures:
    """The largest product of that layer, from its shape to seconds."""
    setup, figures = report.setup, Figures()
    block, _ = build_stages(setup)[setup.layout.pp // 2].usual_layer
    products = [one for one in block.operations if one.kind == "matmul" and len(one.shape) == 4]
    if not products:
        return figures
    chip = Chip(setup)
    largest: Operation = max(products, key=lambda one: math.prod(one.shape))
    sums, _ = operation_sums(setup, chip, largest)
    m, n, k, batch = largest.shape
    narrow = bool(sums.matmul8)
    rate, each = (chip.narrow_rate or 0.0, 1.0) if narrow else (chip.rate, setup.precision.activation_bytes)
    share = forms.product_share(m, n, k, batch, chip.units, chip.array)
    flops, moved = forms.product_flops(m, n, k, batch), forms.product_bytes(m, n, k, batch, each)
    seconds = forms.roofline_seconds(flops, rate * share, moved, chip.product_bandwidth)
    if not math.isclose(seconds, sums.matmul8 if narrow else sums.matmul, rel_tol=1e-9):
        return figures
    told, source = "best measured product", "presets/gpus"
    if not chip.measured:
        told, source = "best product", "nobody measured one here: docs/findings/chips.md"
    figures.note(f"{largest.name}: rate of the {told}", rate, "FLOP/s", source)
    words = f"{largest.name}: share of it that the shape allows"
    if chip.array:
        figures.use(words, forms.array_share, m=m, n=n, k=k, array=chip.array)
    else:
        figures.use(words, forms.matmul_share, m=m, n=n, k=k, batch=batch, units=chip.units)
    figures.use(f"{largest.name}: seconds at that share", forms.roofline_seconds, flops=flops,
                rate=rate * share, size_bytes=moved, bandwidth=chip.product_bandwidth)  # fmt: skip
    return figures


def _computation(stage: _Stage, layout: Mapping[str, Any], timing: Mapping[str, float]) -> Figures:
    figures, numbers = Figures(), stage.numbers
    for phase in PHASES:
        for name, shares, words in KINDS:
            ideal = float(numbers[f"{phase}.{name}"])
            if ideal:
                of = " / ".join(f"{share} {timing[share]:.4g}" for share in shares)
                seconds = ideal / math.prod(timing[share] for share in shares)
                figures.note(f"{phase}, {words}", seconds, "s", f"{ideal:.4g} s at measured rates / {of} ({FITTED})")
        gaps = float(numbers[f"{phase}.kernels"])
        if gaps:
            source = f"{gaps:,.0f} kernels x kernel_gap_seconds {timing['kernel_gap_seconds']:.4g} ({FITTED})"
            figures.note(f"{phase}, gaps between kernels", gaps * timing["kernel_gap_seconds"], "s", source)
        if waits := float(numbers[f"{phase}.waits"]):
            source = f"{waits:,.0f} operations x kernel_issue_seconds {timing['kernel_issue_seconds']:.4g} ({FITTED})"
            words = f"{phase}, idle while the host issues what waits for the router's counts"
            figures.note(words, waits * timing["kernel_issue_seconds"], "s", source)
    f, b, r = (float(gpu_seconds(numbers, phase, timing)) for phase in PHASES)
    hosts = host_seconds(numbers, layout, timing)
    _formula(figures, "forward", stage.batch.forward, paced_seconds, gpu_seconds=f, host_seconds=hosts[0])
    _formula(figures, "backward and recomputation", stage.batch.backward, paced_seconds, gpu_seconds=b + r,
             host_seconds=hosts[1])  # fmt: skip
    return figures


def _exchanges(stage: _Stage, layout: Mapping[str, Any], timing: Mapping[str, float]) -> Figures:
    figures, numbers, batch, m = Figures(), stage.numbers, stage.batch, layout["micro_batches"]
    beside = {"forward": float(batch.forward), "backward": float(batch.backward)}
    added = exchanged(numbers, layout, timing)[1]
    for name, key, factor in EXCHANGES:
        for index, phase in enumerate(beside):
            seconds = float(added[name][index])
            if seconds:
                priced = float(numbers[f"{key}_{phase}"]) / m
                source = f"{priced:.4g} s as distsim comm prices it x {factor} {timing[factor]:.4g} ({FITTED})"
                if phase == "backward" and key == "tp" and numbers["tp_beside"]:
                    source += f" and {float(beside_products(numbers, layout, timing)):.4g} s that products do not hide"
                if key == "cp" and layout["ring"]:
                    source += ", less what hides behind attention in all but the ring's last step"
                figures.note(f"{name.replace('_', ' ')}, {phase}", seconds, "s", f"{source}; less where the host waits")
                beside[phase] += seconds
    for phase, seconds in _gathers(figures, stage, beside, layout, timing).items():
        beside[phase] += seconds  # copies to the host take another link
    left = copies_left(numbers, m, tuple(beside.values()), timing["exposed_fraction"])
    for (phase, work), size, seconds in zip(beside.items(), copied(numbers, m), left, strict=True):
        if size:
            _formula(figures, f"offload that does not hide, {phase}", seconds, exposed_seconds, exchange_seconds=size,
                     compute_seconds=work, exposed_fraction=timing["exposed_fraction"])  # fmt: skip
    if numbers["offload_waited"]:
        figures.note("copies that are waited for", float(waited(numbers, m)), "s", "as distsim comm has them")
    if numbers["pp"]:
        source = f"{numbers['pp'] / m:.4g} s priced x pipeline_factor {timing['pipeline_factor']:.4g} ({FITTED})"
        sends = float(numbers["pp"] / m * timing["pipeline_factor"])
        figures.note("pipeline transfers", sends, "s", source)
        if passing := float(batch.others["pipeline_transfer"]) - sends:
            figures.note("exchanges of the shared vocabulary", passing, "s", "what the passes beside them do not hide")
    if batch.others["other"]:
        figures.note("stalls", float(batch.others["other"]), "s", f"stall_seconds, layer_stall_seconds ({FITTED})")
    return figures


def _gathers(
    figures: Figures, stage: _Stage, beside: Mapping[str, float], layout: Mapping[str, Any], timing: Mapping[str, float]
) -> dict[str, float]:
    """What gathered parameters and gradients that each micro-batch reduces leave of themselves beside each pass."""
    forward, backward, reduced = map(float, sharded_seconds(stage.numbers, layout["micro_batches"], timing))
    gathers = {"forward": forward, "backward": backward + reduced}
    left = {
        phase: float(exposed_seconds(gathers[phase], beside[phase], timing["exposed_fraction"])) for phase in beside
    }
    whole = float(stage.batch.others["data_parallel"])
    if not math.isclose(sum(left.values()), whole, rel_tol=1e-9, abs_tol=1e-15):
        figures.note("gathers and reductions that do not hide", whole, "s", COMPOSED)
        return left
    for phase, words in (("forward", "gathers"), ("backward", "gathers and reductions")):
        if gathers[phase]:
            figures.use(f"{words} that do not hide in {phase}", exposed_seconds, exchange_seconds=gathers[phase],
                        compute_seconds=beside[phase], exposed_fraction=timing["exposed_fraction"])  # fmt: skip
    return left


def _after(stage: _Stage, timing: Mapping[str, float]) -> Figures:
    figures, numbers, after = Figures(), stage.numbers, stage.after
    if numbers["reduce"]:
        _hiding(figures, "gradient reduction that does not hide", after.reduce, timing)
    if after.copied.whole:
        _hiding(figures, "gradients to host memory that do not hide", after.copied, timing)
    if after.step:
        priced, factor = float(numbers["dp_step"]), timing["data_factor"]
        source = f"{priced:.4g} s as distsim comm prices it x data_factor {factor:.4g} ({FITTED})"
        words = "norms" if after.ahead.whole else "norms, gathered parameters"
        figures.note(words, float(after.step), "s", source)
    if after.stated:
        figures.note(
            "replicas averaged", float(after.stated), "s", "at the rate of --sync-gbps, as distsim comm has it"
        )
    if after.ahead.whole:
        _hiding(figures, "updated parameters that the next forward waits for", after.ahead, timing)
    if after.replicated:
        figures.note("replicated gradients over tp", float(after.replicated), "s", "as distsim comm has it")
    source = f"{float(numbers['optimizer']):.4g} s at full bandwidth / optimizer {timing['optimizer']:.4g} ({FITTED})"
    figures.note("optimizer step", float(after.optimizer), "s", source)
    if after.offload:
        words = "copies of states and parameters, step"
        figures.note(words, float(after.offload), "s", "as distsim comm has them; nothing runs beside them")
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
    figures.note("one micro-batch", whole, "s", "the figures above, added up")
    figures.note("all micro-batches", whole * sizes["micro_batches"], "s", f"{sizes['micro_batches']:,} x one")
    if layout.pp > 1:
        passes = [float(stage.batch.seconds - stage.batch.shared) for stage in stages]
        summed = sum(stage.numbers["count"] * one for stage, one in zip(stages, passes, strict=True))
        if layout.vocab_parallel:
            words = "one micro-batch without the shared vocabulary"
            figures.note(words, max(passes), "s", "while the pipeline fills and drains no stage has logits to share")
        parts = [stage.numbers for stage in stages], [stage.batch for stage in stages], sizes, timing
        ramp = float(ramp_of(*parts))
        if sizes["uneven"]:
            lengths = lengths_of(*parts)
            words = f"idle time of {layout.schedule}, over 1F1B's with as many chunks"
            figures.note(words, ramp, "1", f"forward {lengths.forward:.3f} and weight gradients {lengths.weights:.3f} "
                         "of a micro-batch; docs/pipeline.md, passes of any length")  # fmt: skip
        figures.use(f"ramp of the pipeline (x {ramp:.4g} for {layout.schedule})", ramp_seconds,
                    sum_of_stages=summed, slowest_stage=max(passes), chunks=sizes["vpp"])  # fmt: skip
        if sizes["forwards_first"]:
            figures.use("forwards and backwards apart", apart_seconds, **slowest_of(*parts[:2])._asdict(),
                        micro_batches=sizes["micro_batches"], chunks=sizes["vpp"])  # fmt: skip
    figures.use("jitter, as a share of all before", jitter_share, jitter=timing["jitter"], gpus=sizes["gpus"])
    figures.note("a step whatever its size", timing["step_seconds"], "s", f"step_seconds ({FITTED})")
    nearest = ", ".join(report.correction.runs) or "no run is near"
    figures.note("correction by alike runs, a factor", scale, "1", f"presets/timing/evidence; {nearest}")
    figures.note("step", report.seconds, "s", f"all parts; residuals: {report.interval.basis}")
    model = report.setup.model
    layers, keys = attended(model, layout.seq, reach_of(report.setup))
    figures.use("model FLOPs of a token", model_flops_per_token, parameters=active_parameters(report.setup),
                layers=layers, heads=model.heads, head_width=model.head_dim, seq=keys)  # fmt: skip
    if report.peak:
        figures.use("MFU", flops_utilisation, flops_per_second=report.model_flops_per_second_per_gpu, peak=report.peak)
    return figures
