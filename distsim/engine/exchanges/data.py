"""What data parallelism and ZeRO exchange: gradients reduced, parameters gathered, in buckets or in units of layers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from distsim.arrays import Number, maximum, minimum, nothing, some, where
from distsim.engine.exchanges.flows import Flow, Span, of_states
from distsim.engine.exchanges.module_buffers import buffer_flows
from distsim.engine.exchanges.owners import broadcasts
from distsim.engine.exchanges.units import sharded_units
from distsim.engine.footprint.stored import (
    Stored,
    Unit,
    bucket_items,
    elements_of,
    filled_bucket_arrays,
    filling_of,
    gradient_order,
    plain_elements,
    trained_units,
)
from distsim.engine.jobs.exchange import Exchange, gathers, gathers_once, whole_reductions
from distsim.engine.jobs.narrow import narrow_weight
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.tuning import reduced_in
from distsim.formulas.traffic import DTYPE_BYTES, full_buckets


class Sharing(NamedTuple):
    """The ranks that hold the same dense (or expert) parameters, and how they share states."""

    kind: str
    data: Span
    """All of them."""
    shard: Span
    """Those that hold one sharded copy."""
    replicas: Span
    """Ranks that hold the same shard of different copies."""

    def holds(self, tensor: Stored, together: bool) -> bool:
        """Whether a tensor is shared this way; ``together`` when experts are shared like all else."""
        return together or tensor.group == self.kind


def sharings(setup: Setup) -> tuple[list[Sharing], bool]:
    """Dense parameters and, where ranks hold other experts or share them with others, experts: units and buckets of
    their own, even among as many ranks; and whether one group serves all."""
    layout = setup.layout
    whole, shard = layout.dp * layout.cp, sharding_group(layout, "dense")
    dense = Sharing(
        "dense", Span("dp", whole, layout.tp, world=layout.gpus), Span("zero", shard, layout.tp, world=layout.gpus),
        Span("dp", whole // shard, layout.tp * shard, world=layout.gpus),
    )  # fmt: skip
    if setup.model.experts is None:
        return [dense], True
    size, part, stride = layout.expert_data_parallel, sharding_group(layout, "expert"), layout.ep * layout.etp
    experts = Sharing(
        "expert", Span("dp", size, stride, world=layout.gpus), Span("zero", part, stride, world=layout.gpus),
        Span("dp", size // part, stride * part, world=layout.gpus),
    )  # fmt: skip
    if _same(layout.ep, 1) and _same(size, whole) and _same(part, shard):
        return [dense], True
    return [dense, experts], False


def _same(one: Number, other: Number) -> bool:
    """Equal, for all layouts of an array."""
    same = one == other
    return same if isinstance(same, bool) else bool(same.all())


def same_span(one: Span, other: Span) -> bool:
    """Whether two process groups are one."""
    return _same(one.ranks, other.ranks) and _same(one.stride, other.stride)


def data_flows(setup: Setup, exchange: Exchange, stage: Stage) -> list[Flow]:
    """Gradients and parameters of one rank over one step, as the ZeRO stage has it."""
    found, together = sharings(setup)
    copies = [sharded_units(setup, one) for one in (stage, stage.mirror) if one is not None]
    flows, layered = list[Flow](), by_layers(setup)
    for sharing in found:
        held = [_shared_units(units, sharing, together) for units in copies]
        if not nothing(layered):
            for own in held:
                flows += _scaled(_layered(setup, exchange, sharing, own, len(copies)), layered)
        if not (isinstance(layered, int) and layered == 1):
            every = [*itertools.chain.from_iterable(held)]  # both copies have gradients, each micro-batch one
            flows += _scaled(_bucketed(setup, exchange, stage, sharing, every, together), 1 - layered)
    return flows + buffer_flows(setup, exchange, reduced_to_owners(setup))


def by_layers(setup: Setup) -> Number:
    """1 where ZeRO shares states unit by unit, 0 where in buckets or not at all."""
    zero = setup.layout.zero
    return where(zero >= 3, 1, where(zero == 2, 1, 0) if setup.framework.traffic.zero2 == "forward" else 0)


def of_copies(times: Number, copies: int) -> Number:
    """How often each of so many copies of a model gathers or reduces, which have equal shares of the micro-batches."""
    return times if copies == 1 else where(times > 0, maximum(times / copies, 1), 0)


def _shared_units(units: list[Unit], sharing: Sharing, together: bool) -> list[Unit]:
    """What of some units is shared in one way."""
    own = [u._replace(tensors=tuple(t for t in u.tensors if sharing.holds(t, together))) for u in units]
    return [unit for unit in own if unit.tensors]


def _scaled(flows: list[Flow], factor: Number) -> list[Flow]:
    return [flow._replace(calls=flow.calls * factor) for flow in flows]


def _layered(setup: Setup, exchange: Exchange, sharing: Sharing, units: list[Unit], copies: int) -> list[Flow]:
    """Unit by unit: gathered in forward and (ZeRO 3) in backward, gradients reduced and scattered in backward. Each of
    so many copies of the model has its share of the micro-batches."""
    layout, rules, precision = setup.layout, setup.framework.traffic, setup.precision
    ranks, filling = sharing.shard.ranks, filling_of(setup)
    gather, reduce = DTYPE_BYTES[precision.gather_dtype], DTYPE_BYTES[reduced_in(setup)]
    syncs = where(gathers_once(setup, exchange), 1, exchange.syncs(layout.micro_batches))
    forward, backward = gathers(setup, exchange)
    replicas = 1 if rules.replicas_reduce_once else syncs
    forward, backward, syncs, replicas = (of_copies(often, copies) for often in (forward, backward, syncs, replicas))
    flows: list[Flow] = []
    for unit, left in zip(units, _left_for_backward(setup, units), strict=True):
        trained = _trained(unit).tensors
        whole = trained and setup.framework.adapters.in_flat_units
        elements = elements_of(unit.tensors if whole else trained, ranks, filling)
        missing = unit.count - left if unit.backward else 0
        ahead, again = (where(layout.zero >= 3, times, 1) for times in unit.gathers)
        # without ZeRO 3 a unit is there until its first backward has ended
        behind = missing // 1 * backward * again + unit.count * (unit.gathers[1] - again) * forward
        hides, first = rules.overlap_parameters, minimum(forward, 1) if unit.root and rules.root_once else forward
        for dtype, each, tensors in _gathered(setup, unit, gather):
            size = elements_of(tensors, ranks, filling) * each
            common = ("all_gather", sharing.shard, dtype)
            flows += [
                of_states("parameters", *common, "forward", unit.count * first * ahead, size, hides),
                of_states("parameters", *common, "backward", behind, size, hides),
            ]
            if some((part := missing % 1) > 0):
                flows.append(of_states("parameters", *common, "backward", backward, size * part, hides))
            if not nothing(unit.again):
                size = elements_of(_frozen_again(tensors), ranks, filling) * each
                flows.append(of_states("parameters", *common, "backward", unit.again * backward, size, hides))
        flows += [
            of_states("gradients", "reduce_scatter", sharing.shard, reduced_in(setup), "backward",
                 unit.count * syncs, elements * reduce, rules.overlap_gradients),
            of_states("replicas", "all_reduce", sharing.replicas, reduced_in(setup), "backward",
                 unit.count * replicas, elements * reduce / ranks, rules.overlap_gradients),
        ]  # fmt: skip
    return flows


def _left_for_backward(setup: Setup, units: list[Unit]) -> list[Number]:
    """How many of each kind of unit forward leaves gathered for backward: the root, or of the root and the last layers
    what fetching ahead has room for."""
    rules = setup.framework.buffers
    room: Number = rules.gathered_elements
    if not room:
        return [unit.count * (unit.root and rules.keep_last_unit and not unit.dropped) for unit in units]
    found: list[Number] = [0] * len(units)
    for place in sorted(range(len(units)), key=lambda one: (not units[one].root, -one)):
        each = plain_elements(units[place].tensors)
        found[place] = minimum(units[place].count, room / each)
        room = room - found[place] * each
    return found


def _frozen_again(tensors: tuple[Stored, ...]) -> list[Stored]:
    """What of a layer the second of backward's passes gathers again: all that is frozen but for its last module, with
    which backward begins: a product, or all experts."""
    frozen = [one for one in tensors if not one.trains]
    if any(one.group == "expert" for one in frozen):
        return [one for one in frozen if one.group != "expert"]
    last = max((place for place, one in enumerate(frozen) if one.matrix), default=None)
    return [one for place, one in enumerate(frozen) if place != last]


def _gathered(setup: Setup, unit: Unit, each: float) -> Iterator[tuple[str, float, tuple[Stored, ...]]]:
    """The tensors of a unit that travel in one number format: all of them, or quantised weights apart."""
    packed = setup.tuning.quantization if setup.tuning else None
    quantised = tuple(tensor for tensor in unit.tensors if tensor.held == "quantised")
    dtype = setup.precision.gather_dtype
    if dtype == "fp8" and unit.root:  # embedding and head stay in 16 bits
        dtype, each = "bf16", DTYPE_BYTES["bf16"]
    yield dtype, each, tuple(one for one in unit.tensors if one.held != "quantised")
    if packed is not None and quantised:
        yield packed.dtype, packed.weight_bytes, quantised


def _bucketed(
    setup: Setup, exchange: Exchange, stage: Stage, sharing: Sharing, units: list[Unit], together: bool
) -> list[Flow]:
    """Whole gradients in buckets (ZeRO 0), or each bucket to its owner and parameters gathered after the step."""
    layout, rules = setup.layout, setup.framework.traffic
    sharded, owned = where(layout.zero >= 1, 1, 0), reduced_to_owners(setup)
    if not (units := [unit for unit in map(_trained, units) if unit.tensors]):
        return []
    syncs, hides = exchange.syncs(layout.micro_batches), rules.overlap_gradients
    whole = whole_reductions(setup, exchange)
    dtype, shard, each = reduced_in(setup), sharing.shard, DTYPE_BYTES[reduced_in(setup)]
    flows = [
        of_states("gradients", "all_reduce", sharing.data, dtype, "backward", times * whole * (1 - owned),
                  elements * each, hides)
        for elements, times in ([] if nothing(1 - owned) else _buckets(setup, stage, sharing, units, together))
    ]  # fmt: skip
    by_owner = rules.owned_bucket_rule or rules.bucket_rule
    buckets = [] if nothing(sharded) else [*_buckets(setup, stage, sharing, units, together, by_owner)]
    for elements, times in [] if nothing(owned) else buckets:
        size, calls = elements * each, times * owned
        flows += [
            of_states("gradients", rules.owned_op, shard, dtype, "backward", calls * syncs, size, hides),
            of_states("replicas", "all_reduce", sharing.replicas, dtype, "backward", calls * whole, size / shard.ranks,
                      hides),
        ]  # fmt: skip
    if rules.zero1 == "reduce_scatter":
        experts = any(tensor.group == "expert" for unit in trained_units(stage) for tensor in unit.tensors)
        alone = rules.gathers_by_optimizer and experts and not rules.overlap_updated
        twice = where(layout.ep > 1, 2, 1) if alone else 1
        flows += [
            of_states("parameters", "all_gather", sharing.shard, name, "step", times * sharded * twice,
                 elements * DTYPE_BYTES[name], rules.overlap_updated)
            for name, part in _updated(setup, units)
            for elements, times in (
                buckets if part is units else _buckets(setup, stage, sharing, part, together, by_owner)
            )
        ]  # fmt: skip
    if rules.zero1 == "all_reduce":
        flows += broadcasts(setup, sharing.shard, units, sharded)
    return flows


def reduced_to_owners(setup: Setup) -> Number:
    """1 where ranks that share states reduce gradients to those who own them, 0 where all get all."""
    sharded = where(setup.layout.zero >= 1, 1, 0)
    return sharded if setup.framework.traffic.zero1 == "reduce_scatter" else where(setup.layout.zero >= 2, 1, 0)


def _updated(setup: Setup, units: list[Unit]) -> list[tuple[str, list[Unit]]]:
    """Number formats in which updated parameters are gathered, each in buckets of its own: weights that are held in 8
    bits travel in them, embedding, head, norms and biases in 16."""
    name = setup.precision.gather_dtype
    rules = setup.framework.traffic
    if name != "fp8" or (rules.owned_bucket_rule or rules.bucket_rule) == "tensors":
        return [(name, units)]
    parts: tuple[list[Unit], list[Unit]] = ([], [])
    for unit in units:
        for narrow, part in zip((True, False), parts, strict=True):
            own = tuple(one for one in unit.tensors if narrow_weight(one.name, one.matrix) == narrow)
            part.extend([unit._replace(tensors=own)] if own else [])
    return [(dtype, part) for dtype, part in zip(("fp8", "bf16"), parts, strict=True) if part]


def _trained(unit: Unit) -> Unit:
    return unit._replace(tensors=tuple(tensor for tensor in unit.tensors if tensor.trains))


def _buckets(
    setup: Setup, stage: Stage, sharing: Sharing, units: list[Unit], together: bool, by_owner: str | None = None
) -> Iterable[tuple[Number, Number]]:
    """Elements of each kind of gradient bucket and how many there are; ``by_owner`` is the rule of those that are
    reduced to their owners."""
    rules = setup.framework.traffic
    rule = by_owner or rules.bucket_rule
    if rule == "unit":  # whole copies of FSDP's flat tensors are filled up all the same, FSDP2's are not
        filling = filling_of(setup)
        ranks = sharing.data.ranks if filling.padding == "unit" else 1
        return [(elements_of(unit.tensors, ranks, filling), unit.count) for unit in units]
    if rule == "tensors":
        each, precision = DTYPE_BYTES[reduced_in(setup)], setup.trained_precision
        if by_owner is None:  # DDP's, filled with gradients as backward makes them, whatever is added up and reduced
            each = min(precision.gradient_bytes, precision.parameter_bytes)
        sizes = [t.elements for t in gradient_order(setup, stage) if sharing.holds(t, together)]
        fill = bucket_items if all(isinstance(size, (int, float)) for size in sizes) else filled_bucket_arrays
        return fill(sizes, rules.first_bucket_bytes / each, rules.bucket_bytes / each)
    total = sum(unit.count * plain_elements(unit.tensors) for unit in units)
    if rule == "parameters":
        from distsim.engine.exchanges.parameter_buckets import parameter_buckets

        names = frozenset(tensor.name for unit in units for tensor in unit.tensors)
        count = parameter_buckets(setup, stage, names, owned=by_owner is not None)
        return [(total / count, count)]  # as large as they are on average
    limit = maximum(rules.bucket_elements, rules.bucket_elements_per_rank * sharing.data.ranks)
    full = full_buckets(total, limit)
    return [(limit, full), (total - full * limit, 1)]
