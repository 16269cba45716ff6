"""Transfers of what is offloaded: over a GPU's link to its host, and on to the drives of its node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.exchanges.flows import Fixed, Flow, Role, Span
from distsim.engine.exchanges.hidden import copies_each
from distsim.engine.footprint.host_share import by_sub_groups, host_updates, passes_host_buffer, states_share
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import state_bytes
from distsim.engine.jobs.drives import drive_rates
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.offloading import in_fp32
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.tuning import recipe_of, weight_bytes
from distsim.errors import DistsimError
from distsim.formulas.drives import KEPT_ELEMENTS, driven_share
from distsim.formulas.traffic import copy_seconds, offload_transfer_bytes
from distsim.layers.ledger import Parameter
from distsim.units import FP32_BYTES

DOWN, UP = "device_to_host", "host_to_device"
WRITE, READ = "host_to_drive", "drive_to_host"
DRIVES = "nvme"
"""The link to all drives of a node."""
PASSES = ("forward", "backward")


class Transfer(NamedTuple):
    """One kind of copy of one rank, ``calls`` times in a step."""

    purpose: str
    op: str
    phase: str
    calls: Number
    size: Number
    dtype: str = ""
    """Of what is copied; empty: the recipe's of parameters."""
    role: Role = ""


def offload_flows(setup: Setup, exchange: Exchange, stage: Stage) -> list[Flow]:
    """Transfers over the host link (PCIe or NVLink-C2C) of offloaded states (arXiv:2101.06840, 2104.07857), and what
    goes on to drives."""
    host, rate = setup.accelerator.host, host_rate(setup)
    if host is None or rate is None:
        raise DistsimError(f"the host link of {setup.accelerator.name} is not known", "leave --offload out")
    link = f"{host.kind}-{host.generation}" if host.generation else host.kind
    found = []
    for kind in setup.offload:
        waits = kind == "activations" and setup.kernels.offload_waits
        found += [_flow(setup, one, rate, link, waits) for one in _transfers(setup, exchange, stage, kind)]
    if setup.drives:
        reads, writes = drive_rates(setup)
        for one in _driven(setup, stage):
            found.append(_flow(setup, one, reads if one.op == READ else writes, DRIVES))
    return found


def host_rate(setup: Setup) -> Number | None:
    """Bytes per second of one GPU's share of the link to its host while all of a job's accelerators copy at once; in a
    memory that both have, which a copy reads and writes, half of its bandwidth."""
    host = setup.accelerator.host
    rate = None if host is None else host.measured or host.rate
    if rate is None and host is not None and host.kind == "shared":
        return float(setup.accelerator.bandwidth) / 2
    return shared_host_rate(setup, rate) if rate else None


def shared_host_rate(setup: Setup, rate: float) -> Number:
    """One GPU's share of a link of so many bytes per second, among all behind one switch that a job runs on."""
    together = min(setup.cluster.host_link_sharers, setup.cluster.gpus_per_node)
    return rate / minimum(setup.layout.gpus, together) if together > 1 else rate


def _flow(setup: Setup, one: Transfer, rate: Number, link: str, waits: bool = False) -> Flow:
    """Copies beside a pass hide behind it, unless software ``waits`` for each."""
    sent = one.size if one.op == DOWN else 0.0
    dtype = one.dtype or setup.precision.gather_dtype
    return Flow(
        one.purpose, one.op, Span("host", 1, 1), dtype, one.phase, one.calls, one.size,
        hides=one.phase != "step" and not waits, role=one.role,
        fixed=Fixed.by(sent, link, "copy", copy_seconds, size_bytes=one.size, rate=rate),
    )  # fmt: skip


def _transfers(setup: Setup, exchange: Exchange, stage: Stage, kind: str) -> list[Transfer]:
    """The copies between a GPU and its host that one kind of offload makes in a step, with bytes of each."""
    layout, precision = setup.layout, setup.precision
    if kind == "activations":
        size = saved_of(setup, stage).leaving * setup.offload_share
        return [Transfer("activations to host", DOWN, "forward", layout.micro_batches, size),
                Transfer("activations from host", UP, "backward", layout.micro_batches, size)]  # fmt: skip
    if kind == "parameters":  # of the copy that a micro-batch visits
        weights = _own(setup, stage.parameters, lambda one: weight_bytes(one, precision, setup.tuning))
        return [Transfer("parameters from host", UP, phase, layout.micro_batches, weights) for phase in PASSES]
    trained = _trained(stage)
    if setup.states_return:
        return _returned(setup, trained)
    share = host_updates(setup, trained)
    wide = FP32_BYTES if in_fp32(setup.framework, setup.offload) else 0
    gradients = _own(setup, trained, lambda one: wide or recipe_of(one, precision, setup.tuning).gradient_bytes)
    if passes_host_buffer(setup):
        found = _summed_transfers(setup, exchange, gradients, share * _own(setup, trained, lambda one: FP32_BYTES))
    else:
        times, dtype = where(copies_each(setup, exchange), layout.micro_batches, 1), "fp32" if wide else ""
        found = [Transfer("gradients to host", DOWN, "backward", times, gradients * share, dtype, role="copies")]
    weights = _own(setup, trained, lambda one: wide or recipe_of(one, precision, setup.tuning).parameter_bytes)
    if "parameters" not in setup.offload:  # else they stay where they are updated
        found.append(Transfer("parameters from host", UP, "step", 1, weights * share, "fp32" if wide else ""))
    elif by_sub_groups(setup):
        found.append(Transfer("updated parameters to host", DOWN, "step", 1, weights * (1 - share)))
    return found


def _returned(setup: Setup, trained: Sequence[tuple[Parameter, Number]]) -> list[Transfer]:
    """States that leave after an update and come back for the next one, beside what is computed between the two."""
    held = states_share(setup, trained) * _held(setup, trained)
    return [Transfer("states to host", DOWN, "forward", 1, held), Transfer("states from host", UP, "backward", 1, held)]


def _held(setup: Setup, trained: Sequence[tuple[Parameter, Number]]) -> Number:
    """Bytes of the states of what a rank trains."""
    return _own(
        setup, trained,
        lambda one: state_bytes(setup, recipe_of(one, setup.precision, setup.tuning), one) / one.elements,
    )  # fmt: skip


def _summed_transfers(setup: Setup, exchange: Exchange, size: Number, wide: Number) -> list[Transfer]:
    """Gradients of DeepSpeed on their way to an optimizer in host memory (0.19.8, runtime/zero): the sum that is kept
    there but made on the GPU goes to and fro, under ZeRO 3 also that of an only micro-batch; what the host updates then
    goes there in fp32."""
    layout, each = setup.layout, copies_each(setup, exchange)
    times = where(layout.zero >= 3, where(each, layout.micro_batches, 1),
                  where(each & (layout.micro_batches > 1), layout.micro_batches, 0))  # fmt: skip
    back = where(layout.zero >= 3, times, maximum(times - 1, 0))
    return [Transfer("gradients to host", DOWN, "backward", times, size, role="copies"),
            Transfer("gradients from host", UP, "backward", back, size, role="copies"),
            Transfer("fp32 gradients to host", DOWN, "backward", 1, wide, "fp32", role="copies")]  # fmt: skip


def _driven(setup: Setup, stage: Stage) -> list[Transfer]:
    """Between a host and its drives (deepspeedai/DeepSpeed runtime/zero/stage3.py): gradients are written in fp32 as
    the last micro-batch reduces them, and read with the states, which are updated in memory and written back, one group
    after another; parameters are read ahead of each pass, and written once updated."""
    found, layout, precision = [], setup.layout, setup.precision
    if "optimizer" in setup.drives:
        trained = _trained(stage)
        gradients = _own(setup, trained, lambda one: FP32_BYTES)
        held = _held(setup, trained)
        found += [Transfer("gradients to drives", WRITE, "backward", 1, gradients, "fp32", "last copies"),
                  Transfer("states, gradients from drives", READ, "step", 1, held + gradients, "fp32"),
                  Transfer("states to drives", WRITE, "step", 1, held, "fp32")]  # fmt: skip
    if "parameters" in setup.drives:
        share = driven_share(_own(setup, stage.parameters, lambda one: 1), KEPT_ELEMENTS)
        weights = share * _own(setup, stage.parameters, lambda one: weight_bytes(one, precision, setup.tuning))
        updated = share * _own(setup, _trained(stage), lambda one: weight_bytes(one, precision, setup.tuning))
        times = where(share > 0, layout.micro_batches, 0)
        found += [Transfer("parameters from drives", READ, phase, times, weights) for phase in PASSES]
        found.append(Transfer("parameters to drives", WRITE, "step", where(share > 0, 1, 0), updated))
    return found


def _trained(stage: Stage) -> list[tuple[Parameter, int]]:
    return [(one, count) for one, count in stage.held() if one.trains]


def _own(setup: Setup, parameters: Iterable[tuple[Parameter, int]], bytes_each: Callable[[Parameter], float]) -> Number:
    """Bytes of what one rank owns of some parameters, each sharded over the ranks that share it."""
    layout = setup.layout
    total: Number = 0
    for one, count in parameters:
        shards = where(layout.zero >= 1, sharding_group(layout, one.group), 1)
        total = total + offload_transfer_bytes(one.elements * count, bytes_each(one), shards)
    return total
