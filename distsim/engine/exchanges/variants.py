"""Other ways to agree on gradients than a plain all-reduce: ZeRO++, compression, parameter servers, local SGD."""

from __future__ import annotations

from distsim.arrays import Number, maximum, where
from distsim.engine.exchanges.data import by_layers, of_copies, same_span, sharings
from distsim.engine.exchanges.flows import SLOW_LINK, Fixed, Flow, Span
from distsim.engine.footprint.stored import Stored, trained_units
from distsim.engine.jobs.exchange import Exchange, whole_reductions
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.networks.network import Network
from distsim.errors import DistsimError
from distsim.formulas.collectives import all_reduce_wire_bytes
from distsim.formulas.traffic import (
    DTYPE_BYTES,
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
"""Bits of an element on the wire: of quantised weights, and of quantised gradients."""


def varied(setup: Setup, exchange: Exchange, stage: Stage, flows: list[Flow], network: Network) -> list[Flow]:
    """Data-parallel flows as the chosen variant has them."""
    if exchange.zeropp:
        return [new for flow in flows for new in _zeropp(exchange, flow, network)]
    if exchange.compress != "none":
        gradients = [flow for flow in flows if flow.role == "gradients"]
        others = [flow for flow in flows if flow.role != "gradients"]
        return others + _compressed(setup, exchange, stage, gradients)
    if exchange.sync == "parameter-server":
        return [new for flow in flows for new in _served(setup, exchange, stage, flow, network)]
    if exchange.sync == "local-sgd":
        averaged = [flow for flow in flows if _replicated(flow)]
        kept = [flow for flow in flows if not _replicated(flow)]
        return kept + _local_sgd(setup, exchange, stage, averaged)
    return flows


def _zeropp(exchange: Exchange, flow: Flow, network: Network) -> list[Flow]:
    """qwZ gathers int8 in forward, hpZ gathers from a copy inside the node in backward, qgZ reduces in int4."""
    placed = flow.span.placed(network)
    elements = flow.bytes_logical / DTYPE_BYTES[flow.dtype]
    if flow.role == "parameters" and flow.phase == "backward" and "hpz" in exchange.zeropp:
        return [flow._replace(span=flow.span._replace(ranks=placed.local))]
    if flow.role == "parameters" and "qwz" in exchange.zeropp:
        return [flow._replace(dtype="int8", bytes_logical=quantised_bytes(elements, INT8_BITS, BLOCK_ELEMENTS))]
    if flow.role == "gradients" and "qgz" in exchange.zeropp:
        near = flow.span._replace(ranks=placed.local)
        far = flow.span._replace(ranks=placed.nodes, stride=flow.span.stride * placed.local)
        size = quantised_bytes(elements, INT4_BITS, BLOCK_ELEMENTS)
        small = flow._replace(op="all_to_all", dtype="int4", role="varied")
        return [
            small._replace(purpose="gradients inside the node", span=near, bytes_logical=size),
            small._replace(purpose="gradients between nodes", span=far, bytes_logical=size / placed.local),
        ]
    return [flow]


def _compressed(setup: Setup, exchange: Exchange, stage: Stage, gradients: list[Flow]) -> list[Flow]:
    """Casts (torch's hooks of DDP); 1-bit Adam and LAMB (arXiv:2102.02888, 2104.06069) after warm-up; PowerSGD
    (arXiv:1905.13727)."""
    if exchange.compress in DTYPE_BYTES:
        return [_cast(flow, exchange.compress) for flow in gradients]
    if exchange.compress != "1bit":
        return _low_rank(setup, exchange, stage, gradients)
    out: list[Flow] = []
    for flow in gradients:
        elements = flow.bytes_logical / DTYPE_BYTES[flow.dtype]
        size, scales = elements * DTYPE_BYTES["sign"], flow.span.ranks * FP32_BYTES
        signs = flow._replace(purpose="gradient signs", dtype="sign", bytes_logical=size, role="varied")
        out += [signs._replace(op="all_to_all"), signs._replace(op="all_gather")]
        out.append(signs._replace(purpose="scales", op="all_gather", dtype="fp32", bytes_logical=scales))
    return out


def _cast(flow: Flow, dtype: str) -> Flow:
    """The same tensors in a narrower format."""
    size = flow.bytes_logical * DTYPE_BYTES[dtype] / DTYPE_BYTES[flow.dtype]
    return flow._replace(dtype=dtype, bytes_logical=size)


def _low_rank(setup: Setup, exchange: Exchange, stage: Stage, gradients: list[Flow]) -> list[Flow]:
    """Two factors of every matrix, and vectors whole, over the ranks that share them."""
    copies = [stage, *([] if stage.mirror is None else [stage.mirror])]
    held = [(one, unit.count) for copy in copies for unit in trained_units(copy) for one in unit.tensors]
    shared, together = sharings(setup)
    syncs = whole_reductions(setup, exchange)
    out: list[Flow] = []
    for sharing in shared:
        buckets = [flow for flow in gradients if same_span(flow.span, sharing.data)]
        if not buckets:  # all frozen on this stage, or on one rank alone
            continue
        own = [(one, count) for one, count in held if sharing.holds(one, together)]
        factors = sum(_factor_elements(one, exchange.compress_rank) * count for one, count in own if one.matrix)
        whole = sum(one.elements * count for one, count in own if not one.matrix)
        calls = sum(flow.calls for flow in buckets)
        for purpose, elements, times in (("low-rank factors", factors, 2), ("gradients of vectors", whole, 1)):
            size = elements * DTYPE_BYTES[buckets[0].dtype] * syncs / times / maximum(calls, 1)
            flow = buckets[0]._replace(purpose=purpose, calls=calls * times, bytes_logical=size, role="varied")
            out.append(flow)
    return out


def _factor_elements(tensor: Stored, rank: Number) -> Number:
    """Elements of the factors of a matrix, or of a stack of experts, each with a matrix of its own."""
    if tensor.group != "expert":
        return powersgd_elements(tensor.rows, tensor.columns, rank)
    return tensor.rows * powersgd_elements(tensor.inner, tensor.columns / tensor.inner, rank)


def _senders(setup: Setup, stage: Stage) -> Number:
    """Ranks of the whole job, as many of this stage's as send what all send: stages may hold unlike shares."""
    held = [sum(p.elements * count for p, count in one.held() if p.trains) for one in (stage, *build_stages(setup))]
    return setup.layout.gpus / setup.layout.pp * sum(held[1:]) / held[0]


def _served(setup: Setup, exchange: Exchange, stage: Stage, flow: Flow, network: Network) -> list[Flow]:
    """Gradients pushed to servers and parameters pulled back; each worker serves its share unless there are servers,
    which serve all ranks, whatever part of the model these hold."""
    if flow.role != "gradients":
        return [flow]
    placed = flow.span.placed(network)
    ranks = flow.span.ranks
    servers = exchange.servers or ranks
    own = where(exchange.servers == 0, (ranks - 1) / ranks, 1.0)  # a worker's own share does not travel
    rate = network.nic_rate if exchange.servers else where(placed.nodes > 1, network.nic_rate, network.intra_rate)
    if isinstance(rate, (int, float)) and rate <= 0:
        raise DistsimError(f"{exchange.servers} parameter servers need a network", "name a --cluster that has one")
    size = flow.bytes_logical * own
    workers = _senders(setup, stage) if exchange.servers else ranks
    link = network.inter if exchange.servers else where(placed.nodes > 1, network.inter, network.intra)
    sent = where(exchange.servers == 0, size, 0.0)  # what the worker sends as a server
    push = Fixed.by(size, link, "direct", parameter_server_seconds, size_bytes=size, workers=workers, servers=servers,
                    rate=rate, hop=network.hop)  # fmt: skip
    pull = push._replace(wire_bytes=sent)
    return [
        flow._replace(purpose="gradients pushed", op="push", fixed=push, role="varied"),
        flow._replace(purpose="parameters pulled", op="pull", phase="step", fixed=pull, role="varied"),
    ]


def _replicated(flow: Flow) -> bool:
    """Whether it adds up gradients of replicas, which local SGD puts off."""
    return flow.role in ("gradients", "replicas") and flow.op == "all_reduce"


def _local_sgd(setup: Setup, exchange: Exchange, stage: Stage, flows: list[Flow]) -> list[Flow]:
    """Replicas take steps of their own and average parameters (or outer gradients: DiLoCo) now and then; over a slow
    link, the rings of all ranks of a replica go at once."""
    syncs = whole_reductions(setup, exchange)
    if stage.mirror is not None:
        syncs = where(by_layers(setup) > 0, of_copies(syncs, 2), syncs)
    sizes: dict[Span, tuple[Flow, Number]] = {}
    for flow in flows:
        size = flow.bytes_logical * flow.calls / syncs + sizes.get(flow.span, (flow, 0))[1]
        sizes[flow.span] = (flow, size)
    out: list[Flow] = []
    for span, (flow, size) in sizes.items():
        fixed = None
        if exchange.sync_bytes_per_second:
            rings = _senders(setup, stage) / span.ranks
            fixed = Fixed.by(
                all_reduce_wire_bytes(size, span.ranks), SLOW_LINK, "ring", slow_ring_seconds, size_bytes=size,
                ranks=span.ranks, rings=rings, rate=exchange.sync_bytes_per_second,
            )  # fmt: skip
        out.append(
            flow._replace(
                purpose="replicas averaged",
                phase="step",
                calls=1,
                bytes_logical=size,
                hides=False,
                every=exchange.sync_every,
                fixed=fixed,
                role="varied",
            )
        )
    return out
