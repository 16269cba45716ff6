"""What grows with weights and not with tokens: the optimizer's step, accumulated gradients, casts, gathered shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from distsim.arrays import Number, maximum, minimum, nothing, product, some, where
from distsim.engine.footprint.host_share import host_updates
from distsim.engine.footprint.low_rank import low_rank_elements, projects
from distsim.engine.footprint.states import element_bytes, in_buckets, states_of
from distsim.engine.jobs.exchange import exchange_of, gathers, gathers_once
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.tuning import gathered_bytes, recipe_of, reduced_in
from distsim.formulas.compute import HOST_BANDWIDTH, THREAD_BANDWIDTH, optimizer_traffic_bytes, stream_seconds
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.layers.ledger import Parameter
from distsim.layers.names import POSITION_BIAS, SCORE_BIAS
from distsim.specs.accelerator import HostLink, of_generation
from distsim.specs.optimizer import Optimizer
from distsim.specs.precision import Precision
from distsim.units import FP32_BYTES

BUCKET_PASSES = 4
"""Passes over gradients that DDP copies into its buckets and back (pytorch/pytorch csrc/distributed/c10d/reducer.cpp,
mark_variable_ready_dense and finalize_bucket_dense, where gradient_as_bucket_view is off)."""


class WeightWork(NamedTuple):
    """What weights cost in one micro-batch: seconds of memory traffic, and host work in kernels."""

    forward: Number
    backward: Number
    hooks: Number
    """In forward, and where it is computed again; twice that in backward."""


class _Shared:
    """What all weights that the same ranks share have in common, each number of it made once."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.layout = setup, setup.layout
        self.known: dict[tuple[str | float, ...], Number] = {}

    def _once(self, make: Callable[[], Number], *key: str | float) -> Number:
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def group(self, kind: str) -> Number:
        """Ranks that shard the states of weights of a kind, dense or experts'."""
        return self._once(lambda: sharding_group(self.layout, kind), kind)

    def sharers(self, kind: str, stage: int) -> Number:
        """Ranks among which ZeRO splits what it does from a stage on."""
        return self._once(lambda: where(self.layout.zero >= stage, self.group(kind), 1), kind, stage)

    def summing(self, kind: str) -> Number:
        """Ranks among which the gradients that are added up are split."""
        return self._once(lambda: where(_sums_shards(self.setup), self.group(kind), 1), kind, "summing")

    def exchanged(self, kind: str, each: float) -> Number:
        """Bytes of an element where ranks exchange it."""
        return self._once(lambda: where(self.group(kind) > 1, each, 0), kind, "exchanged", each)

    def copied(self, kind: str, gathered: float, reduced: float, times: CopiedTimes) -> Number:
        """Bytes of an element that backward copies of what is gathered and reduced."""
        return self._once(
            lambda: self.exchanged(kind, gathered) * times.backward + self.exchanged(kind, reduced) * times.reduced,
            kind, gathered, reduced,
        )  # fmt: skip

    def accumulated(self, each: float) -> Number:
        """Bytes that pass for each gradient of so many, which micro-batches add up."""
        return self._once(
            lambda: 2 * each * where(self.layout.micro_batches > 1, 1, where(each > 2, 0.5, 0)), "accumulated", each
        )


def optimizer_seconds(setup: Setup, stage: Stage) -> Number:
    """Traffic of one step at the bandwidth of what takes it: the accelerator, or its share of the host that holds the
    states, or beside each other both; and of buffers of gradients that are set to zero."""
    own: Number = setup.accelerator.pass_bandwidth
    moved, away = _update_bytes(setup, stage), host_updates(setup, stage.held())
    spent = product(1 - away, maximum(stream_seconds(moved, own), _computing(setup, stage)))
    if not nothing(away):
        spent = maximum(spent, stream_seconds(moved * away, _host_share(setup)))
    return spent + stream_seconds(_gradient_bytes(setup, stage), own)


def _computing(setup: Setup, stage: Stage) -> Number:
    """Seconds that the GPU's units compute one update; nothing where no preset states cycles."""
    chip, cycles = setup.accelerator.chip, setup.optimizer.unit_cycles
    if not cycles or not chip.units or not chip.clock:
        return 0.0
    of = _Shared(setup)
    held = ((one.elements * count, one.group) for one, count in stage.held() if one.trains)
    elements = sum(elements / of.sharers(group, 1) for elements, group in held)
    return elements * cycles / (chip.units * chip.clock)


def _host_share(setup: Setup) -> Number:
    """Bytes per second of host memory at which one rank updates states there: its share of what there is, and no more
    than its threads reach where several ranks of a node were given so many each."""
    share, threads = host_bandwidth(setup.accelerator.host) / _host_sharers(setup), setup.framework.traffic.host_threads
    if threads is None:
        return share
    several = minimum(setup.layout.gpus, setup.cluster.gpus_per_node) > 1
    return where(several, minimum(share, threads * THREAD_BANDWIDTH), share)


def few_threads(setup: Setup) -> str:
    """A note on an optimizer in host memory that waits for its threads, or nothing."""
    if "optimizer" not in setup.offload:
        return ""
    whole, reached = host_bandwidth(setup.accelerator.host) / _host_sharers(setup), _host_share(setup)
    if reached >= whole:
        return ""
    given, enough = setup.framework.traffic.host_threads, math.ceil(whole / THREAD_BANDWIDTH)
    return (
        f"each rank updates states in host memory with {given} thread{'s' * (given != 1)}, torchrun's default for "
        f"{setup.framework.name}; OMP_NUM_THREADS={enough} would make that {whole / reached:.1f} times as fast"
    )


def _host_sharers(setup: Setup) -> Number:
    """Accelerators of the job that share the memory of one host: those of a node, or of one of its processors."""
    link = setup.accelerator.host
    together = link.accelerators if link is not None and link.accelerators else setup.cluster.gpus_per_node
    return minimum(setup.layout.gpus, together)


def host_bandwidth(link: HostLink | None) -> float:
    """Bytes per second of a node's memory, as stated, or by the generation of its link to accelerators; the oldest
    where neither is."""
    if link is not None and link.memory_rate:
        return float(link.memory_rate)
    stated = link.generation if link is not None else None
    return of_generation(HOST_BANDWIDTH, stated or min(HOST_BANDWIDTH))


def _update_bytes(setup: Setup, stage: Stage) -> Number:
    """What the optimizer reads and writes of states, gradients and parameters."""
    total: Number = 0
    of, clip_passes = _Shared(setup), exchange_of(setup).clip * setup.framework.traffic.clip_passes
    for parameter, count in stage.held():
        if not parameter.trains:
            continue
        precision = recipe_of(parameter, setup.precision, setup.tuning)
        shard = parameter.elements * count / of.sharers(parameter.group, 1)
        if setup.optimizer.projection and projects(setup, parameter):
            moved = low_rank_elements(setup, parameter) * setup.optimizer.accesses
            total = total + (shard * setup.optimizer.projected_accesses + moved * count) * precision.gradient_bytes
            continue
        if setup.optimizer.accesses:
            total = total + shard * _composed_bytes(setup.optimizer, precision, clip_passes)
            continue
        states = precision.master_bytes + sum(
            element_bytes(setup, precision, parameter, state) for state in states_of(setup, parameter)
        )
        total = total + optimizer_traffic_bytes(
            shard, states, precision.gradient_bytes, precision.parameter_bytes, precision.master_bytes,
            int(precision.math == "fp16"), clip_passes, setup.optimizer.passes,
        )  # fmt: skip
    return total


def _composed_bytes(optimizer: Optimizer, precision: Precision, clip_passes: int) -> float:
    """What an update of elementary operations moves for each element: its operations', in the width that they run in,
    what clips a gradient, and copies to and from that width, of a master copy's narrow parameter too."""
    held = precision.master_bytes or precision.parameter_bytes
    width = FP32_BYTES if optimizer.widens else held
    moved = optimizer.accesses * width + clip_passes * precision.gradient_bytes
    if precision.master_bytes:
        return moved + precision.gradient_bytes + 2 * precision.master_bytes + precision.parameter_bytes
    return moved + (2 * (held + width) + precision.gradient_bytes + width) * (width > held)


def _gradient_bytes(setup: Setup, stage: Stage) -> Number:
    """The gradients that one rank sets to zero in each step, where they live in buffers that are filled."""
    total: Number = 0
    if not setup.framework.traffic.zeroes_gradients:
        return total
    of = _Shared(setup)
    for parameter, count in stage.held():
        if parameter.trains:
            each = recipe_of(parameter, setup.precision, setup.tuning).gradient_bytes
            total = total + parameter.elements * count / of.sharers(parameter.group, 2) * each
    return total


class CopiedTimes(NamedTuple):
    """Copies of each micro-batch: of what is gathered for forward and for backward, and of what is reduced."""

    forward: Number
    backward: Number
    reduced: Number


def weight_work(setup: Setup, stage: Stage) -> WeightWork:
    """Accumulated gradients, casts, gathered shards copied in and out, and hooks that fetch and release modules."""
    layout, precision, bandwidth = setup.layout, setup.precision, setup.accelerator.pass_bandwidth
    partitioned, times = setup.framework.traffic.partitioned, _copied_times(setup)
    bucketed, of = in_buckets(setup), _Shared(setup)
    forward: Number = 0.0
    backward: Number = 0.0
    for parameter, elements in _alike(stage):
        own = elements / of.sharers(parameter.group, 2) if partitioned else elements
        if parameter.trains:
            each = recipe_of(parameter, precision, setup.tuning).gradient_bytes
            summed = own if partitioned else elements / of.summing(parameter.group)
            backward = backward + stream_seconds(summed * of.accumulated(each), bandwidth)
        copied = 2 * gathered_bytes(parameter, precision, setup.tuning)
        if parameter.held != "quantised":
            copied = (1 if partitioned else 2) * precision.activation_bytes
        gathered = of.exchanged(parameter.group, copied)
        matrix = parameter.kind == "matrix" and parameter.held != "quantised"
        narrowed = precision.autocast or (partitioned and precision.parameter_bytes > precision.activation_bytes)
        cast = (precision.parameter_bytes + precision.activation_bytes) * int(narrowed and matrix)
        read = elements * gathered * times.forward
        if cast:
            read = read + where(layout.zero >= 3, own, elements) * cast
        forward = forward + stream_seconds(read, bandwidth)
        travels = copied
        if not partitioned:  # read as backward made it, written as it travels
            travels = (precision.activation_bytes + DTYPE_BYTES[reduced_in(setup)]) * int(parameter.trains)
        moved = elements * of.copied(parameter.group, copied, travels, times)
        if some(bucketed) and parameter.trains:
            width = recipe_of(parameter, precision, setup.tuning).parameter_bytes
            moved = moved + elements * width * where(bucketed, BUCKET_PASSES / layout.micro_batches, 0)
        backward = backward + stream_seconds(moved, bandwidth)
    return WeightWork(forward, backward, _hooks(setup, stage))


def _alike(stage: Stage) -> Iterable[tuple[Parameter, Number]]:
    """One of all parameters whose elements cost the same in a micro-batch, and the elements of all of these."""
    found: dict[tuple[str, str, bool], tuple[Parameter, Number]] = {}
    for parameter, count in stage.parameters:
        kind = parameter.group, parameter.held, parameter.kind == "matrix"
        first, elements = found.get(kind, (parameter, 0))
        found[kind] = first, elements + parameter.elements * count
    return found.values()


def _copied_times(setup: Setup) -> CopiedTimes:
    """How often each micro-batch copies what is gathered out of its buffer, or gradients into theirs. ZeRO 2 by layers
    does so where parameters are tensors of their own (FSDP2), not views of what is gathered (FSDP)."""
    layout, rules, exchange = setup.layout, setup.framework.traffic, exchange_of(setup)
    forward, backward = gathers(setup, exchange)
    least = 2 if rules.zero2 == "forward" and rules.padding == "parameter" else 3
    reduced = where(gathers_once(setup, exchange), 1, exchange.syncs(layout.micro_batches))
    share = where(layout.zero >= least, 1 / layout.micro_batches, 0)
    return CopiedTimes(forward * share, backward * share, reduced * share)


def _sums_shards(setup: Setup) -> Number:
    """Whether each micro-batch's gradients are scattered before they are added up: from ZeRO 2 on, where torch's FSDP
    and DeepSpeed keep no whole ones, unless the reduction is put off (torch distributed/fsdp/_fully_shard,
    foreach_reduce: what comes back is added to the sharded gradient)."""
    exchange, layout = exchange_of(setup), setup.layout
    return (layout.zero >= 2) & (exchange.syncs(layout.micro_batches) == layout.micro_batches)


def _hooks(setup: Setup, stage: Stage) -> Number:
    """Hooks of sharded parameters in one forward, in kernels; a plain zero where the framework has none, so that counts
    of kernels do not become arrays over ZeRO stages."""
    layout, traffic = setup.layout, setup.framework.traffic
    hooks: Number = 0
    if traffic.unit_hooks:
        shards = (layout.zero >= 2) & (layout.zero_group > 1)
        hooks = where(shards, _units(setup, stage) * traffic.unit_hooks, 0)
    if traffic.module_hooks:
        hooks = hooks + where(layout.zero >= 3, _module_hooks(setup, stage), 0)
    return hooks


def _units(setup: Setup, stage: Stage) -> Number:
    """What FSDP wraps: layers, all else together, and adapters' matrices where each is a unit (peft's policy)."""
    if setup.framework.traffic.one_unit:
        return 1
    adapters = sum(one.copies * count for one, count in stage.parameters if one.held == "adapter")
    return stage.layer_count + 1 + adapters * int(setup.framework.adapters.units)


def _module_hooks(setup: Setup, stage: Stage) -> Number:
    """Hooks of all modules with parameters of their own, in kernels."""
    traffic, together = setup.framework.traffic, setup.kernels.expert_modules == "one"
    of_expert = traffic.module_hooks if traffic.expert_hooks is None or together else traffic.expert_hooks
    hooks: Number = 0
    for one, count in stage.parameters:
        if one.is_bias or one.name.endswith((SCORE_BIAS, POSITION_BIAS)):
            continue
        if one.group == "expert":
            hooks = hooks + (1 if together else one.copies) * count * of_expert
        else:
            hooks = hooks + one.copies * count * traffic.module_hooks
    return hooks
