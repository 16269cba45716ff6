"""What one micro-batch does on one stage: the composition's seconds, shared out by the ledger and the exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from distsim.engine.compose import EXCHANGES, MicroBatch, gpu_seconds, product_seconds
from distsim.engine.compute import CLASSES, PHASES, stage_compute
from distsim.engine.flows import Flow
from distsim.engine.resolve import Setup
from distsim.engine.stages import Stage
from distsim.engine.step_passes import Beside, Content, Unit
from distsim.formulas.step import exposed_seconds

MOST_UNITS = 64
"""Embedding, layers (grouped where there are more) and head of one chunk."""
Priced = tuple[Flow, float]
"""An exchange and its share of a total of seconds."""


def content_of(
    setup: Setup, stage: Stage, numbers: Mapping[str, Any], batch: MicroBatch, timing: Mapping[str, float],
    flows: Mapping[str, Sequence[Priced]], chunks: int,
) -> Content:  # fmt: skip
    """What a micro-batch does on one of the ``chunks`` of a stage: the composition's seconds (``batch``), shared out by
    the ledger; ``flows`` are the stage's exchanges by kind of traffic with their priced seconds per step."""
    y = setup.layout
    parts = {name: float(seconds) / chunks for name, seconds in batch.parts().items()}
    forward = float(batch.forward) / chunks
    weight = _weight_share(numbers, timing) * float(batch.backward) / chunks
    names, shares = _shares(setup, stage, timing, chunks)
    exchanges = _exchanges(names, parts, flows)
    units = tuple(
        Unit(name, forward * f, (parts["compute"] - forward) * b, parts["recompute"] * b, weight * b, exchanged)
        for (name, _), (f, b), exchanged in zip(names, shares, exchanges, strict=True)
    )
    m = y.micro_batches * chunks
    gather = [float(numbers[f"gather_{phase}"]) * timing["gather_factor"] / m for phase in PHASES[:2]]
    reduce = float(numbers["reduce"]) * timing["data_factor"] / m if y.zero >= 3 else 0.0
    gathers, reduces = _hidden(parts["data_parallel"], gather, reduce, forward, batch, timing, flows)
    offload = _beside(parts["offload"], float(numbers["offload"]) / m, flows["offload"])
    sent = dict.fromkeys(("forward", "backward"), 0.0)
    for flow, seconds in flows["pp"]:
        sent[flow.phase] += seconds
    total = sum(sent.values())
    sends = [
        Beside(parts["pipeline_transfer"] * (sent[phase] / total if total else 0.5), 0.0, _first(flows["pp"], phase))
        for phase in ("forward", "backward")
    ]
    return Content(units, gathers, reduces, offload, (sends[0], sends[1]), parts["other"])


def _hidden(
    exposed: float, gather: Sequence[float], reduce: float, forward: float, batch: MicroBatch,
    timing: Mapping[str, float], flows: Mapping[str, Sequence[Priced]],
) -> tuple[tuple[Beside, Beside], Beside]:  # fmt: skip
    """Which part of the exposed data parallel time falls on which pass: as each alone would leave it."""
    share = float(batch.backward) / max(float(batch.forward), 1e-30)
    alone = [
        float(exposed_seconds(gather[0], forward, timing["exposed_fraction"])),
        float(exposed_seconds(gather[1] + reduce, forward * share, timing["exposed_fraction"])),
    ]
    scale = exposed / sum(alone) if sum(alone) else 0.0
    before, after = min(alone[0] * scale, gather[0]), 0.0
    after = exposed - before
    back = gather[1] + reduce
    part = gather[1] / back if back else 0.0
    return (
        (Beside(before, gather[0] - before, _first(flows["gather_forward"])),
         Beside(after * part, max(0.0, gather[1] - after * part), _first(flows["gather_backward"]))),
        Beside(after * (1 - part), max(0.0, reduce - after * (1 - part)), _first(flows["reduce"])),
    )  # fmt: skip


def _beside(exposed: float, seconds: float, flows: Sequence[Priced]) -> Beside:
    return Beside(exposed, max(0.0, seconds - exposed), _first(flows))


def _first(flows: Iterable[Priced], phase: str = "") -> Flow | None:
    """The exchange that takes longest, of one phase where it is named."""
    found = [priced for priced in flows if not phase or priced[0].phase == phase]
    return max(found, key=lambda priced: priced[1])[0] if found else None


def _weight_share(numbers: Mapping[str, Any], timing: Mapping[str, float]) -> float:
    """Of a product's two backward products, one is the weight's; as a share of backward and recomputation."""
    products = product_seconds(numbers, "backward", timing)
    whole = sum(gpu_seconds(numbers, phase, timing) for phase in ("backward", "recompute"))
    return float(products / 2 / whole) if whole else 0.0


def _shares(
    setup: Setup, stage: Stage, timing: Mapping[str, float], chunks: int
) -> tuple[list[tuple[str, str]], list[tuple[float, float]]]:
    """Units of one chunk (name, part of the network), and the share of each in forward and in backward."""
    layers = [block for block, count in stage.layers for _ in range(int(count))][::chunks]
    group = max(1, -(-len(layers) // MOST_UNITS))
    priced: dict[str, tuple[float, float]] = {}
    for block in layers:
        if block.name not in priced:
            priced[block.name] = _seconds(
                setup, replace(stage, embedding=None, head=None, layers=((block, 1),)), timing
            )
    names, found = [], []
    if stage.embedding is not None:
        names.append(("embedding", "embedding"))
        found.append(_seconds(setup, replace(stage, head=None, layers=()), timing))
    times = stage.layer_count / len(layers) if layers else 1.0
    for first in range(0, len(layers), group):
        last = min(first + group, len(layers))
        told = f"layer {first + 1}" if last == first + 1 else f"layers {first + 1}-{last}"
        names.append((f"{told} of {len(layers)}", "layers"))
        each = [priced[block.name] for block in layers[first:last]]
        found.append((sum(pair[0] for pair in each) * times, sum(pair[1] for pair in each) * times))
    if stage.head is not None:
        names.append(("head and loss", "head"))
        found.append(_seconds(setup, replace(stage, embedding=None, layers=()), timing))
    sums = [sum(pair[i] for pair in found) or 1.0 for i in (0, 1)]
    return names, [(pair[0] / sums[0], pair[1] / sums[1]) for pair in found]


def _seconds(setup: Setup, stage: Stage, timing: Mapping[str, float]) -> tuple[float, float]:
    """Forward and backward of what a stage holds, on the GPU alone."""
    sums = stage_compute(setup, stage).phases
    flat = {f"{phase}.{name}": getattr(sums[phase], name) for phase in PHASES for name in CLASSES}
    forward, backward = (float(gpu_seconds(flat, phase, timing)) for phase in ("forward", "backward"))
    return forward, backward


def _exchanges(
    names: Sequence[tuple[str, str]], parts: Mapping[str, float], flows: Mapping[str, Sequence[Priced]]
) -> list[dict[str, list[tuple[str, Flow, float]]]]:
    """Every unit's own exchanges: those of embedding, head and loss with them, the others shared by the layers."""
    found: list[dict[str, list[tuple[str, Flow, float]]]] = [{"forward": [], "backward": []} for _ in names]
    for part, key, _ in EXCHANGES:
        phases = ("forward", "backward")
        total = sum(seconds for phase in phases for _, seconds in flows[f"{key}_{phase}"])
        for phase in phases:
            for flow, seconds in flows[f"{key}_{phase}"]:
                where = "head" if "head" in flow.purpose or "loss" in flow.purpose else ""
                where = "embedding" if "embedding" in flow.purpose else where or "layers"
                mine = [i for i, (_, kind) in enumerate(names) if kind == where] or list(range(len(names)))
                for i in mine:
                    found[i][phase].append((key, flow, parts[part] * seconds / total / len(mine)))
    return found
