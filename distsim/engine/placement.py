"""How many layers each framework puts on each pipeline stage when nobody says so."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.errors import DistsimError
from distsim.specs.framework import Framework
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.rules import divisors, listed

MOST_PRINTED_STAGES = 32  # an uneven split of more stages is not spelled out in an error


def chunk_layers(given: Sequence[int] | None, model: Model, layout: Layout, framework: Framework) -> tuple[int, ...]:
    """Layers of each model chunk (pp * vpp of them, in model order): as stated, else as the framework places them.

    Raises DistsimError where layers do not divide and the framework would not accept that.
    """
    if given is not None:
        return _stated(given, model, layout)
    chunks = layout.pp * layout.vpp
    even = model.layers % chunks == 0
    place = PLACES.get(framework.partition)
    if place and layout.pp > 1 and layout.vpp == 1 and not (even and framework.partition == "even-else-embedding"):
        return place(model, chunks)
    if even:
        return tuple([model.layers // chunks] * chunks)
    for extra in (2, 1) if framework.partition in OUTER else ():
        if (model.layers + extra) % chunks == 0:
            whole = (model.layers + extra) // chunks
            return (whole - (extra == 2), *[whole] * (chunks - 2), whole - 1)
    raise _uneven(model, layout)


def _stated(given: Sequence[int], model: Model, layout: Layout) -> tuple[int, ...]:
    chunks = layout.pp * layout.vpp
    if len(given) != chunks:
        raise DistsimError(
            f"--stage-layers names {len(given)} stages, but pp {layout.pp} * vpp {layout.vpp} is {chunks}",
            f"give {chunks} numbers, in model order",
        )
    if sum(given) != model.layers:
        raise DistsimError(f"--stage-layers adds up to {sum(given)} layers, but {model.name} has {model.layers}")
    return tuple(given)


def _uneven(model: Model, layout: Layout) -> DistsimError:
    pp, vpp, layers = layout.pp, layout.vpp, model.layers
    chunks = pp * vpp
    split = [layers // chunks + (1 if chunk < layers % chunks else 0) for chunk in range(chunks)]
    return DistsimError(
        f"pp {pp} * vpp {vpp} = {chunks} chunks do not divide {layers} layers of {model.name}",
        f"pp * vpp that do: {listed(divisors(layers))}",
        f"or an uneven split: --stage-layers {','.join(map(str, split))}" if chunks <= MOST_PRINTED_STAGES else "",
    )


def by_compute(model: Model, stages: int, closes_ties: bool = False) -> tuple[int, ...]:
    """Stages filled in model order: one ends with the block whose running share of all work passes its threshold.

    Work is counted in weights of matrix products; the output layer counts, the embedding does not
    (huggingface/nanotron, models/base.py, build_model; models/llama.py, get_block_compute_costs). With ``closes_ties``
    it also ends with a block that just reaches it.
    """
    width = model.heads * model.head_dim
    layer = 4 * width * model.hidden + (3 if model.gated else 2) * model.ffn * model.hidden
    costs: list[float] = [0, *[layer] * model.layers, 0, model.vocab * model.hidden]
    total = sum(costs)
    counts = [0] * stages
    stage, running = 0, 0.0
    for index, cost in enumerate(costs):
        running += cost
        counts[stage] += 1 <= index <= model.layers
        threshold = total * (stage + 1) / stages
        if (running > threshold or (closes_ties and running == threshold)) and stage < stages - 1:
            stage += 1
    return tuple(counts)


def embedding_as_layer(model: Model, stages: int) -> tuple[int, ...]:
    """Embedding and head count as one layer each, so the outer stages hold one less (DeepSpeed's PipelineModule with
    partition_method "type:transformer|embedding", as BLOOM used it)."""
    return _uniform([0, *[1] * model.layers, 0], stages)


def _uniform(weights: Sequence[int], stages: int) -> tuple[int, ...]:
    """Equal runs of items, the first runs longer by one where they do not divide; counts the items that are layers."""
    size, more = divmod(len(weights), stages)
    ends = [0]
    for stage in range(stages):
        ends.append(ends[-1] + size + (stage < more))
    return tuple(sum(weights[ends[s] : ends[s + 1]]) for s in range(stages))


PLACES = {"compute": by_compute, "embedding-as-layer": embedding_as_layer, "even-else-embedding": embedding_as_layer}
OUTER = ("embedding-as-layer", "even-else-embedding", "outer-lighter")
