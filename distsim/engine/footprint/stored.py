"""A stage's parameters as a framework stores them: tensors with their first dimension, in units that move together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from distsim.arrays import Number, round_up, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.traffic import padded_elements
from distsim.last import for_equal, for_last, for_same
from distsim.layers.ledger import FIXED, Block, Operation, Parameter
from distsim.layers.names import NORM, RESIDUAL, ROUTER, SHARED, SHARED_GATE
from distsim.layers.network import has_backward


class Stored(NamedTuple):
    """One tensor on one rank before data parallelism shards it; ``rows`` is dimension 0, of experts their number, and
    ``inner`` the dimension after it."""

    name: str
    elements: Number
    rows: Number
    columns: Number
    group: str
    matrix: bool
    held: str = "trained"
    inner: Number = 0

    @property
    def trains(self) -> bool:
        """Whether it has a gradient."""
        return self.held not in FIXED


class Unit(NamedTuple):
    """Tensors that are gathered and reduced together, and how many such units there are."""

    name: str
    tensors: tuple[Stored, ...]
    count: Number
    root: bool = False
    """Whether it is what belongs to no layer: embedding, final norm and head."""
    backward: bool = True
    """Whether gradients pass through it; not through frozen layers before all that trains."""
    gathers: tuple[Number, Number] = (1, 1)
    """How often a forward and a backward gather it that drop it in between."""
    dropped: bool = False
    """Whether forward drops it though it belongs to no layer."""
    again: Number = 0
    """How many of them backward gathers once more for what is frozen of them (``Traffic.frozen_again``)."""


def _tensors(parameter: Parameter) -> list[Stored]:
    """A parameter's tensors: weights are stored output first, experts stacked, embeddings by token."""
    name, group = parameter.name, parameter.group
    if group == "expert":
        width, matrix = parameter.elements / parameter.copies, parameter.kind == "matrix"
        inner = parameter.columns if matrix else width
        return [Stored(name, parameter.elements, parameter.copies, width, group, matrix, inner=inner)]
    if parameter.kind == "embedding":
        return [Stored(name, parameter.elements, parameter.rows, parameter.columns, group, True)]
    copies = int(parameter.copies) if isinstance(parameter.copies, (int, float)) else 1
    if parameter.kind == "matrix":
        widths = parameter.parts or (parameter.columns,) * copies
        return [Stored(name, parameter.rows * width, width, parameter.rows, group, True) for width in widths]
    sizes = parameter.parts or (parameter.elements / copies,) * copies
    return [Stored(name, size, size, 1, group, False) for size in sizes]


def shared_elements(setup: Setup, parameter: Parameter, ranks: Number) -> Number:
    """Elements of a parameter as so many ranks share it: with what fills each of its tensors up (FSDP2)."""
    filling = filling_of(setup)
    if filling.padding != "parameter":
        return parameter.elements
    return _shared(parameter, ranks, filling)


@for_equal(8192)
def _shared(parameter: Parameter, ranks: Number, filling: Filling) -> Number:
    return elements_of(_tensors(parameter), ranks, filling)


@for_same(4096)
def operation_tensors(operation: Operation) -> tuple[Stored, ...]:
    """Tensors of one operation in the order in which modules register them: each weight with its bias."""
    lists = [[one._replace(held=p.held) for one in _tensors(p)] for p in operation.parameters]
    longest = max(map(len, lists), default=0)
    return tuple(found[index] for index in range(longest) for found in lists if index < len(found))


def block_tensors(block: Block | None) -> tuple[Stored, ...]:
    """Tensors of a block in order; none where there is no block."""
    if block is None:
        return ()
    return tuple(tensor for operation in block.operations for tensor in operation_tensors(operation))


def units_of(stage: Stage) -> list[Unit]:
    """The root unit (embedding, final norm, head) and one unit per layer."""
    root = block_tensors(stage.embedding) + block_tensors(stage.head)
    found = [Unit("root", root, 1, root=True)] if root else []
    return found + [
        Unit(block.name, block_tensors(block), count, backward=has_backward(block)) for block, count in stage.layers
    ]


def trained_units(stage: Stage) -> list[Unit]:
    """The units with their tensors that have gradients; those that have none are left out."""
    units = [unit._replace(tensors=tuple(one for one in unit.tensors if one.trains)) for unit in units_of(stage)]
    return [unit for unit in units if unit.tensors]


def gradient_order(setup: Setup, stage: Stage) -> list[Stored]:
    """All tensors of a stage in the order in which backward makes their gradients: last used, first made."""
    layers = [block_tensors(block._replace(operations=_as_run(setup, block))) for block, _ in stage.layers]
    forward = list(block_tensors(stage.embedding))
    for kind in stage.order:
        forward += layers[kind]
    return [one for one in (*forward, *block_tensors(stage.head)) if one.trains][::-1]


def _as_run(setup: Setup, block: Block) -> tuple[Operation, ...]:
    """A layer's operations as a framework's modules run them, where the ledger lists them otherwise."""
    rows, order = list(block.operations), setup.kernels.order
    names = [row.name for row in rows]
    if "shared-first" in order and ROUTER in names:
        early = [row for row in rows if row.name.startswith(SHARED) and row.name != SHARED_GATE]
        rows = [row for row in rows if row not in early]
        place = names.index(ROUTER)
        rows[place:place] = early
    if "norms-after" in order or not setup.model.final_norm:
        for name in names:
            branch = name.removesuffix(NORM)
            if branch != name and branch + RESIDUAL in names:
                norm = rows.pop([row.name for row in rows].index(name))
                rows.insert([row.name for row in rows].index(branch + RESIDUAL) + 1, norm)
    return tuple(rows)


class Filling(NamedTuple):
    """What a framework adds to tensors so that all ranks hold alike shards."""

    padding: str
    by_columns: Number
    """1 where stacked experts that are fewer than their ranks are cut inside."""


@for_last
def filling_of(setup: Setup) -> Filling:
    """A framework's rule, in a layout or an array of layouts."""
    rules = setup.framework.traffic
    own = not rules.own_experts or setup.model.family in rules.own_experts
    spread = 1 if rules.experts_by_columns_since and own else where(setup.layout.ep > 1, 1, 0)
    return Filling(rules.padding, spread if rules.experts_by_columns else 0)


def elements_of(tensors: Iterable[Stored], ranks: Number, filling: Filling) -> Number:
    """Elements of tensors with what fills them up to ``ranks`` alike shards."""
    if filling.padding == "parameter":
        return sum(_filled(tensor, ranks, filling.by_columns) for tensor in tensors)
    total = plain_elements(tensors)
    return round_up(total, ranks) if filling.padding == "unit" else total


def plain_elements(tensors: Iterable[Stored]) -> Number:
    """Elements of tensors with nothing added."""
    return sum(tensor.elements for tensor in tensors)


def _filled(tensor: Stored, ranks: Number, by_columns: Number) -> Number:
    filled = padded_elements(tensor.rows, tensor.elements, ranks)
    if tensor.group != "expert":
        return filled
    inside = padded_elements(tensor.inner, tensor.elements, ranks)
    return where((ranks > tensor.rows) & (by_columns > 0), inside, filled)


def filled_buckets(sizes: Iterable[Number], first_limit: Number, limit: Number) -> dict[Number, int]:
    """Bucket sizes with how many there are: a bucket closes with the tensor that fills it (torch DDP)."""
    found: dict[Number, int] = {}
    filled: Number = 0
    full = first_limit
    for size in sizes:
        filled += size
        if filled >= full:
            found[filled] = found.get(filled, 0) + 1
            filled, full = 0, limit
    if filled:
        found[filled] = found.get(filled, 0) + 1
    return found


def bucket_items(sizes: Iterable[Number], first_limit: Number, limit: Number) -> list[tuple[Number, Number]]:
    """(size, how many) of the buckets of one layout."""
    return list(filled_buckets(sizes, first_limit, limit).items())


def filled_bucket_arrays(sizes: list[Number], first_limit: Number, limit: Number) -> list[tuple[Number, Number]]:
    """``bucket_items`` for arrays of layouts, computed once for each distinct one; a layout with fewer buckets has
    empty ones at the end."""
    import numpy

    whole = numpy.broadcast_arrays(*sizes)
    rows = numpy.stack([numpy.ravel(size) for size in whole])
    distinct, inverse = numpy.unique(rows, axis=1, return_inverse=True)
    found = [bucket_items(column.tolist(), first_limit, limit) for column in distinct.T]
    made: list[tuple[Number, Number]] = []
    for place in range(max(map(len, found))):
        pairs = numpy.array([one[place] if place < len(one) else (0, 0) for one in found])[numpy.ravel(inverse)]
        made.append((pairs[:, 0].reshape(whole[0].shape), pairs[:, 1].reshape(whole[0].shape)))
    return made
