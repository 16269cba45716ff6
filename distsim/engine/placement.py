"""How many layers each framework puts on each pipeline stage when nobody says so."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.specs.model import Model


def by_compute(model: Model, stages: int) -> tuple[int, ...]:
    """Stages filled in model order: one ends with the block whose running share of all work passes its threshold.

    Work is counted in weights of matrix products; the output layer counts, the embedding does not
    (huggingface/nanotron, trainer.py, build_model and get_block_compute_costs).
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
        if running > total * (stage + 1) / stages and stage < stages - 1:
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
