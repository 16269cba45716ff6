"""What keeps nothing because nothing before it trains: the start of a network whose weights are frozen."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.arrays import Number, some, where
from distsim.layers.ledger import Block, Context, Operation, Tensor
from distsim.layers.names import DORA_BASE, LORA_MASK

_READ_BY_LAYERS = (".rope_tables", "layer_inputs")


def started(ctx: Context, before: Sequence[Block], layers: list[Block]) -> list[Block]:
    """The layers of a first stage. Where nothing ``before`` them trains, backward ends at the first adapter, and layers
    before its own are silent. Where whole layers are computed again they are not: the input of the first is made to
    need a gradient for that (layouts agree in it, engine/layouts/space.py). Nor are those of a stage that trains
    nothing, as the next one sends it gradients all the same."""
    if any(map(trains, before)):
        return layers
    own = [index for index, block in enumerate(layers) if trains(block)]
    first = own[0] if own else len(layers) if ctx.layout.pp == 1 else 0
    if some(ctx.layout.recompute_layers != 0) or ctx.model.encoder_layers:
        first = 0
    still = {id(block): _silent_block(block) for block in layers[:first]}
    found = [still[id(block)] for block in layers[:first]] + layers[first:]
    if first in own[:1]:
        found[first] = layers[first]._replace(operations=first_tuned(ctx, layers[first].operations))
    return found


def trains(block: Block) -> bool:
    """Whether any parameter of a block does."""
    return any(parameter.trains for one in block.operations for parameter in one.parameters)


def _silent_block(block: Block) -> Block:
    boundary = block.boundary and block.boundary._replace(elements=0)
    return block._replace(operations=tuple(map(silent, block.operations)), boundary=boundary)


def first_tuned(ctx: Context, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The rows of the first layer: up to its first adapter nothing needs a gradient, so nothing is kept for one."""
    again = where(ctx.layout.recompute_layers != 0, 1, 0)
    if "norms-after" in ctx.kernels.order and operations[0].kind == "norm":
        return operations[:1] + silent_start(operations[1:], again)
    if not ctx.model.parallel_blocks:
        return silent_start(operations, again)
    split = next(index for index, one in enumerate(operations) if one.name.startswith("mlp."))
    return silent_start(operations[:split], again) + silent_start(operations[split:], again)


def untrained(ctx: Context, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The rows of the embedding: silent where none of it trains, but for what all layers read. Under recomputation
    its output is made to need a gradient (peft), so that what follows the lookup keeps what it does elsewhere."""
    again = where(ctx.layout.recompute_layers != 0, 1, 0)
    tables = [
        tuple(t if t.name.endswith(_READ_BY_LAYERS) else t._replace(elements=t.elements * again) for t in one.saved)
        for one in operations
    ]
    return tuple(
        one if changed.backward else changed._replace(saved=kept)
        for one, changed, kept in zip(operations, silent_start(operations, again), tables, strict=True)
    )  # fmt: skip


def silent_start(operations: tuple[Operation, ...], again: Number) -> tuple[Operation, ...]:
    """Rows before the first that trains keep nothing, nor does what its adapters do with an input that needs a gradient
    only ``again``: where it is made to have one."""
    start = next(
        (index for index, one in enumerate(operations) if any(p.trains for p in one.parameters)), len(operations)
    )
    adapted = operations[start].adapts if start < len(operations) else ""
    rest = (_without_input(one, again) if adapted and one.adapts == adapted else one for one in operations[start:])
    return (*map(silent, operations[:start]), *rest)


def _without_input(operation: Operation, again: Number) -> Operation:
    """An adapter's row without masks of its input, and without weights that only the input's gradient reads."""

    def kept(one: Tensor) -> bool:
        return LORA_MASK not in one.name and not (one.weight_copy and DORA_BASE in one.name)

    saved = tuple(one if kept(one) else one._replace(elements=one.elements * again) for one in operation.saved)
    return operation._replace(saved=saved)


def silent(operation: Operation) -> Operation:
    """A row before all that trains: forward alone, and nothing kept."""
    forward = tuple(one for one in operation.collectives if one.phase == "forward")
    return operation._replace(
        backward=False, weight_gradient=False, flops_backward=0, saved=(), transient_backward=(),
        collectives=forward,
    )  # fmt: skip
