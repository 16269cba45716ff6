"""Low-rank adapters on frozen weights (Hu et al. 2021, LoRA, arXiv:2106.09685; Dettmers et al. 2023, arXiv:2305.14314).

A pass over the finished rows of a block: weights that are frozen keep no input for their gradient, adapters follow the
product they adapt, and quantised weights are unpacked before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from distsim.arrays import Number, where
from distsim.layers.adapted import ROW_PARALLEL, is_folded, matrices_of
from distsim.layers.folded import folded
from distsim.layers.ledger import (
    RATE_GRADIENT_ONLY,
    Collective,
    Context,
    Held,
    Operation,
    Parameter,
    Tensor,
    parameters_of,
)
from distsim.layers.linear import Size, product_row, weight_cast
from distsim.layers.names import DROPOUT_MASK, EXPERTS, HEAD, LORA_MASK, MLP_DOWN, MLP_PRODUCT, MLP_UP, ROUTER
from distsim.layers.streams import UNSCALED
from distsim.layers.unpacking import plain_weight, quantised, unpacked
from distsim.specs.tuning import Tuning
from distsim.units import FP32_BYTES, MASK_BYTES

_PHASES: tuple[Literal["forward"], Literal["backward"]] = ("forward", "backward")
_MLP = frozenset(("gate", "up", "down"))
_ONE_INPUT_MORE = ".input_fp32"
_WEIGHT_GRADIENT_ONLY = (".normalised", UNSCALED, RATE_GRADIENT_ONLY)
"""What an eager norm, a scale or a scan keeps for the gradient of its weight alone."""


def tuned(ctx: Context, tuning: Tuning, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The rows of a block as adapters on frozen weights have them."""
    found: list[Operation] = []
    for operation in operations:
        if _trains_whole(ctx, tuning, operation):
            second = tuning.unties and operation.name == HEAD
            found.append(_held(operation, "apart" if second else "whole"))
            continue
        packed = quantised(ctx, tuning, operation)
        if packed:
            found.append(unpacked(ctx, tuning, operation))
        if is_folded(tuning, operation):
            found += folded(ctx, tuning, operation, packed)
            continue
        frozen, adapters = frozen_row(ctx, operation, packed), _adapters(ctx, tuning, operation)
        if _passed_by(ctx, operation):
            idle = parameters_of(adapters)
            found.append(frozen._replace(parameters=(*frozen.parameters, *idle)))
        else:
            found += [frozen, *adapters]
    return tuple(_as_function(tuning, row) for row in found) if _in_one_function(ctx, tuning) else tuple(found)


def _in_one_function(ctx: Context, tuning: Tuning) -> bool:
    """Whether the MLP and its adapters are one function: for a gated one without biases, all three of whose products
    have an adapter that drops nothing (unslothai/unsloth models/llama.py, patch_peft_model)."""
    plain = ctx.model.gated and not (ctx.model.mlp_bias or ctx.model.mlp_output_bias)
    return tuning.mlp != "modules" and plain and not tuning.dropout and not tuning.dora and tuning.targets >= _MLP


def _as_function(tuning: Tuning, operation: Operation) -> Operation:
    """A row as the function runs it: what its last product reads is not kept but made again, and that and the gradients
    of gate and up are there until its first products have run backward."""
    if operation.adapts == MLP_DOWN:
        return operation._replace(saved=tuple(one for one in operation.saved if one.name != MLP_PRODUCT))
    if operation.name != MLP_UP:
        return operation
    factors, own, *copies = operation.transient_backward
    again = factors._replace(name=MLP_PRODUCT, elements=factors.elements / 2)
    second = (own._replace(name=f"{MLP_UP}.second_gradient"),) if tuning.mlp == "adding function" else ()
    return operation._replace(transient_backward=(factors, own, *copies, again, *second))


def _trains_whole(ctx: Context, tuning: Tuning, operation: Operation) -> bool:
    if operation.kind == "norm":
        return tuning.trains("norms")
    tied = ctx.model.tied_embeddings and (tuning.trains("head") or tuning.trains("embedding"))
    if operation.name in ("embedding", "head"):
        return tied or tuning.trains(operation.name)
    return False


def _held(operation: Operation, held: Held) -> Operation:
    return operation._replace(parameters=tuple(p._replace(held=held) for p in operation.parameters))


def frozen_row(ctx: Context, operation: Operation, packed: bool = False) -> Operation:
    """The row without what only the gradient of its weights needs."""
    saved, transit = operation.saved, operation.transient_backward
    forward = operation.transient_forward
    if operation.kind == "matmul":
        inputs = [] if _keeps_input(ctx, operation) else [tensor for tensor in saved if not tensor.weight_copy][:1]
        saved = tuple(t for t in saved if t not in inputs and not t.name.endswith(_ONE_INPUT_MORE))
        if packed:
            copy = plain_weight(ctx, operation)
            saved = tuple(tensor for tensor in saved if not tensor.weight_copy)
            transit, forward = (*transit, copy), (*forward, copy)
        saved += _head_cast(ctx, operation)
    elif operation.kind in ("norm", "scan", "elementwise"):
        saved = tuple(tensor for tensor in saved if not tensor.name.endswith(_WEIGHT_GRADIENT_ONLY))
    elif operation.kind == "embedding":
        saved = tuple(again for tensor in saved for again in _of_lookup(ctx, tensor))
        transit = ()
    held: Held = "quantised" if packed else "frozen"
    parameters = tuple(p._replace(held=held if p.kind == "matrix" else "frozen") for p in operation.parameters)
    product = operation.kind == "matmul"
    return operation._replace(
        saved=saved, transient_backward=transit, transient_forward=forward, parameters=parameters,
        flops_backward=operation.flops_forward if product else operation.flops_backward,
        weight_gradient=not product,
        collectives=tuple(one for one in operation.collectives if not _for_weight_gradient(one)),
    )  # fmt: skip


def _keeps_input(ctx: Context, operation: Operation) -> bool:
    """Whether a product keeps its input even if nothing reads it again (``kernels.router_keeps_input``)."""
    return operation.name == ROUTER and ctx.kernels.router_keeps_input


def _of_lookup(ctx: Context, tensor: Tensor) -> tuple[Tensor, ...]:
    """What a frozen lookup keeps: what layers read, and masks of dropout where its output is made to have a gradient,
    so that layers can be computed again (transformers, enable_input_require_grads)."""
    if tensor.name.endswith(".rope_tables"):
        return (tensor,)
    if not ctx.kernels.recompute_given or not tensor.name.endswith(DROPOUT_MASK):
        return ()
    return (tensor._replace(elements=tensor.elements * where(ctx.layout.recompute_layers != 0, 1, 0)),)


def _head_cast(ctx: Context, operation: Operation) -> tuple[Tensor, ...]:
    """An output layer that was made fp32 beside quantised weights: autocast keeps what it casts until backward, whether
    the matrix is the layer's own or the embedding's. ZeRO 3 gathers it narrow."""
    tuning, layout = ctx.tuning, ctx.layout
    if tuning is None or not tuning.others_fp32 or operation.name != HEAD or ctx.precision.autocast:
        return ()
    if tuning.product_bytes >= FP32_BYTES:
        return ()
    whole = where(layout.zero >= 3, where(layout.zero_group > 1, 0, 1), 1)
    _, outer, inner, _ = operation.shape
    return (Tensor("head.weight_cast", outer * inner * whole, ctx.activation, "cast weight", weight_copy=True),)


def _for_weight_gradient(one: Collective) -> bool:
    """Gathering a sharded input again: only the weight's gradient reads it."""
    return one.phase == "backward" and one.op == "all_gather" and one.overlaps == "input gradient"


def _adapters(ctx: Context, tuning: Tuning, operation: Operation) -> list[Operation]:
    found: list[Operation] = []
    wanted = tuning.experts.targets if operation.name in EXPERTS else tuning.targets
    for label, letters, width in matrices_of(ctx, tuning, operation):
        if letters & wanted:
            found += _adapter(ctx, tuning, operation, label, width)
    return found


def _passed_by(ctx: Context, operation: Operation) -> bool:
    """Whether a scan's kernel reads the weights of a product by itself: adapters on it are there, and idle."""
    mixer = ctx.model.mamba
    if mixer is None or mixer.inner_norms or not ctx.kernels.scan_projects:
        return False
    if mixer.step_rank and ctx.layout.attention != "flash":
        return False
    return operation.name in ("mamba.project_state", "mamba.project_step", "mamba.project_out")


def _adapter(ctx: Context, tuning: Tuning, operation: Operation, label: str, width: Number) -> list[Operation]:
    """Down to the rank, up to the output's width, and added to it.

    Under tensor parallelism (Megatron) both matrices are sharded like the product's own input or output and, on the
    other side, by rank or by output width, whose parts are exchanged. Behind a product whose output is scattered over
    the sequence the adapter's is, too, before it is scaled and added (Megatron-Bridge peft/utils.py,
    ParallelLinearAdapter), but for experts'. Each expert has its own, or all of a rank share one.
    """
    each_tokens, _, inner, copies = operation.shape
    tokens, row, adapted = each_tokens * copies, operation.name in ROW_PARALLEL, operation.parameters[0]
    over: Literal["tp", "etp"] = "etp" if adapted.group == "expert" else "tp"
    shards = getattr(ctx.layout, over) if adapted.tensor_parallel else 1
    alike = 1 if tuning.experts.how == "shared" else copies
    rank, across = tuning.rank, 1 - 1 / shards
    narrow, wide = (rank, width / shards) if row else (rank / shards, width)
    each = tuning.product_bytes
    name = f"{operation.name}.lora"
    hidden = Tensor(f"{name}_hidden{label}", tokens * rank, each, "s b r")
    exchanged = tokens * rank * each * (across > 0)
    exchanges = (
        (Collective("all_reduce", over, exchanged, "forward", bytes_each=each),)
        if row else
        (Collective("all_gather", over, exchanged, "forward", bytes_each=each),
         Collective("reduce_scatter", over, exchanged, "backward", bytes_each=each))
    )  # fmt: skip
    outputs = _outputs(ctx, tuning, tokens * width * each * (across > 0), shards, over) if row else ()
    read = _inputs(ctx, tuning, operation, label)
    down = _product(tuning, f"{name}_a{label}", Size(tokens, inner, narrow, alike), read, adapted, exchanges)
    up = _product(tuning, f"{name}_b{label}", Size(tokens, rank, wide, alike), [hidden], adapted, outputs)
    parts = 1 + (shards - 1) * ctx.layout.sequence_parallel if row and adapted.group == "dense" else 1
    rows = [down, up, _added(ctx, tuning, f"{name}_add{label}", Size(tokens, inner, width / parts))]
    if tuning.dora:
        from distsim.layers.dora import magnitudes

        rows[2:2] = magnitudes(ctx, tuning, operation, label, Size(tokens, inner, wide))
    return [row._replace(adapts=operation.name) for row in rows]


def _outputs(
    ctx: Context, tuning: Tuning, size: Number, shards: Number, over: Literal["tp", "etp"]
) -> tuple[Collective, ...]:
    """How the parts of an output become shards of the sequence, and its gradient's the other way round."""
    each = tuning.product_bytes
    if not tuning.gathers_outputs:
        return tuple(Collective("all_to_all", over, size / shards, phase, bytes_each=each) for phase in _PHASES)
    back = size * ctx.layout.sequence_parallel
    return (Collective("all_gather", over, size, "forward", bytes_each=each),
            Collective("all_gather", over, back, "backward", bytes_each=each))  # fmt: skip


def _casts(ctx: Context, tuning: Tuning) -> bool:
    """Whether an adapter reads its own copy of its input in another number format."""
    return tuning.own_inputs and ctx.activation != FP32_BYTES


def _inputs(ctx: Context, tuning: Tuning, operation: Operation, label: str) -> list[Tensor]:
    """What the gradient of an adapter's first matrix needs: its input, its own copy or the product's."""
    tokens, inner = operation.shape[0] * operation.shape[3], operation.shape[2]
    own = Tensor(f"{operation.name}.lora_input{label}", tokens * inner, tuning.product_bytes, "s b h")
    mask = own._replace(name=f"{operation.name}{LORA_MASK}{label}", bytes_each=MASK_BYTES)
    if tuning.dropout:
        return [own, mask]
    kept = next((tensor for tensor in operation.saved if not tensor.weight_copy), None)
    if _casts(ctx, tuning) or kept is None:
        return [own]
    if ctx.kernels.regather_input and operation.name not in (
        *ROW_PARALLEL,
        *EXPERTS,
    ):  # the product itself kept its shard of it
        kept = kept._replace(name=f"{kept.name}_gathered", elements=tokens * inner)
    return [kept._replace(bytes_each=ctx.activation)]


def _product(
    tuning: Tuning,
    name: str,
    size: Size,
    inputs: list[Tensor],
    adapted: Parameter,
    collectives: tuple[Collective, ...],
) -> Operation:
    """One of an adapter's two matrix products, whose weight ranks share or all hold as they do the ``adapted`` one."""
    each = tuning.product_bytes
    weight = Parameter(
        f"{name}.weight", size.elements, "matrix", size.inner, size.outer, size.copies, adapted.group,
        tensor_parallel=adapted.tensor_parallel, held="adapter",
    )  # fmt: skip
    casts = each < tuning.adapter.parameter_bytes  # autocast keeps what it casts
    saved = [*inputs, weight_cast(name, size, each)] if casts else inputs
    return product_row(name, size, each, saved, (weight,), collectives)


def _added(ctx: Context, tuning: Tuning, name: str, size: Size) -> Operation:
    """Scaling and adding to the product's output; casting and dropping the input."""
    act, each = ctx.activation, tuning.product_bytes
    tokens, inner, width = size.tokens, size.inner, size.outer
    read = tokens * width * (2 * each + act)
    written = tokens * width * (each + act)
    if _casts(ctx, tuning):
        read = read + tokens * inner * (act if each == FP32_BYTES else act + FP32_BYTES)
        written = written + tokens * inner * (FP32_BYTES if each == FP32_BYTES else FP32_BYTES + each)
    if tuning.dropout:
        read, written = read + tokens * inner * each, written + tokens * inner * (each + MASK_BYTES)
    return Operation(name, "adapter", bytes_read=read, bytes_written=written, shape=(tokens * width,))
