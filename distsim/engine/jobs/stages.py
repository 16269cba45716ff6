"""What each pipeline stage holds: blocks of the ledger, their parameters, micro-batches in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from distsim.arrays import Number, minimum, take, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stage_chunks import head_stage, predicting_stage, stage_layer_indices
from distsim.engine.jobs.vocabulary import held_with_vocabulary, shared_rows
from distsim.engine.timelines.schedule_shape import (
    Flight,
    Flights,
    both_ways,
    flights,
    head_in_flight,
    in_flight,
    split_share,
    weight_versions,
)
from distsim.last import for_equal, for_last
from distsim.layers.ledger import Block, Context, Operation, Parameter
from distsim.layers.mtp import weightless
from distsim.layers.names import TOWER_KIND
from distsim.layers.network import (
    embedding_block,
    has_backward,
    head_block,
    kinds_of_layers,
    layer_block,
    tower_blocks,
    untied,
)
from distsim.layers.prediction_blocks import loss_block, module_block
from distsim.specs.layout import Layout


@dataclass(frozen=True, repr=False, eq=False)
class Stage:
    """One pipeline stage of one data-parallel replica."""

    index: int
    embedding: Block | None
    layers: tuple[tuple[Block, int], ...]
    """Blocks of the layers with how many there are of each kind, in model order of first appearance."""
    head: Block | None
    in_flight: Number
    """Micro-batches whose activations the stage holds at its peak, in whole-stage units."""
    flights: Flights
    """The same, and, where backward passes are split, those that wait for their weight gradients."""
    head_in_flight: Number = 1
    """Micro-batches whose logits are held: one where backward follows forward at once, all of them under GPipe."""
    split_share: Number = 0
    """Share of its layers that one input gradient runs through where backward passes are split, else 0."""
    weight_versions: Number = 1
    """Versions of its weights that it keeps."""
    order: tuple[int, ...] = ()
    """Which of ``layers`` each layer is, first to last."""
    mirror: Stage | None = None
    """The stage of a second copy of the model that shares these ranks, where copies run in opposite directions. Half of
    the micro-batches visit it, so its work is not counted again, but its weights are."""
    copies: int = 1
    """Copies of the model of which it holds layers: two where it is told together with its mirror (``both``)."""
    at_loss: tuple[Flight, ...] = ()
    """Those moments of its flights at which the output layer may run, where chunks are told apart."""

    @cached_property
    def layer_count(self) -> int:
        """Layers of any kind on this stage."""
        return sum(count for _, count in self.layers)

    @cached_property
    def blocks(self) -> list[Block]:
        """The block of each layer, first to last."""
        return [self.layers[kind][0] for kind in self.order]

    @property
    def usual_layer(self) -> tuple[Block, int]:
        """The kind of layer that the stage has most of, but for a vision tower's, the later of two, and how many."""
        own = [kind for kind in self.layers if not kind[0].name.startswith(TOWER_KIND)]
        return max(reversed(own or self.layers), key=lambda kind: kind[1])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Which kind each layer is, first to last."""
        return tuple(self.layers[kind][0].name for kind in self.order)

    @cached_property
    def among_first(self) -> tuple[tuple[int, ...], ...]:
        """For each kind, how many of the first n layers are of it, n from 0 to all."""
        return tuple(
            tuple(accumulate((int(kind == one) for one in self.order), initial=0)) for kind in range(len(self.layers))
        )

    def recomputed_layers(self, layout: Layout) -> Number:
        """How many of its first layers are wholly recomputed."""
        wanted = layout.recompute_layers * self.copies
        return where(wanted < 0, self.layer_count, minimum(wanted, self.layer_count))

    def recomputed(self, layout: Layout) -> list[Number]:
        """How many layers of each kind are wholly recomputed; none of those that have no backward pass."""
        first = self.recomputed_layers(layout)
        if isinstance(first, int) and first in (0, self.layer_count):
            return [count if first and has_backward(block) else 0 for block, count in self.layers]
        return [take(among, first) * has_backward(self.layers[kind][0]) for kind, among in enumerate(self.among_first)]

    def only(self, block: Block) -> Stage:
        """A stage of one layer."""
        return replace(self, embedding=None, layers=((block, 1),), order=(0,), head=None)

    def operations(self) -> Iterator[tuple[Operation, int]]:
        """Every row with the number of times it occurs."""
        for block in (self.embedding, self.head):
            if block is not None:
                yield from ((operation, 1) for operation in block.operations)
        for block, count in self.layers:
            yield from ((operation, count) for operation in block.operations)

    @cached_property
    def parameters(self) -> tuple[tuple[Parameter, int], ...]:
        """Every parameter with the number of times it occurs."""
        return tuple((parameter, count) for operation, count in self.operations() for parameter in operation.parameters)

    def both(self) -> Stage:
        """All that its ranks hold of both copies of the model, as if it were two chunks of one."""
        if self.mirror is None:
            return self
        early, late = sorted((self, self.mirror), key=lambda one: one.index)
        layers, order = _counted(early.blocks + late.blocks)
        return replace(
            self, embedding=early.embedding, layers=layers, order=order, head=late.head,
            split_share=self.split_share / 2, mirror=None, copies=2,
        )  # fmt: skip

    def held(self) -> tuple[tuple[Parameter, int], ...]:
        """The parameters of all copies on these ranks."""
        return self.parameters if self.mirror is None else self.parameters + self.mirror.parameters


def build_stages(setup: Setup) -> list[Stage]:
    """All stages, first to last; memory and time of one job ask for them in turn."""
    return [stage_at(setup, index) for index in range(setup.layout.pp)]


def stage_at(setup: Setup, index: int) -> Stage:
    """One stage, built where it is asked for."""
    built = _built(setup)
    if setup.layout.pp == 1 or not both_ways(setup.layout.schedule):
        return built.stage(index)
    return built.mirrored(index)


class _Builder:
    """Builds the stages of a setup, each once, of blocks that all of them share."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.ctx, self.last = setup, setup.context(), head_stage(setup)
        self.predicts, self.apart = predicting_stage(setup), setup.mtp_chunk is not None
        self.kinds, self.rows = kinds_of_layers(setup.model), in_rows(self.ctx)
        self.blocks: dict[tuple[str, bool], Block] = {}
        self.known: dict[int, Stage] = {}
        self.both: dict[int, Stage] = {}

    def block_of(self, layer: int, own: bool = True) -> Block:
        """The block of a layer, which has weights of its ``own`` or those of one before it."""
        key = self.kinds[layer], own
        if key not in self.blocks:
            block = _block(layer_block, self.rows._replace(layer=layer))
            self.blocks[key] = block if own else block._replace(operations=weightless(block.operations))
        return self.blocks[key]

    def layers_of(self, index: int) -> list[Block]:
        """The blocks of a stage's layers, those of multi-token prediction last."""
        model = self.setup.model
        here = [self.block_of(layer) for layer in stage_layer_indices(self.setup, index)]
        for depth in range(model.mtp_trained if index == self.predicts else 0):
            own = depth == 0 or not model.mtp_repeated
            added = [self.block_of(layer, own) for layer in model.mtp_module]
            here += [module_block(self.rows, added[0], depth)] if self.apart else added
        return here

    def stage(self, index: int) -> Stage:
        """One of one copy of the model."""
        if index not in self.known:
            layout = self.setup.layout
            schedule, micro_batches = layout.schedule, layout.micro_batches
            embedding, head = _ends(self.ctx, self.rows, index == 0, index == self.last, self.apart)
            seen = [] if index else tower_blocks(self.rows)
            before = () if index or embedding is None else (embedding, *seen[:1])
            layers, order = _counted(seen + _with_first(self.ctx, before, self.layers_of(index)))
            found = flights(schedule, layout.pp, micro_batches, layout.vpp, index)
            held = found.all[0].before  # all there is, unless weight gradients wait
            if found.split:
                held = in_flight(schedule, layout.pp, micro_batches, layout.vpp, index)
            self.known[index] = Stage(
                index, embedding, layers, head, held_with_vocabulary(layout, held), _with_vocabulary(layout, found),
                head_in_flight(schedule, layout.pp, micro_batches), split_share(schedule, layout.pp, layout.vpp),
                weight_versions(schedule, layout.pp, micro_batches, index), order,
            )  # fmt: skip
        return self.known[index]

    def mirrored(self, index: int) -> Stage:
        """One with the stage of the second copy on its ranks."""
        if index not in self.both:
            other = self.stage(self.setup.layout.pp - 1 - index)
            self.both[index] = replace(self.stage(index), mirror=other)
        return self.both[index]


@for_last
def _built(setup: Setup) -> _Builder:
    return _Builder(setup)


@for_equal(512)
def _block(make: Callable[[Context], Block], ctx: Context) -> Block:
    """A block as ``make`` has it; layouts that rows do not tell apart (``in_rows``) share one: plans ask hundreds."""
    return make(ctx)


def in_rows(ctx: Context) -> Context:
    """The context with what no row depends on left at its default: replicas, and the way of micro-batches through
    stages; and, where no adapter reads a gathered weight, ZeRO."""
    layout = ctx.layout._replace(dp=1, vpp=1, micro_batches=1, schedule="1f1b")
    if not layout.vocab_parallel:
        layout = layout._replace(pp=1)
    return ctx._replace(layout=layout if ctx.tuning is not None else layout._replace(zero=0, zero_group=1))


def _with_vocabulary(layout: Layout, found: Flights) -> Flights:
    return Flights(
        *(tuple(one._replace(before=held_with_vocabulary(layout, one.before)) for one in part) for part in found)
    )


def _ends(
    ctx: Context, rows: Context, first: bool, last: bool, apart: bool = False
) -> tuple[Block | None, Block | None]:
    """Embedding and head of a stage, without modules of multi-token prediction that are ``apart``; stages between the
    ends have none, or share the vocabulary's rows. Of two copies that run in opposite directions, ranks with the head
    of one have the embedding of the other, which both use (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.3)."""
    embedding = _block(embedding_block, rows) if first or ctx.layout.vocab_parallel else None
    head = _block(loss_block if apart else head_block, rows) if last or ctx.layout.vocab_parallel else None
    if embedding is not None and not first:
        embedding = embedding._replace(operations=shared_rows(embedding.operations))
    if head is not None and not last:
        head = head._replace(operations=shared_rows(head.operations))
    if head is not None and (embedding is not None or both_ways(ctx.layout.schedule)):
        head = untied(head, ctx)
    return embedding, head


def _with_first(ctx: Context, before: Sequence[Block], layers: list[Block]) -> list[Block]:
    if before and ctx.tuning is not None:
        from distsim.layers.silent import started

        layers = started(ctx, before, layers)
    return layers


def _counted(layers: list[Block]) -> tuple[tuple[tuple[Block, int], ...], tuple[int, ...]]:
    """Each kind of block with how many there are, and which kind each layer is."""
    kinds = {id(block): block for block in layers}
    places = {key: place for place, key in enumerate(kinds)}
    order = tuple(places[id(block)] for block in layers)
    return tuple((block, order.count(places[key])) for key, block in kinds.items()), order
