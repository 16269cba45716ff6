"""How many layers are on each pipeline stage: as the user states it, else as the framework places them.

This is the one place that decides it; memory, traffic, time, search and replays all read ``Setup.chunk_layers``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from distsim.arrays import Number, ceil_div
from distsim.engine.timelines.schedule_shape import turns_back
from distsim.errors import DistsimError
from distsim.layers.ledger import flops_forward
from distsim.layers.network import (
    head_block,
    kinds_of_layers,
    layer_blocks,
    network_parameters,
    plain_context,
    tower_blocks,
)
from distsim.schedules.action import wave
from distsim.specs.framework import Framework
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.rules import divisors, listed
from distsim.specs.stage_layers import BALANCED, REST, counted

ELSEWHERE = "or --framework megatron-core, which places them unevenly; or --stage-layers with another framework"
Chunks = tuple[int, ...]


def chunk_layers(given: Sequence[int] | None, model: Model, layout: Layout, framework: Framework) -> Chunks:
    """Layers of each model chunk (pp * vpp of them, in model order): as stated, else as the framework places them.

    A chunk without layers is one that only holds the embedding or the head. Raises DistsimError where the framework
    cannot place the layers.
    """
    if given is not None:
        chunks = balanced(model, layout) if tuple(given) == BALANCED else _stated(counted(given), model, layout)
        if len(set(chunks)) > 1 and not framework.supports.uneven:
            raise DistsimError(
                f"{framework.name} puts equal layers in each of {len(chunks)} chunks, but --stage-layers does not",
                f"pp * vpp that divide {model.layers} layers: {listed(divisors(model.layers))}", ELSEWHERE,
            )  # fmt: skip
        return chunks
    if layout.vocab_parallel and framework.partition != "even" and layout.pp * layout.vpp <= model.layers:
        return spread(model.layers, layout.pp * layout.vpp)  # no stage has more of embedding and head than another
    return PLACES[framework.partition](model, layout.pp, layout.vpp)


def stage_sums(chunks: Sequence[int], pp: int, schedule: Number = "1f1b") -> Chunks:
    """Layers of each stage, which holds every pp-th chunk, or the arms of a V."""
    if len(chunks) > pp > 1 and turns_back(schedule):
        placed = list(zip(wave(pp, len(chunks) // pp), chunks, strict=True))
        return tuple(sum(count for place, count in placed if place == stage) for stage in range(pp))
    return tuple(sum(chunks[stage::pp]) for stage in range(pp))


def placement_note(
    given: Sequence[int] | None, chunks: Chunks, model: Model, layout: Layout, framework: Framework
) -> str:
    """Which stage has how many layers by a rule, where they are not all alike; nothing where their user said it."""
    if len(set(chunks)) == 1 or (given is not None and tuple(given) != BALANCED):
        return ""
    told = _runs(stage_sums(chunks, layout.pp, layout.schedule), "stage")
    if layout.vpp > 1:
        told = f"{_runs(chunks, 'chunk')}; {told}"
    if given is not None:
        return f"the {model.layers} layers, balanced by their FLOPs: {told}"
    return f"{framework.name} places the {model.layers} layers: {told}; --stage-layers changes that"


def _runs(counts: Sequence[int], part: str) -> str:
    """``4 on stages 0-14, 1 on stage 15``."""
    told, first = [], 0
    for count, same in groupby(counts):
        last = first + len(list(same)) - 1
        told.append(f"{count} on {part} {first}" if first == last else f"{count} on {part}s {first}-{last}")
        first = last + 1
    return ", ".join(told)


def _stated(given: Sequence[int], model: Model, layout: Layout) -> Chunks:
    pp, vpp = layout.pp, layout.vpp
    counts = _with_rest(given, model, pp)
    if len(counts) == pp and vpp > 1:
        return _over_chunks(counts, model, layout)
    if len(counts) != pp * vpp:
        raise DistsimError(
            f"--stage-layers names {len(counts)} stages, but pp {pp} * vpp {vpp} is {pp * vpp}",
            f"counts needed: {pp * vpp}, in model order" + (f", or {pp} for whole stages" if vpp > 1 else ""),
        )
    _check_sum(counts, model)
    return tuple(counts)


def _check_sum(counts: Sequence[int], model: Model) -> None:
    if sum(counts) != model.layers:
        raise DistsimError(f"--stage-layers adds up to {sum(counts)} layers, but {model.name} has {model.layers}")


def _with_rest(given: Sequence[int], model: Model, pp: int) -> list[int]:
    """Counts of all stages: those between the stated ones share what is left equally (Megatron-core's
    ``--decoder-first-pipeline-num-layers`` and ``--decoder-last-pipeline-num-layers``)."""
    if REST not in given:
        return list(given)
    at, between = list(given).index(REST), pp - (len(given) - 1)
    rest = model.layers - sum(given) + REST
    if between < 1 or rest < 0 or rest % between:
        raise DistsimError(
            f"--stage-layers leaves {rest} layers of {model.name} for {between} of {pp} stages to share equally",
            "name other counts, or those of all stages",
        )
    return [*given[:at], *[rest // between] * between, *given[at + 1 :]]


def _over_chunks(counts: Sequence[int], model: Model, layout: Layout) -> Chunks:
    """Chunks of stages whose layers are stated as a whole, as many in each, in model order: down the stages, and in a V
    back up."""
    _check_sum(counts, model)
    pp, vpp = layout.pp, layout.vpp
    odd = [count for count in counts if count % vpp]
    if odd:
        raise DistsimError(
            f"--stage-layers puts {odd[0]} layers on a stage, which its {vpp} chunks cannot share equally",
            f"give {len(counts) * vpp} numbers, one for each chunk in model order",
        )
    places = wave(pp, vpp) if turns_back(layout.schedule) else [*range(pp)] * vpp
    return tuple(counts[stage] // vpp for stage in places)


def even(model: Model, pp: int, vpp: int) -> Chunks:
    """As many layers in each chunk; others are refused."""
    layers, chunks = model.layers, pp * vpp
    if layers % chunks == 0:
        return (layers // chunks,) * chunks
    raise DistsimError(
        f"pp {pp} * vpp {vpp} = {chunks} chunks do not divide {layers} layers of {model.name}",
        f"pp * vpp that do: {listed(divisors(layers))}",
        ELSEWHERE,
    )


def spread(layers: int, chunks: int) -> Chunks:
    """Numbers that differ by one at most, the larger ones first."""
    return tuple(layers // chunks + (chunk < layers % chunks) for chunk in range(chunks))


def by_recipe(model: Model, pp: int, vpp: int) -> Chunks:
    """What users of Megatron-core do with layers that do not divide, in the order in which they try it; the first whose
    fullest stage holds at most one layer more than it has to.

    Embedding and loss stand for a layer each (``--account-for-embedding-in-pipeline-split``, ``…-loss-…``); or the loss
    alone; or all chunks are filled up, so that the last has what is left, and if nothing is, the first a part
    (``--pipeline-model-parallel-layout`` in Megatron-Bridge's recipes of DeepSeek-V3: 4*15,1 and Et|(tt|)*30mL).
    """
    layers, chunks = model.layers, pp * vpp
    if layers % chunks == 0:
        return even(model, pp, vpp)
    _refuse_more_than(layers + 2, model, pp, vpp)
    size = int(ceil_div(layers, chunks))
    first, last = min(size, layers - (chunks - 2) * size), max(0, layers - (chunks - 1) * size)
    found = [_account_for(layers, chunks, ends) for ends in ((1, 1), (0, 1)) if (layers + sum(ends)) % chunks == 0]
    if first >= 0:
        found.append((first, *[size] * (chunks - 2), last))
    if layers >= chunks:
        found.append(spread(layers, chunks))
    fullest = [max(stage_sums(one, pp)) for one in found]
    return next(one for one, most in zip(found, fullest, strict=True) if most <= min(fullest) + 1)


def _account_for(layers: int, chunks: int, ends: tuple[int, int]) -> Chunks:
    """Equal chunks, of which the outer ones hold something else instead of a layer."""
    size = (layers + sum(ends)) // chunks
    return (size - ends[0], *[size] * (chunks - 2), size - ends[1])


def _refuse_more_than(most: int, model: Model, pp: int, vpp: int) -> None:
    if pp * vpp > most:
        chunks = f" of {vpp} chunks" if vpp > 1 else ""
        raise DistsimError(
            f"{pp} pipeline stages{chunks} need more than the {model.layers} layers of {model.name}",
            f"pp * vpp may be at most {most}",
        )


def embedding_as_layer(model: Model, pp: int, vpp: int) -> Chunks:
    """Embedding and head count as one layer each, so the outer chunks hold one less (DeepSpeed's PipelineModule with
    partition_method "type:transformer|embedding", as BLOOM used it; torchtitan)."""
    if pp * vpp == 1:
        return (model.layers,)
    _refuse_more_than(model.layers + 2, model, pp, vpp)
    first, *rest = spread(model.layers + 2, pp * vpp)
    return (first - 1, *rest[:-1], rest[-1] - 1)


def even_else_embedding(model: Model, pp: int, vpp: int) -> Chunks:
    """Equal where layers divide, else with embedding and head as layers."""
    place = embedding_as_layer if model.layers % (pp * vpp) else even
    return place(model, pp, vpp)


def even_else_parameters(model: Model, pp: int, vpp: int) -> Chunks:
    """Equal where layers divide, else such that the largest chunk has the fewest parameters (DeepSpeed's PipelineModule
    with its default partition_method "parameters")."""
    chunks = pp * vpp
    if model.layers % chunks == 0:
        return even(model, pp, vpp)
    from distsim.engine.timelines.partition import split

    _refuse_more_than(model.layers + 2, model, pp, vpp)
    sizes = {
        part: float(sum(parameter.elements for parameter in parameters))
        for part, (parameters, _) in network_parameters(plain_context(model)).items()
    }
    layers = [sizes[kind] for kind in kinds_of_layers(model)]
    counts = list(split([sizes["embedding"], *layers, sizes["head"]], chunks).sizes)
    counts[0] -= 1
    counts[-1] -= 1
    return tuple(counts)


def by_compute(model: Model, pp: int, vpp: int = 1, closes_ties: bool = True) -> Chunks:
    """Chunks filled in model order: one ends with the block whose running share of all work passes its threshold.

    Work is counted in weights of matrix products; the output layer counts, the embedding does not
    (huggingface/nanotron, models/base.py, build_model; models/llama.py, get_block_compute_costs). With ``closes_ties``,
    as in its newer versions, it also ends with a block that just reaches it. More stages than blocks leave the last
    ones with nothing but the head or less.
    """
    chunks = pp * vpp
    width = model.heads * model.head_dim
    layer = 4 * width * model.hidden + (3 if model.gated else 2) * model.ffn * model.hidden
    costs: list[float] = [0, *[layer] * model.layers, 0, model.vocab * model.hidden]
    total = sum(costs)
    counts = [0] * chunks
    chunk, running = 0, 0.0
    for index, cost in enumerate(costs):
        running += cost
        counts[chunk] += 1 <= index <= model.layers
        threshold = total * (chunk + 1) / chunks
        if (running > threshold or (closes_ties and running == threshold)) and chunk < chunks - 1:
            chunk += 1
    return tuple(counts)


def balanced(model: Model, layout: Layout) -> Chunks:
    """The chunks whose slowest computes least: floating-point operations of layers, and of the output layer where the
    last stage holds it."""
    from distsim.engine.timelines.partition import split

    ctx = plain_context(model)._replace(layout=layout)
    costs = {kind: float(flops_forward(block.operations)) for kind, (block, _) in layer_blocks(ctx).items()}
    layers = [costs[kind] for kind in kinds_of_layers(model)]
    head = 0.0 if layout.vocab_parallel else float(flops_forward(head_block(ctx).operations))
    if (chunks := layout.pp * layout.vpp) > model.layers + 1:
        raise DistsimError(
            f"--stage-layers balanced cannot give each of {chunks} chunks (--pp {layout.pp} --vpp {layout.vpp}) one of "
            f"the {model.layers} layers of {model.name} or its output layer",
            f"use --pp and --vpp of at most {model.layers + 1} chunks together",
        )
    before = [float(sum(flops_forward(block.operations) for block in tower_blocks(ctx)))] if model.shown_tower else []
    first, *counts = split([*before, *layers, head], chunks).sizes
    counts = [first - len(before), *counts]
    return (*counts[:-1], counts[-1] - 1)


PLACES: dict[str, Callable[[Model, int, int], Chunks]] = {
    "even": even, "recipe": by_recipe, "compute": by_compute, "embedding-as-layer": embedding_as_layer,
    "even-else-embedding": even_else_embedding, "even-else-parameters": even_else_parameters,
}  # fmt: skip
