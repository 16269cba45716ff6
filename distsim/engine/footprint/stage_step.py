"""What all moments of one stage's step share: what is alive, how gradients grow, what one layer's backward takes."""

from __future__ import annotations

from typing import Any

from distsim.arrays import Number, maximum, plus, product, some, where
from distsim.engine.footprint.backward import Gradients, Highest, backward_peak, elements
from distsim.engine.footprint.joined import reduces_apart, unjoined_bytes
from distsim.engine.footprint.moment import Moment
from distsim.engine.footprint.offloaded import Offloaded
from distsim.engine.footprint.outputs import outputs_of
from distsim.engine.footprint.saved import Saved
from distsim.engine.footprint.states import States
from distsim.engine.footprint.weight_passes import beyond_in_flight, in_flight_at_loss, waiting_after
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.waiting import gradients_wait
from distsim.formulas.activations import alive_bytes
from distsim.last import for_last, for_parts_of_last
from distsim.layers.ledger import Block, weight_copy_bytes


def _grows(setup: Setup) -> Number:
    """Whether the first backward pass makes gradients that are kept, where no later one adds to them and no buffer
    holds them."""
    layout, buffers, precision = setup.layout, setup.framework.buffers, setup.trained_precision
    in_place = precision.gradient_bytes <= precision.parameter_bytes
    grow = where(layout.micro_batches > 1, 0, 1) if buffers.gradients_grow and in_place else 0
    return grow * where(layout.zero >= 3, 0, 1) if buffers.bucket_copies else grow  # DeepSpeed's shards have a buffer


def _fresh_bytes(setup: Setup) -> Number:
    """Bytes per element of a gradient as autograd hands it over: as narrow as the products of cast weights where these
    are gathered."""
    precision = setup.trained_precision
    fresh = min(precision.gradient_bytes, precision.parameter_bytes)
    if setup.framework.traffic.partitioned:
        return min(fresh, precision.activation_bytes)
    return where(reduces_apart(setup), min(fresh, precision.gather_bytes), fresh)


def waits_whole(setup: Setup) -> Number:
    """Whether whole gradients wait for the last micro-batch, and no shards of them are there until then; peaks of
    pipelines say nothing of it. Plain where no layout's do, so that arrays do not grow."""
    if not setup.framework.buffers.gathers_copies:
        return False
    waits = gradients_wait(setup, exchange_of(setup)) & (setup.layout.pp == 1)
    return waits if some(waits) else False


def unless_zero(factor: Number, value: Number) -> Number:
    """Their product; a plain zero stays one, so that arrays of layouts do not grow by dimensions that do not matter."""
    return 0 if isinstance(factor, int) and factor == 0 else factor * value


def _weight_copies(setup: Setup, stage: Stage) -> Number:
    """Cast weights that layers which are not recomputed keep."""
    return sum(
        (times - again) * kept_casts(setup, block)
        for (block, times), again in zip(stage.layers, stage.recomputed(setup.layout), strict=True)
    )


@for_parts_of_last
def kept_casts(setup: Setup, block: Block) -> Number:
    """Bytes of cast weights that one layer keeps: all of what autocast makes, a rank's shards of what a loop stacks."""
    stacked = loop_casts(setup, block)
    return weight_copy_bytes(block.operations) + unless_zero(stacked, where(setup.layout.selective, 0, 1))


def loop_casts(setup: Setup, block: Block) -> Number:
    """Bytes of a rank's shards of matrices as a program of JAX casts them for its products, before any are gathered."""
    precision, layout = setup.precision, setup.layout
    if setup.kernels.residuals != "stacked" or precision.parameter_bytes <= precision.activation_bytes:
        return 0
    from distsim.layers.stacked import cast_matrices

    ranks = {group: where(layout.zero >= 3, sharding_group(layout, group), 1) for group in ("dense", "expert")}
    return sum(one.elements / ranks[one.group] for one in cast_matrices(block)) * precision.activation_bytes


def _hoisted_casts(setup: Setup, stage: Stage) -> Number:
    """Casts of all layers' weights that XLA for TPUs makes before a loop, and holds to the end of its backward whatever
    is computed again (its plans for a v6e in tests/oracles/jax_saved.json; on GPUs it casts inside of the loop)."""
    if not setup.accelerator.chip.array:
        return 0
    return sum(times * loop_casts(setup, block) for block, times in stage.layers)


def _cached_copies(setup: Setup, stage: Stage) -> Number:
    """Cast weights of recomputed layers that autocast itself holds until forward and loss are over: it caches what it
    casts of fp32 leaves that train (pytorch/pytorch aten/src/ATen/autocast_mode.cpp, cached_cast). Compilers cast in
    their own kernels, and what ZeRO 3 gathers is no leaf."""
    if setup.compiled or setup.kernels.compiler != "none":
        return 0
    cached: Number = sum(
        again * weight_copy_bytes(one for one in block.operations if any(p.trains for p in one.parameters))
        for (block, _), again in zip(stage.layers, stage.recomputed(setup.layout), strict=True)
    )
    return where(setup.layout.zero >= 3, 0, cached) if some(cached > 0) else 0


Peaks = dict[tuple[Any, ...], tuple[Block, Block, Highest]]


@for_last
def _peaks(setup: Setup) -> Peaks:
    """Where the peaks of a setup's layers are kept: its stages share blocks, which are known by identity and kept with
    their peaks, so that no other can take their place."""
    return {}


class StageStep:
    """One stage's step, with what all its moments share."""

    def __init__(self, setup: Setup, stage: Stage, held: States, saved: Saved) -> None:
        saved = saved._replace(embedding=saved.embedding + saved.given)
        self.setup, self.stage, self.held, self.saved = setup, stage, held, saved
        self.grow: Number = where(waits := waits_whole(setup), 1, _grows(setup))
        whole = held.dense_parameters + held.expert_parameters
        self.per_element: Number = held.gradients / maximum(whole, 1)
        """Bytes of kept gradient per parameter of the stage: less than a whole one where ZeRO shards it."""
        accumulates = int(setup.framework.buffers.gradients_grow)  # else the product is added where it is kept
        shards = where(waits, 0, self.grow)  # each takes the place of a whole one that waited, and is no larger
        if setup.kernels.residuals == "stacked" and accumulates:  # a loop's backward makes all before a sum reads any
            shards = 1
        kept = unless_zero(shards, self.per_element)
        if setup.framework.traffic.one_unit:
            kept = where(setup.layout.zero >= 2, unjoined_bytes(setup), kept)
        fresh = _fresh_bytes(setup) if accumulates else 0
        self.gradients = Gradients(kept, fresh)
        self.copies = _weight_copies(setup, stage)
        self.cached_copies = _cached_copies(setup, stage)
        self.offloaded = Offloaded(setup, saved)
        stays = self.offloaded.stays
        behind = product(stays, stage.in_flight - 1)
        ends = saved.embedding * stage.in_flight + saved.head_and_loss * stage.head_in_flight
        beyond = beyond_in_flight(setup, stage, plus(stays, saved.embedding))
        hoisted = _hoisted_casts(setup, stage)
        self.parts: dict[str, Number] = {
            "newest_layers": self.offloaded.forward_end(), "layers": stays, "embedding": saved.embedding,
            "in_flight": in_flight_at_loss(stage), "head_and_loss": saved.head_and_loss,
            "head_in_flight": stage.head_in_flight, "beyond": beyond.loss, "hoisted": hoisted,
        }  # fmt: skip
        self.alive = alive_bytes(**self.parts)
        """Bytes kept for backward when the last forward of the peak has ended."""
        self.outputs = outputs_of(setup, stage)
        others = plus(plus(behind, ends), beyond.all) - saved.embedding - saved.head_and_loss
        self.others: Number = plus(plus(others, self.outputs.layers), hoisted)
        """What micro-batches other than the one that runs backward keep, and outputs that the pipeline holds."""
        self.fewer = plus(beyond.all, -beyond.split)
        """How much less that is where the one that runs leaves weight gradients for later."""
        self.found: list[Moment] = []

    def add(
        self, name: str, activations: Number, alive: Number = 0, temporaries: Number = 0, churns: bool = True
    ) -> None:
        """A moment with so many bytes of activations and of gradients that autograd has made so far; ``temporaries`` of
        the activations are the optimizer's. Where they do not come and go the allocator loses nothing of them."""
        gradients = self.held.gradients
        grown = unless_zero(self.grow, gradients)
        beyond = plus(plus(activations, alive), -grown)
        states, unmade = self.held.parameters + self.held.optimizer + gradients, maximum(plus(grown, -alive), 0)
        self.found.append(Moment(name, beyond, gradients, states, activations if churns else 0, temporaries, unmade))

    def others_at(self, place: Number) -> Number:
        """What other micro-batches keep while one runs backward through this place of the stage, and what this one
        leaves for its weight gradients of all layers after it."""
        if not self.stage.flights.split:
            return self.others
        return self.others + maximum(0, waiting_after(self.setup, self.stage, place) - self.fewer)

    def stream(self, block: Block) -> Number:
        """Gradient of the residual stream, as wide as at the stage's first layer; a vision tower has one of its own."""
        boundary = (block if self.setup.model.shown_tower else self.stage.layers[0][0]).boundary
        return 0 if boundary is None else boundary.size_bytes

    def layer(self, block: Block) -> Highest:
        """The highest points of one layer's backward pass: what it keeps, its gradients, and what is in transit."""
        first = self.stage.layers[0][0]
        kept = self.gradients.kept
        if not isinstance(kept, (int, float)):
            return self._layer(block)
        known, key = _peaks(self.setup), (id(block), id(first), kept)
        if key not in known:
            known[key] = (block, first, self._layer(block))
        return known[key][2]

    def _layer(self, block: Block) -> Highest:
        setup = self.setup
        return backward_peak(
            block.operations, self.gradients, setup.layout.selective, setup.kernels, self.stream(block)
        )

    def second_lookup(self) -> Number:
        """The gradient that a decoder's lookup gave the embedding, until its encoder's is added: where the output layer
        has its own matrix, since otherwise it is in that one's."""
        model, stage = self.setup.model, self.stage
        if not model.encoder_layers or model.tied_embeddings or stage.embedding is None:
            return 0
        return product(elements(stage.embedding.operations[0]), self.gradients.fresh)

    def summed(self, lookups: int) -> Number:
        """What there is besides when so many lookups' gradients were made of a matrix that the head shares: the sum of
        the head's and theirs, which the first of them is added to out of place where the head's is a view, as a product
        gives it, and not a cast that autocast made (torch 2.13 autograd/input_buffer.cpp, accumulate)."""
        apart = lookups == 1 and not self.setup.trained_precision.autocast
        return self.tied_gradient() * (2 if apart else 1)

    def tied_gradient(self) -> Number:
        """The head's gradient of a matrix that it shares with the embedding of this stage."""
        if self.stage.head is None or self.stage.embedding is None or not self.setup.model.tied_embeddings:
            return 0
        if self.stage.copies > 1:  # each of them has its own
            return 0
        table = self.stage.embedding.operations[0].parameters[0]
        if not table.trains:
            return 0
        return product(table.elements, self.gradients.fresh)
