"""What pipeline stages send each other: activations, their gradients, the tied embedding's gradient, and a vocabulary
that all share."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.exchanges.flows import Flow, Span, dtype_name
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, folded, head_stage
from distsim.formulas.traffic import boundary_sends, pipeline_boundary_bytes
from distsim.layers.ledger import parameters_of
from distsim.layers.mtp import SHARED_EMBEDDING
from distsim.units import FP32_BYTES

LOSS_REDUCTIONS = 3
"""Maximum, sum and the target's logit, a number each per token."""


def pipeline_flows(setup: Setup, stage: Stage) -> list[Flow]:
    """Sends of one rank of a stage. What it receives is its neighbours' sends."""
    y, precision = setup.layout, setup.precision
    if y.pp == 1:
        return []
    parts = where(y.sequence_parallel, y.tp, y.tp if setup.framework.traffic.scatter_gather else 1)
    size = pipeline_boundary_bytes(
        y.tokens, setup.model.hidden * setup.model.residual_streams, precision.activation_bytes, parts
    )
    dtype = dtype_name(precision.activation_bytes, precision)
    ends = _local_ends(setup, stage.index)
    flows = [
        Flow(f"pipeline {what}", "send_recv", _neighbours(setup, stage.index, step), dtype, phase,
             boundary_sends(y.micro_batches, y.vpp, ends[phase]), size, hides=True)
        for what, phase, step in (("activations", "forward", 1), ("gradients", "backward", -1))
    ]  # fmt: skip
    if setup.framework.traffic.scatter_gather:
        received = {"forward": ends["backward"], "backward": ends["forward"]}  # what one stage sends another gets
        flows += [
            Flow("pipeline boundary, gathered", "all_gather", Span("tp", y.tp, 1, world=y.gpus), dtype, phase,
                 boundary_sends(y.micro_batches, y.vpp, received[phase]) * (1 - y.sequence_parallel), size * y.tp)
            for phase in ("forward", "backward")
        ]  # fmt: skip
    return flows + _tied_embedding(setup, stage) + _vocabulary(setup)


def _local_ends(setup: Setup, index: int) -> dict[str, Number]:
    """Chunks of a stage that have no other stage after (forward) and before (backward) them: where the chunks turn back
    at either end, no message is needed."""
    pp = setup.layout.pp
    first, last = int(index == 0), int(index == pp - 1)
    if folded(setup):
        return {"forward": last + first, "backward": last + first}
    return {"forward": last, "backward": first}


def _neighbours(setup: Setup, index: int, step: int) -> Span:
    """The pair of a rank and its like on the next or previous stage (around the ends with interleaving)."""
    y = setup.layout
    stride = y.model_parallel // y.pp * y.dp
    other = (index + step) % y.pp
    return Span("pp", 2, stride, (index * stride, other * stride))


def _tied_embedding(setup: Setup, stage: Stage) -> list[Flow]:
    """First and last stage each hold the shared matrix and add up its gradient (Narayanan et al. 2021)."""
    y, precision, tied = setup.layout, setup.precision, setup.model.tied_embeddings
    apart = stage.index in (0, y.pp - 1) and head_stage(setup) != 0 and not y.vocab_parallel
    if not (apart and (tied or setup.model.mtp_trained)):
        return []
    block = stage.embedding if stage.embedding is not None else stage.head
    assert block is not None
    copy = "head.weight" if tied else SHARED_EMBEDDING
    shared = [p for p in parameters_of(block.operations) if p.name in ("embedding.weight", copy)]
    size = sum(p.elements for p in shared if p.trains)
    stride = y.model_parallel // y.pp * y.dp
    name = dtype_name(precision.gradient_bytes, precision)
    span = Span("pp", 2, stride, (0, stride * (y.pp - 1)))
    return [Flow("tied embedding gradient", "all_reduce", span, name, "step", 1, size * precision.gradient_bytes)]


def _vocabulary(setup: Setup) -> list[Flow]:
    """What a rank exchanges with its likes on all stages, once per micro-batch: the embedding's partial sums, the last
    layer's output for every stage's part of the logits, the loss's numbers, and the gradient of that output."""
    y, precision = setup.layout, setup.precision
    if not y.vocab_parallel:
        return []
    span = Span("pp", y.pp, y.model_parallel // y.pp * y.dp, world=y.gpus)
    wide, calls = y.tokens * setup.model.hidden * precision.activation_bytes, y.micro_batches
    dtype = dtype_name(precision.activation_bytes, precision)
    hides = y.vocab_parallel != "interlaced"
    numbers = y.tokens * FP32_BYTES
    return [
        Flow("vocabulary embedding", "all_reduce", span, dtype, "forward", calls, wide, hides),
        Flow("vocabulary head", "broadcast", span, dtype, "forward", calls, wide, hides),
        Flow("vocabulary loss", "all_reduce", span, "fp32", "forward", calls * LOSS_REDUCTIONS, numbers, hides),
        Flow("vocabulary head", "reduce", span, dtype, "backward", calls, wide, hides),
        Flow("vocabulary embedding", "broadcast", span, dtype, "backward", calls, wide, hides),
    ]
