"""Latency and bandwidth of NCCL's algorithms as its tuner computes them, on numbers; constants come from presets.

``size / bandwidth + latency`` is the predicted time of an (algorithm, protocol) pair, with ``bandwidth`` the
algorithm bandwidth. ``graph`` is channels times bytes per second of one channel.
"""

from __future__ import annotations

from collections.abc import Sequence

from distsim.arrays import Number, floor, log2, maximum, minimum, take, where
from distsim.formula import formula

_TUNING = "NCCL 2.30.7, src/graph/tuning.cc"
_UNIT_BYTES = 64  # the size at which NCCL's table of tree corrections begins (tuning.cc)


@formula(unit="s", source=_TUNING)
def nccl_ring_latency(base: Number, steps: Number, network_steps: Number, intra: Number, network: Number) -> Number:
    """Latency of a ring, ``network_steps`` of whose steps cross nodes."""
    return base + (steps - network_steps) * intra + network_steps * network


@formula(unit="s", source=_TUNING)
def nccl_chain_latency(base: Number, ranks: Number, nodes: Number, intra: Number, network: Number) -> Number:
    """Seconds until the last rank of a broadcast, or the root of a reduce, has its first chunk, which hops through all
    ranks in turn; what follows comes at the ring's bandwidth. NCCL's tuner counts one of these hops."""
    return base + (ranks - nodes) * intra + (nodes - 1) * network


@formula(unit="s", source=_TUNING)
def nccl_tree_latency(base: Number, local: Number, nodes: Number, intra: Number, network: Number) -> Number:
    """Latency of a tree all-reduce: up and down a chain inside each node and a binary tree of nodes."""
    return base + 2 * ((local - 1) * intra + floor(log2(nodes)) * network)


@formula(unit="1", source="NCCL 2.30.7, src/enqueue.cc: one more channel for every so many bytes under the LL protocol")
def nccl_channels_used(chunk_bytes: Number, channel_bytes: Number, channels: Number) -> Number:
    """Channels over which a short message (in a ring: each rank's part of it) is spread."""
    return minimum(maximum(chunk_bytes / channel_bytes, 1.0), maximum(channels, 1.0))


@formula(unit="s", source=_TUNING)
def nccl_nvls_latency(nodes: Number, intra: Number, network: Number) -> Number:
    """Latency of an in-switch reduction, with one network reduction when SHARP joins several nodes."""
    return intra + where(nodes > 1, network, 0.0)


@formula(unit="s", source=_TUNING)
def nccl_nvls_tree_latency(nodes: Number, intra: Number, network: Number) -> Number:
    """Latency of in-switch reductions joined by a tree of nodes."""
    return intra + 2 * floor(log2(nodes)) * network


@formula(unit="s", source=_TUNING)
def nccl_collnet_direct_latency(local: Number, fan_out: Number, intra: Number, network: Number) -> Number:
    """Latency of SHARP with direct exchange inside the node; ``fan_out`` is paid per additional GPU of the node."""
    return 2 * (minimum(1, local - 1) * intra + (local - 1) * fan_out) + network


@formula(unit="s", source=_TUNING)
def nccl_collnet_chain_latency(local: Number, intra: Number, network: Number) -> Number:
    """Latency of SHARP at the end of a chain of the node's GPUs."""
    return 2 * (local - 1) * intra + network


@formula(unit="s", source=_TUNING)
def nccl_pat_latency(base: Number, ranks: Number, network: Number, overlap: Number, per_rank: Number) -> Number:
    """Latency of parallel aggregated trees: log2(n) network hops, ``overlap`` of them at a time, and work per rank."""
    return base + floor(log2(ranks)) * network / overlap + per_rank * ranks


@formula(unit="B/s", source=_TUNING)
def nccl_ring_bandwidth(bus: Number, ranks: Number, steps: Number) -> Number:
    """Algorithm bandwidth of a ring (or in-switch reduction) whose links carry ``bus`` bytes per second."""
    return bus * ranks / steps


@formula(unit="1", source="fitted law: see docs/collectives.md, section on short rings")
def ring_fill(steps: Number, last_step: Number) -> Number:
    """Share of its rate that a ring reaches inside a domain: after the last step comes a copy that sends nothing."""
    return steps / (steps + last_step)


@formula(
    unit="B/s",
    source="NCCL src/graph/paths.cc, ncclTopoGetNchannels: two channels to a peer on another node; measured: "
    "docs/collectives.md, limits of what is known",
)
def pair_rate(nic: Number, two_channels: Number) -> Number:
    """What a message to one peer makes of the sender's ``nic``: all of a slow one, half of one that is faster than the
    ``two_channels`` that carry it."""
    return minimum(nic, maximum(two_channels, nic / 2))


@formula(unit="B/s", source=_TUNING)
def nccl_tree_bandwidth(bus: Number) -> Number:
    """Algorithm bandwidth of a tree all-reduce: every byte goes up and comes down."""
    return bus / 2


@formula(unit="B/s", source=_TUNING)
def nccl_nvls_bus_bandwidth(graph: Number, heads: Number, efficiency: Number) -> Number:
    """Bus bandwidth of an in-switch all-reduce; a head's own share of the traffic does not count."""
    return 2 * graph * efficiency * (heads - 1) / maximum(heads, 1)


@formula(unit="B/s", source="fitted law: see docs/collectives.md, section on NVLink SHARP")
def nvls_graph_rate(gpu_rate: Number, heads: Number) -> Number:
    """Rate at which ``heads`` GPUs feed the switch: each also stores its reduced part, 1 + 1/heads of its bytes."""
    return gpu_rate * heads / (heads + 1)


@formula(unit="B/s", source=_TUNING)
def nccl_collnet_direct_bandwidth(graph: Number, fan: Number, efficiency: Number) -> Number:
    """Bus bandwidth of SHARP with direct exchange, twice what the algorithm has; ``fan`` is GPUs per channel."""
    return graph / maximum(fan - (fan - 1) / 2, 1) * efficiency


@formula(unit="1", source=_TUNING)
def nccl_tree_correction(factors: Sequence[float], size_bytes: Number) -> Number:
    """Share of its bandwidth that a tree reaches at a size: NCCL's table at powers of two, linear in between.

    NCCL steps from entry to entry, which lets a larger message take less time; the line keeps time monotone.
    """
    return _on_line(factors, size_bytes / _UNIT_BYTES)


@formula(unit="1", source="NCCL src/enqueue.cc: the chunks of NVLS grow with the message; measured shares")
def nccl_chunk_share(shares: Sequence[float], each_bytes: Number, least_bytes: float) -> Number:
    """Share of its bandwidth that in-switch reduction reaches at a number of bytes per channel and head: one entry per
    power of two from ``least_bytes`` on, linear in between."""
    return _on_line(shares, each_bytes / least_bytes)


def _on_line(entries: Sequence[float], times: Number) -> Number:
    """The entry at the power of two that is ``times``, and on a line between two of them."""
    last = len(entries) - 1
    place = minimum(maximum(log2(maximum(times, 1)), 0.0), 1.0 * last)
    low = floor(place)
    below, above = take(entries, low), take(entries, minimum(low + 1, last))
    return below + (place - low) * (above - below)


@formula(unit="s", source="one message per peer, posted in turn; constants fitted, see docs/collectives.md")
def direct_latency(
    base: Number, hop: Number, local_peers: Number, far_peers: Number, intra: Number, post: Number
) -> Number:
    """Latency of direct exchange: one hop, a step for every near peer, and the posting of a send for every far one."""
    return base + hop + local_peers * intra + far_peers * post


@formula(unit="1", source="every peer gets an equal part of a rank's buffer")
def peers_share(ranks: Number, peers: Number) -> Number:
    """Algorithm bandwidth over link bandwidth when a buffer's parts for ``peers`` ranks share one link."""
    return ranks / maximum(peers, 1)


@formula(unit="1", source="fitted: all-to-all on 2 to 540 Polaris nodes, see docs/collectives.md")
def dragonfly_share(nodes: Number, taper: Number) -> Number:
    """Share of NIC bandwidth left to an all-to-all as groups of switches share fewer links: a loss per doubling."""
    return (1 - taper) ** maximum(log2(maximum(nodes, 1)) - 1, 0.0)
