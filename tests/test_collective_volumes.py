"""Volumes and closed forms of collectives against the published laws and against counted messages."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest

from distsim.engine.networks.crossing import WIRE
from distsim.engine.networks.pricing import OPS
from distsim.formulas import collectives as formulas
from distsim.formulas import nccl

SIZE, HOP, RATE = 2.0**26, 3e-6, 40e9
POWERS = (2, 4, 8, 16, 64)
COUNTS = (2, 3, 4, 5, 7, 8, 16)


class Network:
    """Rounds of messages: every round lasts one hop and its largest message; what ranks hold is checked."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.seconds = ranks, 0.0
        self.sent, self.received = [0.0] * ranks, [0.0] * ranks

    def round(self, messages: list[tuple[int, int, float]]) -> None:
        for source, target, size in messages:
            self.sent[source] += size
            self.received[target] += size
        self.seconds += HOP + max(size for _, _, size in messages) / RATE


def ring_all_reduce(ranks: int) -> tuple[Network, list[list[set[int]]]]:
    net = Network(ranks)
    held = [[{rank} for _ in range(ranks)] for rank in range(ranks)]  # held[rank][part]: whose values are summed
    for step in range(2 * (ranks - 1)):
        moves = [(rank, (rank + 1) % ranks, (rank - step) % ranks) for rank in range(ranks)]
        parts = [(target, part, set(held[source][part])) for source, target, part in moves]
        for target, part, content in parts:
            held[target][part] = held[target][part] | content if step < ranks - 1 else content
        net.round([(source, target, SIZE / ranks) for source, target, _ in moves])
    return net, held


def recursive_doubling(ranks: int) -> tuple[Network, list[set[int]]]:
    net, held = Network(ranks), [{rank} for rank in range(ranks)]
    for bit in range(int(math.log2(ranks))):
        pairs = [(rank, rank ^ (1 << bit)) for rank in range(ranks)]
        held = [held[rank] | held[rank ^ (1 << bit)] for rank in range(ranks)]
        net.round([(source, target, SIZE) for source, target in pairs])
    return net, held


def halving_doubling(ranks: int) -> tuple[Network, list[dict[int, set[int]]]]:
    net = Network(ranks)
    held = [{part: {rank} for part in range(ranks)} for rank in range(ranks)]
    distances = [ranks >> (step + 1) for step in range(int(math.log2(ranks)))]
    for distance in distances:  # reduce-scatter: keep the half of the parts on one's own side
        new = []
        for rank in range(ranks):
            keep = [part for part in held[rank] if (part & distance) == (rank & distance)]
            new.append({part: held[rank][part] | held[rank ^ distance][part] for part in keep})
        net.round([(rank, rank ^ distance, len(new[rank]) * SIZE / ranks) for rank in range(ranks)])
        held = new
    for distance in reversed(distances):
        size = len(held[0]) * SIZE / ranks
        held = [{**held[rank], **held[rank ^ distance]} for rank in range(ranks)]
        net.round([(rank, rank ^ distance, size) for rank in range(ranks)])
    return net, held


def binomial_broadcast(ranks: int) -> tuple[Network, set[int]]:
    net, have = Network(ranks), {0}
    while len(have) < ranks:
        moves = [(rank, rank + len(have)) for rank in sorted(have) if rank + len(have) < ranks]
        net.round([(source, target, SIZE) for source, target in moves])
        have |= {target for _, target in moves}
    return net, have


@pytest.mark.parametrize("ranks", COUNTS)
def test_ring_all_reduce_sends_what_the_law_says_and_sums_everything(ranks: int) -> None:
    net, held = ring_all_reduce(ranks)
    assert all(content == set(range(ranks)) for row in held for content in row)
    assert net.sent == pytest.approx([formulas.all_reduce_wire_bytes(SIZE, ranks)] * ranks)
    assert net.received == pytest.approx(net.sent)
    assert net.seconds == pytest.approx(formulas.ring_all_reduce_seconds(SIZE, ranks, HOP, RATE))


@pytest.mark.parametrize("ranks", POWERS)
def test_recursive_doubling_counts(ranks: int) -> None:
    net, held = recursive_doubling(ranks)
    assert all(content == set(range(ranks)) for content in held)
    assert net.sent == pytest.approx([math.log2(ranks) * SIZE] * ranks)  # whole vectors, in few rounds
    assert net.seconds == pytest.approx(formulas.recursive_doubling_all_reduce_seconds(SIZE, ranks, HOP, RATE))


@pytest.mark.parametrize("ranks", POWERS)
def test_halving_doubling_sends_ring_bytes_in_few_rounds(ranks: int) -> None:
    net, held = halving_doubling(ranks)
    assert all(set(row) == set(range(ranks)) and all(len(one) == ranks for one in row.values()) for row in held)
    assert net.sent == pytest.approx([formulas.all_reduce_wire_bytes(SIZE, ranks)] * ranks)
    assert net.seconds == pytest.approx(formulas.halving_doubling_all_reduce_seconds(SIZE, ranks, HOP, RATE))


@pytest.mark.parametrize("ranks", (3, 5, 6, 7, 12))
def test_ranks_beyond_a_power_of_two_fold_in_and_out(ranks: int) -> None:
    core = 2 ** int(math.log2(ranks))
    folds = Network(ranks)
    for into in (True, False):
        pairs = [(rank, rank - core) if into else (rank - core, rank) for rank in range(core, ranks)]
        folds.round([(*pair, SIZE) for pair in pairs])
    for run, closed in (
        (recursive_doubling, formulas.recursive_doubling_all_reduce_seconds),
        (halving_doubling, formulas.halving_doubling_all_reduce_seconds),
    ):
        assert run(core)[0].seconds + folds.seconds == pytest.approx(closed(SIZE, ranks, HOP, RATE))


@pytest.mark.parametrize("ranks", COUNTS)
def test_binomial_broadcast_reaches_all_and_average_is_the_law(ranks: int) -> None:
    net, have = binomial_broadcast(ranks)
    assert have == set(range(ranks))
    assert sum(net.sent) == sum(net.received) == pytest.approx(ranks * formulas.broadcast_wire_bytes(SIZE, ranks))
    assert net.seconds == pytest.approx(formulas.binomial_tree_seconds(SIZE, ranks, HOP, RATE))


@pytest.mark.parametrize("ranks", COUNTS)
def test_direct_exchange_sends_all_but_ones_own_part(ranks: int) -> None:
    net = Network(ranks)
    for shift in range(1, ranks):
        net.round([(rank, (rank + shift) % ranks, SIZE / ranks) for rank in range(ranks)])
    assert net.sent == pytest.approx([WIRE["all_to_all"](SIZE, ranks)] * ranks)
    assert net.seconds == pytest.approx(formulas.direct_exchange_seconds(SIZE, ranks, HOP, RATE))


@pytest.mark.parametrize("ranks", COUNTS)
def test_all_reduce_is_reduce_scatter_and_all_gather(ranks: int) -> None:
    assert WIRE["all_reduce"](SIZE, ranks) == pytest.approx(
        WIRE["reduce_scatter"](SIZE, ranks) + WIRE["all_gather"](SIZE, ranks)
    )


def test_published_volumes() -> None:
    assert WIRE["all_reduce"](800, 8) == 1400  # 2 (n-1)/n
    assert WIRE["all_gather"](800, 8) == WIRE["reduce_scatter"](800, 8) == WIRE["all_to_all"](800, 8) == 700
    assert WIRE["scatter"](800, 8) * 8 == 700  # the root alone sends
    assert WIRE["send_recv"](800, 8) == 800


@pytest.mark.parametrize("op", OPS)
def test_one_rank_sends_nothing_and_arrays_equal_floats(op: str) -> None:
    assert WIRE[op](SIZE, 1) == 0
    ranks = numpy.array([1, 2, 3, 8, 100])
    assert list(WIRE[op](SIZE, ranks)) == pytest.approx([WIRE[op](SIZE, int(one)) for one in ranks])


def test_hierarchical_all_reduce_moves_one_share_across() -> None:
    slow = formulas.hierarchical_all_reduce_seconds(SIZE, 8, 4, 0.0, 1e30, HOP, RATE)
    assert slow == pytest.approx(formulas.ring_all_reduce_seconds(SIZE / 8, 4, HOP, RATE))
    assert formulas.hierarchical_all_reduce_seconds(SIZE, 8, 1, HOP, RATE, HOP, RATE) == pytest.approx(
        formulas.ring_all_reduce_seconds(SIZE, 8, HOP, RATE)
    )


def test_double_tree_has_fewer_hops_than_a_ring_and_its_bandwidth() -> None:
    tree = formulas.double_tree_all_reduce_seconds
    assert tree(0.0, 1024, HOP, RATE) == pytest.approx(20 * HOP)
    assert tree(SIZE, 1024, 0.0, RATE) == pytest.approx(formulas.ring_all_reduce_seconds(SIZE, 1024, 0.0, RATE))


@pytest.mark.parametrize("levels", (2, 3, 4))
def test_tree_edges_carry_every_byte_up_and_down(levels: int) -> None:
    ranks = 2**levels - 1
    net = Network(ranks)
    for rank in range(1, ranks):  # heap order: the parent of r is (r - 1) // 2
        for source, target in ((rank, (rank - 1) // 2), ((rank - 1) // 2, rank)):
            net.sent[source] += SIZE
            net.received[target] += SIZE
    assert sum(net.sent) == sum(net.received) == pytest.approx(ranks * formulas.all_reduce_wire_bytes(SIZE, ranks))


def test_torus_uses_all_axes() -> None:
    one = formulas.torus_all_gather_seconds(SIZE, 16, 1, 16, 0.0, RATE)
    two = formulas.torus_all_gather_seconds(SIZE, 16, 2, 4, 0.0, RATE)
    assert one == pytest.approx(2 * two)
    assert formulas.torus_all_gather_seconds(8.0, 16, 2, 4, 1e-6, RATE) == pytest.approx(4e-6)


@pytest.mark.parametrize(
    ("law", "given", "by_hand"),
    [
        (nccl.nccl_collnet_direct_latency, (1, 0.4, 5, 15), 15),  # nothing inside a node of one GPU
        (nccl.nccl_collnet_direct_latency, (8, 0.4, 5, 15), 2 * (5 + 7 * 0.4) + 15),
        (nccl.nccl_collnet_chain_latency, (8, 5, 15), 7 * 5 + 15 + 7 * 5),  # along seven GPUs, and back
        (nccl.nccl_nvls_tree_latency, (4, 5, 15), 5 + 2 * 15 + 2 * 15),  # two levels of nodes, and back
        (nccl.nccl_pat_latency, (8, 16, 15, 2, 0.5), 8 + 4 * 15 / 2 + 16 * 0.5),
        (nccl.nccl_chain_latency, (6, 8, 1, 5, 15), 6 + 7 * 5),
        (nccl.nccl_chain_latency, (6, 16, 2, 5, 15), 6 + 14 * 5 + 15),
        (nccl.nccl_collnet_direct_bandwidth, (100, 4, 1), 100 / (1 + 3 / 2)),  # of four to a channel one counts whole
    ],
)
def test_nccls_tuner_by_hand(law: Callable[..., float], given: tuple[float, ...], by_hand: float) -> None:
    """Microseconds, of an intra-node step of 5 and one between nodes of 15 (src/graph/tuning.cc)."""
    assert law(*given) == pytest.approx(by_hand)
