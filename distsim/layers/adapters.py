"""Low-rank adapters on frozen weights (Hu et al. 2021, LoRA, arXiv:2106.09685; Dettmers et al. 2023, arXiv:2305.14314).

A pass over the finished rows of a block: weights that are frozen keep no input for their gradient, adapters follow the
product they adapt, and quantised weights are unpacked before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from distsim.arrays import Number, maximum, where
from distsim.layers.adapted import ROW_PARALLEL, matrices_of
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
from distsim.layers.streams import UNSCALED
from distsim.specs.tuning import Tuning
from distsim.units import FP32_BYTES, MASK_BYTES

_PHASES: tuple[Literal["forward"], Literal["backward"]] = ("forward", "backward")
_READ_BY_LAYERS = (".rope_tables", "layer_inputs")
_ONE_INPUT_MORE = ".input_fp32"
_WEIGHT_GRADIENT_ONLY = (".normalised", UNSCALED, RATE_GRADIENT_ONLY)
"""What an eager norm, a scale or a scan keeps for the gradient of its weight alone."""


def tuned(ctx: Context, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The rows of a block as adapters on frozen weights have them; unchanged where everything trains."""
    tuning = ctx.tuning
    if tuning is None:
        return tuple(operations)
    found: list[Operation] = []
    for operation in operations:
        if _trains_whole(ctx, tuning, operation):
            found.append(_held(operation, "whole"))
            continue
        quantised = _quantised(ctx, tuning, operation)
        if quantised:
            found.append(_unpacked(ctx, tuning, operation))
        frozen, adapters = _frozen(ctx, operation, quantised), _adapters(ctx, tuning, operation)
        if _passed_by(ctx, operation):
            idle = parameters_of(adapters)
            found.append(replace(frozen, parameters=(*frozen.parameters, *idle)))
        else:
            found += [frozen, *adapters]
    return tuple(found)


def first_tuned(ctx: Context, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The rows of the first layer: up to its first adapter nothing needs a gradient, so nothing is kept for one."""
    if not ctx.model.parallel_blocks:
        return _silent_start(operations)
    split = next(index for index, one in enumerate(operations) if one.name.startswith("mlp."))
    return _silent_start(operations[:split]) + _silent_start(operations[split:])


def untrained(ctx: Context, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The rows of the embedding: silent where none of it trains, but for what all layers read. Under recomputation
    its output is made to need a gradient (peft), so that what follows the lookup keeps what it does elsewhere."""
    if ctx.tuning is None:
        return operations
    again = where(ctx.layout.recompute_layers != 0, 1, 0)
    tables = [
        tuple(t if t.name.endswith(_READ_BY_LAYERS) else t._replace(elements=t.elements * again) for t in one.saved)
        for one in operations
    ]
    return tuple(
        one if changed.backward else replace(changed, saved=kept)
        for one, changed, kept in zip(operations, _silent_start(operations), tables, strict=True)
    )  # fmt: skip


def _silent_start(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    start = next(
        (index for index, one in enumerate(operations) if any(p.trains for p in one.parameters)), len(operations)
    )
    return tuple(map(_silent, operations[:start])) + operations[start:]


def _silent(operation: Operation) -> Operation:
    forward = tuple(one for one in operation.collectives if one.phase == "forward")
    return replace(
        operation, backward=False, weight_gradient=False, flops_backward=0, saved=(), transient_backward=(),
        collectives=forward,
    )  # fmt: skip


def _trains_whole(ctx: Context, tuning: Tuning, operation: Operation) -> bool:
    if operation.kind == "norm":
        return tuning.trains("norms")
    tied = ctx.model.tied_embeddings and (tuning.trains("head") or tuning.trains("embedding"))
    if operation.name in ("embedding", "head"):
        return tied or tuning.trains(operation.name)
    return False


def _quantised(ctx: Context, tuning: Tuning, operation: Operation) -> bool:
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


def _held(operation: Operation, held: Held) -> Operation:
    return replace(operation, parameters=tuple(p._replace(held=held) for p in operation.parameters))


def _frozen(ctx: Context, operation: Operation, quantised: bool) -> Operation:
    """The row without what only the gradient of its weights needs."""
    saved, transit = operation.saved, operation.transient_backward
    forward = operation.transient_forward
    if operation.kind == "matmul":
        inputs = [tensor for tensor in saved if not tensor.weight_copy][:1]
        saved = tuple(t for t in saved if t not in inputs and not t.name.endswith(_ONE_INPUT_MORE))
        if quantised:
            copy = _plain_weight(ctx, operation)
            saved = tuple(tensor for tensor in saved if not tensor.weight_copy)
            transit, forward = (*transit, copy), (*forward, copy)
    elif operation.kind in ("norm", "scan", "elementwise"):
        saved = tuple(tensor for tensor in saved if not tensor.name.endswith(_WEIGHT_GRADIENT_ONLY))
    elif operation.kind == "embedding":
        saved = tuple(tensor for tensor in saved if tensor.name.endswith(".rope_tables"))
        transit = ()
    held: Held = "quantised" if quantised else "frozen"
    parameters = tuple(p._replace(held=held if p.kind == "matrix" else "frozen") for p in operation.parameters)
    product = operation.kind == "matmul"
    return replace(
        operation, saved=saved, transient_backward=transit, transient_forward=forward, parameters=parameters,
        flops_backward=operation.flops_forward if product else operation.flops_backward,
        weight_gradient=not product,
        collectives=tuple(one for one in operation.collectives if not _for_weight_gradient(one)),
    )  # fmt: skip


def _for_weight_gradient(one: Collective) -> bool:
    """Gathering a sharded input again: only the weight's gradient reads it."""
    return one.phase == "backward" and one.op == "all_gather" and one.overlaps == "input gradient"


def _plain_weight(ctx: Context, operation: Operation) -> Tensor:
    """The unpacked weight while its product runs, one separate matrix at a time."""
    weight = operation.parameters[0]
    whole = sum(weight.parts) if weight.parts else 1
    share = maximum(*weight.parts) / whole if weight.parts else 1 / weight.copies
    if weight.group == "expert":
        share = 1
    return Tensor(f"{operation.name}.unpacked", weight.elements * share, ctx.activation, "unpacked weight")


def _unpacked(ctx: Context, tuning: Tuning, operation: Operation) -> Operation:
    """Unpacking the weights of one row, in forward and again in backward."""
    assert tuning.quantization is not None
    elements = operation.parameters[0].elements
    moved = elements * (tuning.quantization.weight_bytes + tuning.quantization.unpack_bytes)
    return Operation(
        f"{operation.name}.unpack", "unpack", bytes_read=moved, bytes_written=elements * ctx.activation,
        shape=(elements,), weight_gradient=False,
    )  # fmt: skip


def _adapters(ctx: Context, tuning: Tuning, operation: Operation) -> list[Operation]:
    found: list[Operation] = []
    for label, letters, width in matrices_of(ctx, tuning, operation):
        if letters & tuning.targets:
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
    other side, by rank or by output width, whose parts are exchanged.
    """
    tokens, _, inner, _ = operation.shape
    row = operation.name in ROW_PARALLEL
    shards = ctx.layout.tp if operation.parameters[0].tensor_parallel else 1
    rank, across = tuning.rank, 1 - 1 / shards
    narrow, wide = (rank, width / shards) if row else (rank / shards, width)
    each = tuning.product_bytes
    name = f"{operation.name}.lora"
    hidden = Tensor(f"{name}_hidden{label}", tokens * rank, each, "s b r")
    exchanged = tokens * rank * each * (across > 0)
    down = _product(ctx, f"{name}_a{label}", tokens, inner, narrow, _inputs(ctx, tuning, operation, label), each,
                    (Collective("all_reduce", "tp", exchanged, "forward", bytes_each=each),) if row else
                    (Collective("all_gather", "tp", exchanged, "forward", bytes_each=each),
                     Collective("reduce_scatter", "tp", exchanged, "backward", bytes_each=each)))  # fmt: skip
    outputs = _outputs(ctx, tuning, tokens * width * each * (across > 0), shards) if row else ()
    up = _product(ctx, f"{name}_b{label}", tokens, rank, wide, [hidden], each, outputs)
    return [down, up, _added(ctx, tuning, f"{name}_add{label}", tokens, inner, width)]


def _outputs(ctx: Context, tuning: Tuning, size: Number, shards: Number) -> tuple[Collective, ...]:
    """How the parts of an output become shards of the sequence, and its gradient's the other way round."""
    each = tuning.product_bytes
    if not tuning.gathers_outputs:
        return tuple(Collective("all_to_all", "tp", size / shards, phase, bytes_each=each) for phase in _PHASES)
    back = size * ctx.layout.sequence_parallel
    return (Collective("all_gather", "tp", size, "forward", bytes_each=each),
            Collective("all_gather", "tp", back, "backward", bytes_each=each))  # fmt: skip


def _casts(ctx: Context, tuning: Tuning) -> bool:
    """Whether an adapter reads its own copy of its input in another number format."""
    return tuning.own_inputs and ctx.activation != FP32_BYTES


def _inputs(ctx: Context, tuning: Tuning, operation: Operation, label: str) -> list[Tensor]:
    """What the gradient of an adapter's first matrix needs: its input, its own copy or the product's."""
    tokens, _, inner, _ = operation.shape
    own = Tensor(f"{operation.name}.lora_input{label}", tokens * inner, tuning.product_bytes, "s b h")
    mask = own._replace(name=f"{operation.name}.lora_mask{label}", bytes_each=MASK_BYTES)
    if tuning.dropout:
        return [own, mask]
    kept = next((tensor for tensor in operation.saved if not tensor.weight_copy), None)
    if _casts(ctx, tuning) or kept is None:
        return [own]
    if ctx.kernels.regather_input and operation.name not in ROW_PARALLEL:  # the product itself kept its shard of it
        kept = kept._replace(name=f"{kept.name}_gathered", elements=tokens * inner)
    return [kept._replace(bytes_each=ctx.activation)]


def _product(
    ctx: Context,
    name: str,
    tokens: Number,
    inner: Number,
    outer: Number,
    inputs: list[Tensor],
    each: Number,
    collectives: tuple[Collective, ...],
) -> Operation:
    """One of an adapter's two matrix products."""
    weight = Parameter(f"{name}.weight", inner * outer, "matrix", inner, outer, held="adapter")
    saved = list(inputs)
    if ctx.tuning is not None and each < ctx.tuning.adapter.parameter_bytes:  # autocast keeps what it casts
        saved.append(Tensor(f"{name}.weight_cast", inner * outer, each, "cast weight", weight_copy=True))
    flops = 2 * tokens * inner * outer
    return Operation(
        name, "matmul", flops, 2 * flops, (tokens * inner + inner * outer) * each, tokens * outer * each,
        (tokens, outer, inner, 1), tuple(saved), Tensor(f"{name}.output", tokens * outer, each, "matmul output"),
        transient_backward=(
            Tensor(f"{name}.output_gradient", tokens * outer, each, "matmul output"),
            Tensor(f"{name}.input_gradient", tokens * inner, each, "matmul input"),
        ),
        parameters=(weight,), collectives=collectives,
    )  # fmt: skip


def _added(ctx: Context, tuning: Tuning, name: str, tokens: Number, inner: Number, width: Number) -> Operation:
    """Scaling and adding to the product's output; casting and dropping the input."""
    act, each = ctx.activation, tuning.product_bytes
    read = tokens * width * (2 * each + act)
    written = tokens * width * (each + act)
    if _casts(ctx, tuning):
        read = read + tokens * inner * (act if each == FP32_BYTES else act + FP32_BYTES)
        written = written + tokens * inner * (FP32_BYTES if each == FP32_BYTES else FP32_BYTES + each)
    if tuning.dropout:
        read, written = read + tokens * inner * each, written + tokens * inner * (each + MASK_BYTES)
    return Operation(name, "adapter", bytes_read=read, bytes_written=written, shape=(tokens * width,))
