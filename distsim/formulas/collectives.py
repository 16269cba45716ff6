"""Bytes that collectives move, and their time by the textbook algorithms in the latency-bandwidth model.

``size_bytes`` is the size nccl-tests counts: the vector for all_reduce, broadcast, reduce and send_recv; the whole
gathered, scattered or exchanged buffer of one rank for the others. Wire bytes are the average over the ranks of a
group; what is sent in a group is what is received in it.
"""

from __future__ import annotations

from distsim.arrays import Number, ceil_log2, maximum, where
from distsim.formula import formula

RING = 3
"""Chips from which on an axis of a torus can be a ring; of two, both neighbours are the same chip."""
_THAKUR = "Thakur, Rabenseifner, Gropp 2005, Optimization of Collective Communication Operations in MPICH"


@formula(unit="B", source="Patarasuk, Yuan 2009, Bandwidth optimal all-reduce algorithms")
def all_reduce_wire_bytes(size_bytes: Number, ranks: Number) -> Number:
    """Bytes one rank sends in a ring or tree all-reduce: n-1 of n parts, twice; no algorithm with messages sends less.

    In-switch reduction (NVLS, SHARP) sends less, but bus bandwidth is still defined by this volume.
    """
    return 2 * (ranks - 1) / ranks * size_bytes


@formula(unit="B", source="NVIDIA/nccl src/device/all_reduce.h, runNvls: multimem.ld_reduce, then multimem.st")
def nvls_link_bytes(size_bytes: Number, ranks: Number) -> Number:
    """Bytes that one rank's link carries in either direction while the switch reduces: its tensor once to be added up
    by others' reads, and the sums of its own n-th part to be given to all."""
    return size_bytes * (1 + 1 / ranks)


@formula(unit="B", source=_THAKUR)
def all_gather_wire_bytes(size_bytes: Number, ranks: Number) -> Number:
    """Bytes one rank sends to gather ``size_bytes`` everywhere; reduce_scatter and all_to_all send the same."""
    return (ranks - 1) / ranks * size_bytes


@formula(unit="B", source=_THAKUR)
def broadcast_wire_bytes(size_bytes: Number, ranks: Number) -> Number:
    """Bytes one rank sends on average in a broadcast or reduce: every rank but one must receive (send) the vector."""
    return (ranks - 1) / ranks * size_bytes


@formula(unit="B", source=_THAKUR)
def scatter_wire_bytes(size_bytes: Number, ranks: Number) -> Number:
    """Bytes one rank sends on average in a direct scatter or gather; the root alone moves n times as much."""
    return (ranks - 1) / (ranks * ranks) * size_bytes


@formula(unit="B", source="definition: a pair of ranks, one message")
def send_recv_wire_bytes(size_bytes: Number, ranks: Number) -> Number:
    """Bytes one rank sends to its neighbour; none when it is alone."""
    return where(ranks > 1, size_bytes, 0 * size_bytes)


@formula(unit="s", source="Hockney 1994, The communication challenge for MPP; NVIDIA/nccl graph/tuning.cc")
def call_seconds(latency: Number, latency_factor: Number, size_bytes: Number, bandwidth: Number) -> Number:
    """Time of one call by one algorithm: a latency, with its measured factor, and bytes at a bandwidth that has its
    own."""
    return latency * latency_factor + size_bytes / bandwidth


@formula(unit="s", source="calls of one kind follow each other")
def all_calls_seconds(calls: Number, seconds_each: Number, every_steps: Number) -> Number:
    """Time of all calls in one step, the mean over steps where they come in some only."""
    return calls * seconds_each / every_steps


@formula(unit="1", source="NVIDIA nccl-tests doc/PERFORMANCE.md")
def all_reduce_bus_factor(ranks: Number) -> Number:
    """Bus bandwidth over algorithm bandwidth of an all-reduce."""
    return 2 * (ranks - 1) / ranks


@formula(unit="1", source="NVIDIA nccl-tests doc/PERFORMANCE.md")
def gather_bus_factor(ranks: Number) -> Number:
    """Bus bandwidth over algorithm bandwidth of all_gather, reduce_scatter and all_to_all."""
    return (ranks - 1) / ranks


@formula(unit="s", source=_THAKUR)
def ring_all_reduce_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """Ring all-reduce: reduce-scatter and all-gather, 2(n-1) messages of one n-th each."""
    return 2 * (ranks - 1) * (hop + size_bytes / ranks / rate)


@formula(unit="s", source=_THAKUR)
def ring_all_gather_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """Ring all-gather or reduce-scatter: n-1 messages of one n-th each."""
    return (ranks - 1) * (hop + size_bytes / ranks / rate)


@formula(unit="s", source=_THAKUR)
def halving_doubling_all_reduce_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """Rabenseifner's all-reduce: recursive halving, then doubling; ring bytes in 2 log2(n) messages.

    A group that is no power of two folds its surplus ranks in and out, two more messages of the whole vector.
    """
    rounds = ceil_log2(ranks)
    surplus = where(2**rounds > ranks, 1, 0)
    core = 2 ** (rounds - surplus)
    body = 2 * (rounds - surplus) * hop + 2 * (core - 1) / core * size_bytes / rate
    return body + 2 * surplus * (hop + size_bytes / rate)


@formula(unit="s", source=_THAKUR)
def recursive_doubling_all_reduce_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """Recursive doubling: log2(n) exchanges of the whole vector (two more for groups that are no power of two)."""
    rounds = ceil_log2(ranks)
    surplus = where(2**rounds > ranks, 1, 0)
    return (rounds + surplus) * (hop + size_bytes / rate)


@formula(unit="s", source=_THAKUR)
def recursive_doubling_all_gather_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """All-gather (or reduce-scatter by halving): log2(n) messages, each twice the last."""
    return ceil_log2(ranks) * hop + (ranks - 1) / ranks * size_bytes / rate


@formula(unit="s", source=_THAKUR)
def binomial_tree_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """Broadcast or reduce down a binomial tree: the whole vector in each of log2(n) rounds."""
    return ceil_log2(ranks) * (hop + size_bytes / rate)


@formula(unit="s", source="van de Geijn 1994, scatter then all-gather")
def scatter_all_gather_broadcast_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """Broadcast of a long vector: binomial scatter, then ring all-gather."""
    return (ceil_log2(ranks) + ranks - 1) * hop + 2 * (ranks - 1) / ranks * size_bytes / rate


@formula(unit="s", source="Sanders, Speck, Traeff 2009, Two-tree algorithms for full bandwidth broadcast")
def double_tree_all_reduce_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """Pipelined all-reduce on two complementary binary trees: 2 log2(n) hops, full bandwidth on every link."""
    return 2 * ceil_log2(ranks) * hop + 2 * (ranks - 1) / ranks * size_bytes / rate


@formula(unit="s", source="pairwise exchange, Thakur et al. 2005")
def direct_exchange_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """All-to-all (or the root's side of scatter and gather): n-1 messages of one n-th each."""
    return (ranks - 1) * (hop + size_bytes / ranks / rate)


@formula(unit="s", source="one message in the latency-bandwidth model")
def send_recv_seconds(size_bytes: Number, ranks: Number, hop: Number, rate: Number) -> Number:
    """One message to a neighbour; nothing when the rank is alone."""
    return where(ranks > 1, hop + size_bytes / rate, 0 * size_bytes)


@formula(unit="s", source="Cho et al. 2019, BlueConnect: reduce-scatter inside, all-reduce across, all-gather inside")
def hierarchical_all_reduce_seconds(
    size_bytes: Number, local: Number, nodes: Number, local_hop: Number, local_rate: Number, hop: Number, rate: Number
) -> Number:
    """Two-level ring all-reduce; each of ``local`` ranks takes its share of the vector across the ``nodes``."""
    inside = 2 * ring_all_gather_seconds(size_bytes, local, local_hop, local_rate)
    return inside + ring_all_reduce_seconds(size_bytes / local, nodes, hop, rate)


@formula(unit="s", source="Jouppi et al. 2023, TPU v4; jax-ml/scaling-book, chapter on sharded matrices")
def torus_all_gather_seconds(
    size_bytes: Number,
    ranks: Number,
    axes: Number,
    longest_axis: Number,
    hop: Number,
    link_rate: Number,
    wrap: Number = RING,
) -> Number:
    """All-gather over a torus: all ``axes`` at once, both directions of each. An axis shorter than ``wrap`` is a line:
    a chip at its end receives everything over one link."""
    directions = where(longest_axis >= wrap, 2, 1)
    streaming = (ranks - 1) / ranks * size_bytes / (axes * directions * link_rate)
    return maximum(axes * (longest_axis // 2) * hop, streaming)
