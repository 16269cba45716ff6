"""Inputs of products in 8 or 4 bits that several modules read: who keeps which copy until backward.

Two rows that name one tensor share its storage, which holds of activations in 16 bits. A quantised copy belongs to the
module that made it: two modules that read one tensor keep two (NVIDIA/TransformerEngine pytorch/module/linear.py, where
each saves what its own input_quantizer made). A pass over the finished rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from distsim.arrays import where
from distsim.layers.ledger import Context, Operation
from distsim.layers.names import OWN_INPUT, PROJECTION, SHARED_UP

SPARED = (PROJECTION, SHARED_UP)
"""Products that Megatron core tells to keep the 16-bit tensor that something else keeps anyway, core attention its
output and the router its input (core/transformer/attention.py, multi_latent_attention.py and moe/shared_experts.py,
set_save_original_input). Where attention is made again they count as what they quantise."""

JOINED = ("delta.project_scalars", "delta.decays_down", "delta.gate_down")
"""Products that one module makes with those before them (Megatron core ssm/gated_delta_net.py, in_proj)."""


def own_inputs(ctx: Context, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The rows of a block, each quantised copy under a name of its own."""
    operations, wide = _gathered(ctx, tuple(operations)), ctx.activation
    if ctx.kernels.quantised_inputs == "shared" or ctx.precision.kept_input_bytes >= wide:
        return operations
    passed = (*JOINED, *SPARED) if ctx.kernels.quantised_inputs == "spared" else JOINED
    taken = {tensor.name for one in operations for tensor in one.saved if tensor.bytes_each >= wide}
    found = []
    for one in operations:
        quantises = one.kind == "matmul" and one.saved != () and one.saved[0].bytes_each < wide
        if quantises and one.name not in passed:
            if one.saved[0].name in taken:
                one = _with_own(one)
            taken.add(one.saved[0].name)
        found.append(one)
    return tuple(found)


def _gathered(ctx: Context, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The rows with what products that follow a norm in one module keep of an input that ranks gather."""
    times, layout = ctx.precision.gathered_copies, ctx.layout
    if times == 1:
        return operations
    found = list(operations)
    for place, (before, one) in enumerate(pairwise(operations), 1):
        gathers = any(c.group == "tp" and c.op == "all_gather" and c.phase == "forward" for c in one.collectives)
        narrow = one.kind == "matmul" and one.saved != () and one.saved[0].bytes_each < ctx.activation
        if before.kind == "norm" and narrow and gathers:
            read, *rest = one.saved
            kept = read.elements * where(layout.tp > 1, 1 + (times - 1) * layout.sequence_parallel, 1)
            found[place] = one._replace(saved=(read._replace(elements=kept), *rest))
    return tuple(found)


def _with_own(operation: Operation) -> Operation:
    """A product that keeps a copy for itself of what another row keeps, too."""
    read, *rest = operation.saved
    own = read._replace(name=f"{operation.name}{OWN_INPUT}", copy_of=read.name)
    return operation._replace(saved=(own, *rest))
