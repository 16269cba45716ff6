"""What one micro-batch does on one stage: the composition's seconds, shared out by the ledger and the exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

from distsim.arrays import ceil_div
from distsim.engine.exchanges.flows import Flow
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stage_chunks import chunk_sizes
from distsim.engine.jobs.stages import Stage
from distsim.engine.kernels.compute import stage_compute
from distsim.engine.kernels.sums import CLASSES, PHASES
from distsim.engine.steps.beside import beside_products
from distsim.engine.steps.compose import EXCHANGES, MicroBatch, layout_numbers, sharded_seconds, waiting_seconds
from distsim.engine.steps.copies import free_seconds, loses_to_copies
from distsim.engine.steps.pass_exchanges import Priced, Seconds, copies_of, hidden_of, sends_of
from distsim.engine.steps.passes import Content, Unit
from distsim.engine.steps.stage_seconds import gpu_seconds, host_seconds
from distsim.engine.steps.weight_gradients import share_of, weight_seconds
from distsim.formulas.step import LEAST_SECONDS, paced_seconds

MOST_UNITS = 64
"""Embedding, layers (grouped where there are more) and head of one chunk."""
NONE: Seconds = (0.0, 0.0)  # of what a stage does not have


class Piece(NamedTuple):
    """What one of the chunks ``of`` a stage holds: blocks of layers by name, counted ``each`` times, and which part of
    the stage's embedding, head, and layers that is."""

    of: int
    layers: tuple[str, ...]
    each: float
    embedding: float
    head: float
    layers_share: float
    stands_for_all: bool = False
    """Whether it stands for all chunks, so that its kinds of layers only sample those of the stage."""


def pieces_of(setup: Setup, stage: Stage, chunks: int) -> tuple[Piece, ...]:
    """The chunks of a stage, each by itself; one that stands for all where the model's own are fewer or more, and for
    two copies of the model."""
    names = stage.names
    held = len(setup.chunk_layers) // setup.layout.pp
    if chunks == 1 or held != chunks or stage.mirror is not None:
        if chunks > 1:  # every kind in proportion
            names = tuple(block.name for block, count in stage.layers for _ in range(count))
        some, share = names[::chunks], 1 / chunks
        return (Piece(chunks, some, len(names) / len(some) * share if some else 0.0, share, share, share, True),)
    return each_piece(setup, stage)


def each_piece(setup: Setup, stage: Stage) -> tuple[Piece, ...]:
    """The chunks of a stage, each by itself: the first of a stage with its embedding, the last with its head."""
    names, sizes = stage.names, chunk_sizes(setup, stage.index)
    chunks = len(sizes)
    ends = list(accumulate(sizes, initial=0))
    return tuple(
        Piece(
            chunks, names[ends[i] : ends[i + 1]], 1.0, float(i == 0),
            float(i == chunks - 1), sizes[i] / len(names) if names else 1 / chunks,
        )
        for i in range(chunks)
    )  # fmt: skip


def content_of(
    setup: Setup, stage: Stage, numbers: Mapping[str, Any], batch: MicroBatch, timing: Mapping[str, float],
    flows: Mapping[str, Sequence[Priced]], priced: Mapping[str, Seconds], piece: Piece,
) -> Content:  # fmt: skip
    """What a micro-batch does on a ``piece`` of a stage: the composition's seconds (``batch``), shared out by the
    ledger; ``flows`` are the stage's exchanges by kind of traffic with their priced seconds per step, ``priced`` its
    blocks."""
    layout = setup.layout
    parts = {name: float(seconds) for name, seconds in batch.parts().items()}
    forward = float(batch.forward)
    weight = float(weight_seconds(numbers, batch, layout_numbers(setup), timing, share_of(setup, [stage])))
    names, shares = _shares(stage, priced, piece)
    exchanges = _exchanges(names, parts, batch, _queued(numbers, layout.micro_batches, timing, flows), piece)
    whole = _whole(names, timing, layout.micro_batches, flows, piece)
    units = tuple(
        Unit(name, forward * f, (parts["compute"] - forward) * b, parts["recompute"] * b, weight * b, exchanged,
             _left_of(all_of_them, exchanged))
        for (name, _), (f, b), exchanged, all_of_them in zip(names, shares, exchanges, whole, strict=True)
    )  # fmt: skip
    own = piece.layers_share
    parts = {name: seconds * own for name, seconds in parts.items()} | {
        "pipeline_transfer": parts["pipeline_transfer"] / piece.of
    }
    forward, m = forward * own, layout.micro_batches / own if own else float("inf")
    beside, waits = ([*map(float, of(numbers, m, timing))] for of in (sharded_seconds, waiting_seconds))
    backward = forward * float(batch.backward) / max(float(batch.forward), LEAST_SECONDS)
    gathers, reduces = hidden_of(parts["data_parallel"], beside, waits, (forward, backward), timing, flows)
    lost = timing["exposed_fraction"] * loses_to_copies(setup)
    moved = (gathers[0],), (gathers[1], reduces)
    passes = [
        float(free_seconds(computed, sum(one.exposed + one.hidden for one in some), sum(one.exposed for one in some),
                           numbers["one_link"]))
        for computed, some in zip((forward, backward), moved, strict=True)
    ]  # fmt: skip
    copies = copies_of(parts["offload"], numbers, m, passes, lost, flows)
    sends = sends_of(parts["pipeline_transfer"], flows)
    return Content(units, gathers, reduces, copies, sends, parts["other"], float(batch.trailing) * own)


def priced_blocks(setup: Setup, stage: Stage, timing: Mapping[str, float]) -> dict[str, Seconds]:
    """Forward and backward of a stage's ends and of each kind of its layers, whichever piece of it they are in."""
    bare = replace(stage, embedding=None, layers=(), order=(), head=None)
    return {
        "embedding": _seconds(setup, replace(bare, embedding=stage.embedding), timing) if stage.embedding else NONE,
        "head": _seconds(setup, replace(bare, head=stage.head), timing) if stage.head else NONE,
        **{block.name: _seconds(setup, stage.only(block), timing) for block, _ in stage.layers},
    }


def _shares(stage: Stage, priced: Mapping[str, Seconds], piece: Piece) -> tuple[list[tuple[str, str]], list[Seconds]]:
    """Units of a piece (name, part of the network), and the share of each in the stage's forward and backward."""
    names: list[tuple[str, str]] = []
    found: list[Seconds] = []
    if stage.embedding is not None and piece.embedding:
        names.append(("embedding", "embedding"))
        found.append(_times(priced["embedding"], piece.embedding))
    group = max(1, int(ceil_div(len(piece.layers), MOST_UNITS)))
    for first in range(0, len(piece.layers), group):
        last = min(first + group, len(piece.layers))
        told = f"layer {first + 1}" if last == first + 1 else f"layers {first + 1}-{last}"
        names.append((f"{told} of {len(piece.layers)}", "layers"))
        found.append(_times(_total(priced[name] for name in piece.layers[first:last]), piece.each))
    if stage.head is not None and piece.head:
        names.append(("head and loss", "head"))
        found.append(_times(priced["head"], piece.head))
    ends = priced["embedding"], priced["head"]
    whole = _total([*ends, *(_times(priced[block.name], int(count)) for block, count in stage.layers)])
    if piece.stands_for_all:
        whole = _times(_total(found), piece.of)
    return names, [(pair[0] / (whole[0] or 1.0), pair[1] / (whole[1] or 1.0)) for pair in found]


def _times(pair: Seconds, factor: float) -> Seconds:
    return pair[0] * factor, pair[1] * factor


def _total(pairs: Iterable[Seconds]) -> Seconds:
    listed = list(pairs)
    return sum(pair[0] for pair in listed), sum(pair[1] for pair in listed)


def chunk_shares(setup: Setup, stage: Stage, timing: Mapping[str, float]) -> list[Seconds]:
    """Which part of a stage's forward and backward each of its chunks does."""
    priced = priced_blocks(setup, stage, timing)
    return [_total(_shares(stage, priced, piece)[1]) for piece in each_piece(setup, stage)]


def _seconds(setup: Setup, stage: Stage, timing: Mapping[str, float]) -> Seconds:
    """Forward and backward of what a stage holds, on the GPU or on the host, whichever takes longer."""
    sums = stage_compute(setup, stage).phases
    flat = {f"{phase}.{name}": getattr(sums[phase], name) for phase in PHASES for name in CLASSES}
    forward, backward = (gpu_seconds(flat, phase, timing) for phase in ("forward", "backward"))
    hosts = host_seconds(flat, layout_numbers(setup), timing)
    return float(paced_seconds(forward, hosts[0])), float(paced_seconds(backward, hosts[1]))


Exchanged = dict[str, list[tuple[str, Flow, float]]]
"""A unit's exchanges by phase: stream, exchange, seconds."""


def _queued(
    numbers: Mapping[str, Any], micro_batches: float, timing: Mapping[str, float], flows: Mapping[str, Sequence[Priced]]
) -> dict[str, list[Priced]]:
    """Exposed traffic by kind, each in proportion; of exchanges that overlap products only the exposed part."""
    found = {f"{key}_{phase}": list(flows[f"{key}_{phase}"]) for _, key, _ in EXCHANGES for phase in PHASES[:2]}
    left = float(beside_products(numbers, {"micro_batches": micro_batches}, timing))
    whole = float(numbers["tp_beside"]) * timing["tensor_factor"] / micro_batches
    if left:
        found["tp_backward"] += [(flow, seconds * left / whole) for flow, seconds in flows["tp_beside"]]
    return found


def _exchanges(
    names: Sequence[tuple[str, str]], parts: Mapping[str, float], batch: MicroBatch,
    queued: Mapping[str, Sequence[Priced]], piece: Piece,
) -> list[Exchanged]:  # fmt: skip
    """What every unit waits for of its own exchanges."""
    found: list[Exchanged] = [{"forward": [], "backward": []} for _ in names]
    for part, key, _ in EXCHANGES:
        whole = float(sum(batch.queued[part])) or 1.0
        for phase, waits in zip(PHASES[:2], batch.queued[part], strict=True):
            own = queued[f"{key}_{phase}"]
            total = sum(seconds for _, seconds in own)
            for flow, seconds in own:
                waited = parts[part] * float(waits) / whole * seconds / (total or 1.0)
                for unit, share in _dealt(names, piece, flow):
                    found[unit][phase].append((key, flow, waited * share))
    return found


def _whole(
    names: Sequence[tuple[str, str]], timing: Mapping[str, float], micro_batches: float,
    flows: Mapping[str, Sequence[Priced]], piece: Piece,
) -> list[Exchanged]:  # fmt: skip
    """All of them, waited for or not, as they are priced and fitted."""
    found: list[Exchanged] = [{"forward": [], "backward": []} for _ in names]
    for _, key, factor in EXCHANGES:
        own = [priced for phase in PHASES[:2] for priced in flows[f"{key}_{phase}"]]
        for flow, seconds in [*own, *(flows["tp_beside"] if key == "tp" else ())]:
            for unit, share in _dealt(names, piece, flow):
                found[unit][flow.phase].append((key, flow, seconds * timing[factor] / micro_batches * share))
    return found


def _dealt(names: Sequence[tuple[str, str]], piece: Piece, flow: Flow) -> list[tuple[int, float]]:
    """Units that share an exchange, and how: those of embedding, head and loss have their own, layers all others."""
    shares = {"embedding": piece.embedding, "head": piece.head, "layers": piece.layers_share}
    mine = [i for i, (_, kind) in enumerate(names) if kind == flow.where] or list(range(len(names)))
    return [(i, shares[flow.where] / len(mine)) for i in mine] if shares[flow.where] else []


def _left_of(whole: Exchanged, waited: Exchanged) -> Exchanged:
    """Hidden seconds of a unit's exchanges: whole less waited for, each stream's in equal shares of its exchanges."""
    found: Exchanged = {}
    for phase, rows in whole.items():
        gone = {key: _of_stream(waited[phase], key) / (_of_stream(rows, key) or 1.0) for _, key, _ in EXCHANGES}
        found[phase] = [(key, flow, seconds * (1 - gone[key])) for key, flow, seconds in rows if gone[key] < 1]
    return found


def _of_stream(rows: Iterable[tuple[str, Flow, float]], stream: str) -> float:
    return sum(seconds for name, _, seconds in rows if name == stream)
