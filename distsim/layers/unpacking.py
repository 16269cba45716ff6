"""Quantised weights: which rows have them, and unpacking these before their products."""

from __future__ import annotations

from distsim.arrays import maximum
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.specs.tuning import Tuning


def quantised(ctx: Context, tuning: Tuning, operation: Operation) -> bool:
    """Products of the layers but for routers, which are small and stay as they are, for distances, which go through
    another row's weights (DeBERTa), and for experts that are no linear layers where only those are quantised."""
    if tuning.quantization is None or operation.kind != "matmul" or operation.name.endswith((".router", ".gate")):
        return False
    if not operation.parameters:
        return False
    if operation.parameters[0].group == "expert":
        return tuning.takes_experts(ctx.kernels.expert_modules == "each")
    if operation.name.startswith(("embedding.", "head.")):
        return False
    return tuning.quantises_head if operation.name == "head" else True


def plain_weight(ctx: Context, operation: Operation) -> Tensor:
    """The unpacked weight while its product runs, one separate matrix at a time."""
    weight = operation.parameters[0]
    whole = sum(weight.parts) if weight.parts else 1
    share = maximum(*weight.parts) / whole if weight.parts else 1 / weight.copies
    if weight.group == "expert":
        share = 1
    return Tensor(f"{operation.name}.unpacked", weight.elements * share, ctx.activation, "unpacked weight")


def unpacked(ctx: Context, tuning: Tuning, operation: Operation) -> Operation:
    """Unpacking the weights of one row, in forward and again in backward."""
    assert tuning.quantization is not None
    elements = operation.parameters[0].elements
    moved = elements * (tuning.quantization.weight_bytes + tuning.quantization.unpack_bytes)
    return Operation(
        f"{operation.name}.unpack", "unpack", bytes_read=moved, bytes_written=elements * ctx.activation,
        shape=(elements,), weight_gradient=False,
    )  # fmt: skip
