"""What pipeline stages send each other: activations, their gradients, the tied embedding's gradient, and a vocabulary
that all share."""

from __future__ import annotations

from collections.abc import Iterator

from distsim.arrays import Number, some
from distsim.engine.exchanges.flows import Flow, Span, dtype_name
from distsim.engine.jobs.boundary import boundary_bytes
from distsim.engine.jobs.predictions_apart import carried_along, stage_of_predictions
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stage_chunks import folded, head_stage
from distsim.engine.jobs.stages import Stage
from distsim.engine.networks.spread import pair_apart
from distsim.engine.timelines.schedule_shape import both_ways
from distsim.formulas.traffic import boundary_sends
from distsim.layers.mtp import SHARED_EMBEDDING
from distsim.layers.names import EMBEDDING_WEIGHT, HEAD_WEIGHT
from distsim.specs.layout import Layout
from distsim.units import FP32_BYTES, INDEX_BYTES

LOSS_REDUCTIONS = 3
"""Maximum, sum and the target's logit, a number each per token."""
SHAPE_BYTES = 3 * INDEX_BYTES
"""Of the shape that goes ahead of each message where not all are alike (NVIDIA/Megatron-LM
core/pipeline_parallel/p2p_communication.py, _communicate_shapes, with config.mtp_standalone)."""


def pipeline_flows(setup: Setup, stage: Stage) -> list[Flow]:
    """Sends of one rank of a stage. What it receives is its neighbours' sends."""
    layout, precision = setup.layout, setup.precision
    if layout.pp == 1:
        return []
    size = boundary_bytes(setup)
    dtype = dtype_name(precision.activation_bytes, precision)
    flows = [
        Flow(f"pipeline {what}", "send_recv", _pair(setup, stage.index, step), dtype, phase, calls, each, hides=True)
        for what, phase in (("activations", "forward"), ("gradients", "backward"))
        for step, calls, each in _messages(setup, stage.index, phase, size)
    ]
    if setup.mtp_chunk is not None:
        flows += [flow._replace(purpose="pipeline shapes", dtype="int64", bytes_logical=SHAPE_BYTES) for flow in flows]
    if setup.framework.traffic.scatter_gather:
        other = {"forward": "backward", "backward": "forward"}  # a stage gets as much as it sends the other way
        flows += [
            Flow("pipeline boundary, gathered", "all_gather", Span("tp", layout.tp, 1, world=layout.gpus), dtype, phase,
                 calls * (1 - layout.sequence_parallel), size * layout.tp)
            for phase in other
            for _, calls in _sends(setup, stage.index, other[phase])
        ]  # fmt: skip
    return flows + _tied_embedding(setup, stage) + _vocabulary(setup)


def _messages(setup: Setup, index: int, phase: str, size: Number) -> Iterator[tuple[int, Number, Number]]:
    """Messages of one phase with the bytes of each: of ``size``, but between multi-token prediction and the loss, where
    the modules' hidden states go along, and their gradients come back."""
    more = carried_along(setup, index if phase == "forward" else index - 1)
    wide = setup.layout.micro_batches if more else 0
    for step, calls in _sends(setup, index, phase):
        if not more:
            yield step, calls, size
            continue
        if setup.layout.vpp > 1:
            yield step, calls - wide, size
        yield step, wide, size * (1 + more)


def messages(setup: Setup, index: int) -> Number:
    """Messages of one rank of a stage to other stages for one micro-batch, both ways."""
    calls = (calls for phase in ("forward", "backward") for _, calls in _sends(setup, index, phase))
    return sum(calls) / setup.layout.micro_batches


def _sends(setup: Setup, index: int, phase: str) -> list[tuple[int, Number]]:
    """Messages of one phase to the next (1) and previous (-1) stage: forward goes on along the chunks, backward back.

    Around the ends where chunks are interleaved. Where they run down the stages and back up, every second one goes the
    other way, and none leaves the end at which they turn. Where two copies of the model run both ways, half of the
    micro-batches go each.
    """
    layout, ahead = setup.layout, 1 if phase == "forward" else -1
    end = {1: int(index == layout.pp - 1), -1: int(index == 0)}
    if both_ways(layout.schedule):
        return [(step, boundary_sends(layout.micro_batches / 2, layout.vpp, end[step])) for step in (ahead, -ahead)]
    if not folded(setup):
        return [(ahead, boundary_sends(layout.micro_batches, layout.vpp, end[ahead]))]
    arms = len(setup.chunk_layers) // layout.pp
    ways = ((ahead, arms - arms // 2), (-ahead, arms // 2))
    return [(step, boundary_sends(layout.micro_batches, count, count * end[step])) for step, count in ways]


def stages_span(layout: Layout) -> Span:
    """A rank and its likes on all stages, which lie behind each other."""
    return Span("pp", layout.pp, layout.model_parallel // layout.pp * layout.dp, world=layout.gpus)


def beyond(setup: Setup, index: int) -> tuple[bool, ...]:
    """Whether the next and the previous stage are on other nodes than a stage; where two copies of the model run both
    ways, its mirror too, and the same of that, half of whose work its ranks do."""
    cluster, stride = setup.cluster, stages_span(setup.layout).stride
    pairs = [(index, index + 1), (index, index - 1)]
    if both_ways(setup.layout.schedule):
        mirror = setup.layout.pp - 1 - index
        pairs += [(index, mirror), (mirror, mirror + 1), (mirror, mirror - 1)]
    return tuple(
        some(pair_apart(one * stride, other * stride, stride, cluster.domain, cluster.gpus_per_node))
        for one, other in pairs
    )


def shape_flows(setup: Setup) -> list[Flow]:
    """What goes ahead of the message over each link of ``hop_flows``, if anything does."""
    if setup.mtp_chunk is None:
        return []
    return [flow._replace(purpose="pipeline shapes", bytes_logical=SHAPE_BYTES) for flow in hop_flows(setup)]


def hop_flows(setup: Setup) -> list[Flow]:
    """A message over each link between stages: from each to the next, and where chunks go around, from the last to the
    first. Where hidden states of multi-token prediction go along behind a stage's last chunk, the mean of its chunks'
    messages."""
    pp, around = setup.layout.pp, setup.layout.vpp > 1 and not folded(setup)
    precision = setup.precision
    name, size = dtype_name(precision.activation_bytes, precision), boundary_bytes(setup)
    return [
        Flow("pipeline activations", "send_recv", _pair(setup, stage, 1), name, "forward", 1,
             size * (1 + carried_along(setup, stage) / setup.layout.vpp))
        for stage in range(pp if around and pp > 2 else pp - 1)
    ]  # fmt: skip


def _pair(setup: Setup, index: int, step: int) -> Span:
    """A rank and its like on the next or previous stage."""
    layout = setup.layout
    stride, other = stages_span(layout).stride, (index + step) % layout.pp
    return Span("pp", 2, stride, (index * stride, other * stride))


def _tied_embedding(setup: Setup, stage: Stage) -> list[Flow]:
    """The stages that hold the shared matrix add up its gradient: the first and the last (Narayanan et al. 2021), and
    one that has multi-token prediction apart from the loss; where copies of the model run both ways, the ranks of
    either have both ends, whose gradients go with those of both copies."""
    layout, precision = setup.layout, setup.precision
    holders = _embedding_holders(setup)
    if len(holders) == 1 or stage.index not in holders or stage.mirror is not None or layout.vocab_parallel:
        return []
    names = (EMBEDDING_WEIGHT, SHARED_EMBEDDING, *([HEAD_WEIGHT] if setup.model.tied_embeddings else []))
    size = sum(p.elements for p, _ in stage.parameters if p.name in names and p.trains)
    stride = stages_span(layout).stride
    name = dtype_name(precision.gradient_bytes, precision)
    span = Span("pp", len(holders), stride, (0, stride * holders[-1]))
    return [Flow("tied embedding gradient", "all_reduce", span, name, "step", 1, size * precision.gradient_bytes)]


def _embedding_holders(setup: Setup) -> list[int]:
    """Stages with a copy of the embedding (NVIDIA/Megatron-LM pretrain_gpt.py, get_embedding_ranks)."""
    tied, apart = setup.model.tied_embeddings, stage_of_predictions(setup)
    head = tied or (setup.model.mtp_trained > 0 and apart is None)
    return sorted({0, *([head_stage(setup)] if head else []), *([] if apart is None else [apart])})


def _vocabulary(setup: Setup) -> list[Flow]:
    """What a rank exchanges with its likes on all stages, once per micro-batch: the embedding's partial sums, the last
    layer's output for every stage's part of the logits, the loss's numbers, and the gradient of that output."""
    layout, precision = setup.layout, setup.precision
    if not layout.vocab_parallel:
        return []
    span = stages_span(layout)
    wide, calls = layout.tokens * setup.model.hidden * precision.activation_bytes, layout.micro_batches
    dtype = dtype_name(precision.activation_bytes, precision)
    hides = layout.vocab_parallel != "interlaced"
    numbers = layout.tokens * FP32_BYTES
    found = [
        Flow("vocabulary embedding", "all_reduce", span, dtype, "forward", calls, wide, hides),
        Flow("vocabulary head", "broadcast", span, dtype, "forward", calls, wide, hides),
        Flow("vocabulary loss", "all_reduce", span, "fp32", "forward", calls * LOSS_REDUCTIONS, numbers, hides),
        Flow("vocabulary head", "reduce", span, dtype, "backward", calls, wide, hides),
        Flow("vocabulary embedding", "broadcast", span, dtype, "backward", calls, wide, hides),
    ]
    return [flow._replace(role="vocabulary") for flow in found]
