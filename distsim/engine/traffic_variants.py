"""Other ways to agree on gradients than a plain all-reduce: ZeRO++, compression, parameter servers, local SGD."""

from __future__ import annotations

from distsim.arrays import Number, maximum, where
from distsim.engine.exchange import Exchange
from distsim.engine.flows import Fixed, Flow, Span
from distsim.engine.network import Network
from distsim.engine.resolve import Setup
from distsim.engine.saved import saved_of
from distsim.engine.stages import Stage
from distsim.engine.stored import trained_units
from distsim.engine.tuning import weight_bytes
from distsim.errors import DistsimError
from distsim.formulas.collectives import all_reduce_wire_bytes
from distsim.formulas.traffic import (
    DTYPE_BYTES,
    offload_transfer_bytes,
    parameter_server_seconds,
    powersgd_elements,
    quantised_bytes,
    slow_ring_seconds,
)
from distsim.units import FP32_BYTES

# Elements that share one fp32 scale on the wire (Wang et al. 2023, ZeRO++, arXiv:2306.10209, section 3.1: block-based
# quantisation; DeepSpeed csrc/quantization uses groups of this size).
BLOCK_ELEMENTS = 2048
INT8_BITS, INT4_BITS = 8, 4
DOWN, UP = "device_to_host", "host_to_device"


def varied(setup: Setup, exchange: Exchange, stage: Stage, flows: list[Flow], network: Network) -> list[Flow]:
    """Data-parallel flows as the chosen variant has them."""
    if exchange.zeropp:
        return [new for flow in flows for new in _zeropp(exchange, flow, network)]
    if exchange.compress != "none":
        return [flow for flow in flows if flow.purpose != "gradients"] + _compressed(setup, exchange, stage, flows)
    if exchange.sync == "parameter-server":
        return [new for flow in flows for new in _served(exchange, flow, network)]
    if exchange.sync == "local-sgd":
        kept = [f for f in flows if not (f.purpose.startswith("gradients") and f.op == "all_reduce")]
        return kept + _local_sgd(setup, exchange, flows)
    return flows


def _zeropp(exchange: Exchange, flow: Flow, network: Network) -> list[Flow]:
    """qwZ gathers int8 in forward, hpZ gathers from a copy inside the node in backward, qgZ reduces in int4."""
    placed = flow.span.placed(network)
    if isinstance(placed.nodes, (int, float)) and placed.nodes <= 1:
        raise DistsimError(
            f"ZeRO++ saves traffic between nodes, but the {flow.span.ranks} data parallel ranks fit one domain",
            f"use more than {network.domain} GPUs, or leave --zeropp out",
        )
    elements = flow.bytes_logical / DTYPE_BYTES[flow.dtype]
    if flow.purpose == "parameters" and flow.phase == "backward" and "hpz" in exchange.zeropp:
        return [flow._replace(span=flow.span._replace(ranks=placed.local))]
    if flow.purpose == "parameters" and "qwz" in exchange.zeropp:
        return [flow._replace(dtype="int8", bytes_logical=quantised_bytes(elements, INT8_BITS, BLOCK_ELEMENTS))]
    if flow.purpose == "gradients" and "qgz" in exchange.zeropp:
        near = flow.span._replace(ranks=placed.local)
        far = flow.span._replace(ranks=placed.nodes, stride=flow.span.stride * placed.local)
        size = quantised_bytes(elements, INT4_BITS, BLOCK_ELEMENTS)
        small = flow._replace(op="all_to_all", dtype="int4")
        return [
            small._replace(purpose="gradients inside the node", span=near, bytes_logical=size),
            small._replace(purpose="gradients between nodes", span=far, bytes_logical=size / placed.local),
        ]
    return [flow]


def _compressed(setup: Setup, exchange: Exchange, stage: Stage, flows: list[Flow]) -> list[Flow]:
    """1-bit Adam and LAMB (arXiv:2102.02888, 2104.06069) after warm-up; PowerSGD (arXiv:1905.13727)."""
    gradients = [flow for flow in flows if flow.purpose == "gradients"]
    out: list[Flow] = []
    if not gradients:  # all frozen on this stage
        return out
    if exchange.compress == "1bit":
        for flow in gradients:
            elements = flow.bytes_logical / DTYPE_BYTES[flow.dtype]
            size, scales = elements * DTYPE_BYTES["sign"], flow.span.ranks * FP32_BYTES
            out.append(flow._replace(purpose="gradient signs", op="all_to_all", dtype="sign", bytes_logical=size))
            out.append(flow._replace(purpose="gradient signs", op="all_gather", dtype="sign", bytes_logical=size))
            out.append(flow._replace(purpose="scales", op="all_gather", dtype="fp32", bytes_logical=scales))
        return out
    whole: Number = 0
    factors: Number = 0
    for unit in trained_units(stage):
        for tensor in unit.tensors:
            small = powersgd_elements(tensor.rows, tensor.columns, exchange.compress_rank)
            factors = factors + (small if tensor.matrix else 0) * unit.count
            whole = whole + (0 if tensor.matrix else tensor.elements) * unit.count
    calls = sum(flow.calls for flow in gradients)
    first = gradients[0]
    for purpose, elements, times in (("low-rank factors", factors, 2), ("gradients of vectors", whole, 1)):
        size = elements * DTYPE_BYTES[first.dtype] / times / maximum(calls, 1)
        out.append(first._replace(purpose=purpose, calls=calls * times, bytes_logical=size))
    return out


def _served(exchange: Exchange, flow: Flow, network: Network) -> list[Flow]:
    """Gradients pushed to servers and parameters pulled back; each worker serves its share unless there are servers."""
    if flow.purpose != "gradients":
        return [flow]
    placed = flow.span.placed(network)
    ranks = flow.span.ranks
    servers = exchange.servers or ranks
    own = where(exchange.servers == 0, (ranks - 1) / ranks, 1.0)  # a worker's own share does not travel
    rate = network.nic_rate if exchange.servers else where(placed.nodes > 1, network.nic_rate, network.intra_rate)
    if isinstance(rate, (int, float)) and rate <= 0:
        raise DistsimError(f"{exchange.servers} parameter servers need a network", "name a --cluster that has one")
    size = flow.bytes_logical * own
    seconds = parameter_server_seconds(size, ranks, servers, rate, network.hop)
    link = network.inter if exchange.servers else where(placed.nodes > 1, network.inter, network.intra)
    sent = where(exchange.servers == 0, size, 0.0)  # what the worker sends as a server
    return [
        flow._replace(purpose="gradients pushed", op="push", fixed=Fixed(seconds, size, link, "direct")),
        flow._replace(purpose="parameters pulled", op="pull", phase="step", fixed=Fixed(seconds, sent, link, "direct")),
    ]


def _local_sgd(setup: Setup, exchange: Exchange, flows: list[Flow]) -> list[Flow]:
    """Replicas take steps of their own and average parameters (or outer gradients: DiLoCo) now and then."""
    syncs = exchange.syncs(setup.layout.micro_batches)
    sizes: dict[Span, tuple[Flow, Number]] = {}
    for flow in flows:
        if flow.purpose.startswith("gradients") and flow.op == "all_reduce":
            size = flow.bytes_logical * flow.calls / syncs + sizes.get(flow.span, (flow, 0))[1]
            sizes[flow.span] = (flow, size)
    out: list[Flow] = []
    for span, (flow, size) in sizes.items():
        fixed = None
        if exchange.sync_bytes_per_second:
            seconds = slow_ring_seconds(size, span.ranks, exchange.sync_bytes_per_second)
            fixed = Fixed(seconds, all_reduce_wire_bytes(size, span.ranks), "slow link", "ring")
        out.append(
            flow._replace(
                purpose="replicas averaged",
                phase="step",
                calls=1,
                bytes_logical=size,
                hides=False,
                every=exchange.sync_every,
                fixed=fixed,
            )
        )
    return out


def offload_flows(setup: Setup, stage: Stage) -> list[Flow]:
    """Transfers over the host link (PCIe or NVLink-C2C) of offloaded states (arXiv:2101.06840, 2104.07857)."""
    if not setup.offload:
        return []
    host = setup.accelerator.host
    rate = None if host is None else host.measured or host.rate
    if host is None or not rate:
        raise DistsimError(f"the host link of {setup.accelerator.name} is not known", "leave --offload out")
    link = f"{host.kind}-{host.generation}" if host.generation else host.kind
    return [
        Flow(
            purpose,
            op,
            Span("host", 1, 1),
            setup.precision.gather_dtype,
            phase,
            calls,
            size,
            hides=phase != "step",
            fixed=Fixed(size / rate, size if op == DOWN else 0.0, link, "copy"),
        )
        for kind in setup.offload
        for purpose, op, phase, calls, size in _transfers(setup, stage, kind)
    ]


def _transfers(setup: Setup, stage: Stage, kind: str) -> list[tuple[str, str, str, Number, Number]]:
    """(purpose, op, phase, calls, bytes) of one kind of offload."""
    y, precision = setup.layout, setup.precision
    if kind == "activations":
        size = saved_of(setup, stage).layers
        return [("activations to host", DOWN, "forward", y.micro_batches, size),
                ("activations from host", UP, "backward", y.micro_batches, size)]  # fmt: skip
    shards = where(y.zero >= 1, y.zero_group, 1)
    if kind == "parameters":
        held = sum(
            p.elements * count * weight_bytes(p, precision, setup.tuning) for p, count in stage.parameters()
        )  # fmt: skip
        weights = offload_transfer_bytes(held, 1, shards)
        return [("parameters from host", UP, phase, y.micro_batches, weights) for phase in ("forward", "backward")]
    elements = sum(parameter.elements * count for parameter, count in stage.parameters() if parameter.trains)
    weights = offload_transfer_bytes(elements, precision.parameter_bytes, shards)
    gradients = offload_transfer_bytes(elements, precision.gradient_bytes, shards)
    return [("gradients to host", DOWN, "backward", 1, gradients), ("parameters from host", UP, "step", 1, weights)]
