"""Adapters of weights that no module multiplies with: folded into the weights before these are used.

transformers 5 holds all experts of a layer as two tensors, and a router's weights as one. peft 0.21 adapts such a
tensor W of E matrices by two more, A and B, and for each forward pass makes W + scale B A, which the module then reads
in W's place (tuners/lora/layer.py, ParamWrapper and its baddbmm). So backward needs the gradient of the whole sum, as
if W trained, before it gets that of A and B.
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Context, Held, Operation, Parameter, Tensor
from distsim.layers.names import ROUTER
from distsim.specs.tuning import Tuning


def folded(ctx: Context, tuning: Tuning, operation: Operation, quantised: bool) -> list[Operation]:
    """Making the sum, and the row that multiplies with it; the frozen weights stay beside it."""
    weights = [one for one in operation.parameters if one.kind == "matrix"]
    _, outer, inner, _ = operation.shape
    copies = 1 if operation.name == ROUTER else sum(one.copies for one in weights)
    rank = tuning.experts.up_rank if operation.name.endswith("experts.up") else tuning.rank
    matrices = [
        Parameter(f"{operation.name}.lora_{which}.weight", rank * width * copies, "matrix", width, rank * copies,
                  group=weights[0].group, held="adapter")
        for which, width in (("a", inner), ("b", outer))
    ]  # fmt: skip
    return [*_fold(ctx, tuning, operation.name, matrices, (outer, inner, rank, copies)),
            _reading(ctx, operation, inner * outer * copies, quantised)]  # fmt: skip


def _fold(
    ctx: Context, tuning: Tuning, name: str, matrices: list[Parameter], shape: tuple[Number, ...]
) -> list[Operation]:
    """The casts of both matrices to the weights' format, and the product that is added to the weights."""
    outer, inner, rank, copies = shape
    act, size = ctx.activation, sum(one.elements for one in matrices)
    each, whole = tuning.adapter.parameter_bytes, inner * outer * copies
    kept = tuple(Tensor(f"{one.name}_cast", one.elements, act, "E r h") for one in matrices if each != act)
    casts = Operation(
        f"{name}.lora_cast", "adapter", bytes_read=size * each + whole * act, bytes_written=size * act,
        shape=(size,), saved=kept, parameters=tuple(matrices), adapts=name,
    )  # fmt: skip
    flops = 2 * whole * rank
    fold = Operation(f"{name}.lora_fold", "matmul", flops, 2 * flops, size * act, whole * act, shape)
    return [casts, fold]


def _reading(ctx: Context, operation: Operation, elements: Number, quantised: bool) -> Operation:
    """The row as it is where its weights train, with the sum that it keeps in their place."""
    act = ctx.activation
    held: Held = "quantised" if quantised else "frozen"
    whole = Tensor(f"{operation.name}.folded", elements, act, "E f h")
    wide = whole._replace(bytes_each=act if quantised else max(act, ctx.precision.parameter_bytes))
    saved = tuple(tensor for tensor in operation.saved if not tensor.weight_copy)
    return operation._replace(
        saved=(*saved, whole),
        transient_forward=(*operation.transient_forward, wide._replace(name=f"{operation.name}.plain")),
        transient_backward=(*operation.transient_backward, wide._replace(name=f"{operation.name}.folded_gradient")),
        parameters=tuple(p._replace(held=held if p.kind == "matrix" else "frozen") for p in operation.parameters),
    )  # fmt: skip
