"""How the time of kernels came about: the operations of a usual layer, and its largest matrix product."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from distsim.engine.figures import Figures
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.jobs.tower_setup import setup_of_row
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.products import module_widths
from distsim.engine.kernels.sums import PHASES
from distsim.engine.steps.report import StepReport
from distsim.engine.steps.stage_seconds import gpu_seconds
from distsim.formulas import compute as forms
from distsim.layers.ledger import Block, Operation


class Kernel(NamedTuple):
    """One operation of a layer: its shape and its seconds as the profile has them."""

    name: str
    kind: str
    shape: tuple[Any, ...]
    forward: float
    backward: float
    apart: tuple[float, ...] = ()
    """Output widths of the products of separate modules, where the operation stands for several."""


def kernels(report: StepReport) -> list[tuple[str, list[Kernel]]]:
    """The operations of a usual layer of the middle stage with their seconds, as the profile has them; and of a layer
    of the vision tower, where one is counted."""
    stages = build_stages(report.setup)
    shown = [stages[report.setup.layout.pp // 2].usual_layer[0]]
    shown += [stages[0].layers[0][0]] if report.setup.model.shown_tower else []
    return [(block.name, _timed(report, setup_of_row(report.setup, block.name), block)) for block in shown]


def _timed(report: StepReport, setup: Setup, block: Block) -> list[Kernel]:
    timing = report.timing.model_dump()
    chip, found = Chip(report.setup), []
    for operation in block.operations:
        sums = dict(zip(PHASES, operation_sums(setup, chip, operation), strict=False))
        flat = {f"{phase}.{name}": value for phase, one in sums.items() for name, value in vars(one).items()}
        forward, backward = (float(gpu_seconds(flat, phase, timing)) for phase in PHASES[:2])
        apart = _apart(operation)
        found.append(Kernel(operation.name, operation.kind, tuple(operation.shape), forward, backward, apart))
    return found


def _apart(operation: Operation) -> tuple[float, ...]:
    if operation.kind != "matmul":
        return ()
    widths = tuple(float(width) for width, alike in module_widths(operation) for _ in range(int(alike)))
    return widths if len(widths) > 1 else ()


def product_figures(report: StepReport) -> Figures:
    """The largest product of that layer, of one module where several make it, from its shape to seconds."""
    setup, figures = report.setup, Figures()
    block, _ = build_stages(setup)[setup.layout.pp // 2].usual_layer
    products = [one for one in block.operations if one.kind == "matmul" and len(one.shape) == 4]
    if not products:
        return figures
    chip = Chip(setup)
    largest: Operation = max(products, key=lambda one: math.prod(one.shape))
    sums, _ = operation_sums(setup, chip, largest)
    m, _, k, batch = largest.shape
    (n, alike), *others = module_widths(largest)
    narrow = bool(sums.matmul8)
    rate, each = (chip.narrow_rate or 0.0, 1.0) if narrow else (chip.rate, setup.precision.activation_bytes)
    share = forms.product_share(m, n, k, batch, chip.units, chip.array)
    flops, moved = forms.product_flops(m, n, k, batch), forms.product_bytes(m, n, k, batch, each)
    seconds = forms.roofline_seconds(flops, rate * share, moved, chip.product_bandwidth)
    if others or not math.isclose(alike * seconds, sums.matmul8 if narrow else sums.matmul, rel_tol=1e-9):
        return figures
    told, source = "best measured product", "presets/gpus"
    if not chip.measured:
        told, source = "best product", "not measured on this chip: docs/findings/chips.md"
    figures.note(f"{largest.name}: rate of the {told}", rate, "FLOP/s", source)
    one = largest.name if alike == 1 else f"{largest.name}, one of {alike:g}"
    words = f"{one}: share of that rate that the shape allows"
    if chip.array:
        figures.use(words, forms.array_share, m=m, n=n, k=k, array=chip.array)
    else:
        figures.use(words, forms.matmul_share, m=m, n=n, k=k, batch=batch, units=chip.units)
    figures.use(f"{one}: seconds at that share", forms.roofline_seconds, flops=flops,
                rate=rate * share, size_bytes=moved, bandwidth=chip.product_bandwidth)  # fmt: skip
    return figures
