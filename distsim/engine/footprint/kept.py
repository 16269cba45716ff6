"""Blocks that torch's caching allocator keeps because none that was free would do."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.arrays import Number, maximum, some, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.moment import STEP, Moment
from distsim.engine.footprint.states import States
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.buffers import beside_pool_bytes, list_gather_bytes, reused_bytes, unserved_bytes

SEVERAL = ("layer.copies",)
"""Rows of the ledger that stand for several tensors, not for one block."""


def kept_bytes(setup: Setup, stage: Stage, held: States, figures: Figures) -> Number:
    """Bytes that stay reserved after the first step beyond what later steps ask for.

    A block is free for what is no larger. Activations leave blocks as large as their tensors; the gradient of the
    embedding and the step's gather of parameters are larger, so the first backward pass and the first step reserve
    more. Optimizer states, which the first step makes, take blocks of activations, which the next forward pass then
    finds in what the gather has left: of the two the larger counts.
    """
    rules, layout, precision = setup.framework.buffers, setup.layout, setup.precision
    if not rules.step_gathers_lists:
        return 0
    layers, loss, others = _blocks(stage)
    table: Number = 0
    if stage.embedding is not None:
        table = sum(p.elements for p in stage.embedding.operations[0].parameters) * precision.parameter_bytes
    beyond = figures.use("gradient of the embedding", unserved_bytes, size_bytes=table,
                         largest_block_bytes=maximum(layers, loss))  # fmt: skip
    gathers = (layout.zero == 1) & (layout.zero_group > 1)
    if not some(gathers):
        return beyond
    elements = held.dense_parameters + held.expert_parameters
    gathered = figures.use(
        "blocks for the step's gather", list_gather_bytes, gathered_bytes=elements * precision.parameter_bytes,
        ranks=layout.zero_group, layer_block_bytes=layers, loss_block_bytes=loss, loss_blocks_bytes=loss + others,
        table_bytes=table,
    )  # fmt: skip
    made = held.optimizer - elements * precision.master_bytes / layout.zero_group
    taken = figures.use("of these, reused by optimizer states", reused_bytes, left_bytes=gathered, asked_bytes=made)
    return beyond + where(gathers, gathered - taken, 0)


def pool_bytes(setup: Setup, moments: Sequence[Moment], figures: Figures) -> Number:
    """What the optimizer's step makes beside the pool of a graph of forward and backward.

    The pool keeps the most that activations take, and serves nothing that runs outside of the graph, as the step does:
    of the two the smaller comes on top of the larger.
    """
    if setup.kernels.graphs != "iteration" or "iteration" not in setup.framework.supports.cuda_graphs:
        return 0
    passes = maximum(0, *(moment.activations for moment in moments if moment.name != STEP))
    steps = maximum(0, *(moment.activations for moment in moments if moment.name == STEP))
    words = "optimizer step outside the graph's pool"
    return figures.use(words, beside_pool_bytes, in_passes_bytes=passes, in_step_bytes=steps)


def _blocks(stage: Stage) -> tuple[Number, Number, Number]:
    """In bytes: the largest block that a layer's passes leave, what the loss keeps, and what it has in transit."""
    rows = [operation for block, _ in stage.layers for operation in block.operations]
    layer = maximum(0, *(
        tensor.size_bytes for row in rows for tensor in (*row.saved, *row.transient_backward)
        if tensor.name not in SEVERAL
    ))  # fmt: skip
    if stage.head is None:
        return layer, 0, 0
    loss = stage.head.operations[-1]
    return layer, *(sum(t.size_bytes for t in tensors) for tensors in (loss.saved, loss.transient_forward))
