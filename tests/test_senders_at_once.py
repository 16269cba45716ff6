"""How many ranks of a node send to another at the same time, and what each of them has of NICs that they share."""

from __future__ import annotations

import numpy
import pytest

import distsim
from distsim.engine.exchanges.flows import Flow, Span
from distsim.engine.layouts.prices import Prices
from distsim.engine.networks.links import network_for
from distsim.engine.networks.network import Network, group_of
from distsim.engine.networks.pricing import price
from distsim.specs.cluster import Cluster

NIC = 12.5e9


def shared(nics: int, backend: str = "nccl") -> Network:
    """Nodes of eight H100 with so many NICs of 100 Gb/s, whose bandwidth has no measured factor."""
    cluster = Cluster.model_validate({
        "name": "shared", "gpu": "h100-sxm", "gpus_per_node": 8, "domain": 8,
        "fabric": {"kind": "nvswitch", "rate": "450 GB/s"},
        "network": {"kind": "ethernet", "nics": nics, "nic_rate": "100 Gb/s"},
        "source": {"other": "ours", "checked": "2026-11-29"},
    })  # fmt: skip
    return network_for("h100-sxm", cluster=cluster, backend=backend)._replace(factors={})


def rate(op: str, span: Span, net: Network, size: float = 2.0**33) -> float:
    """Algorithm bandwidth of a large message."""
    return size / float(price(op, size, span.placed(net)).seconds)


@pytest.mark.parametrize(("cp", "tp", "senders"), [(16, 1, 1), (8, 2, 2), (4, 4, 4), (2, 8, 8)])
def test_a_ring_crosses_once_for_each_group_of_a_node(cp: int, tp: int, senders: int) -> None:
    """Of neighbours in a ring one on each node sends to the next, so the ``tp`` rings of a node share its NICs."""
    assert rate("send_recv", Span("cp", cp, tp, world=16), shared(1)) == pytest.approx(NIC / senders, rel=0.01)


@pytest.mark.parametrize(("nics", "one"), [(1, NIC), (2, NIC), (8, NIC)])
def test_one_message_fills_one_nic(nics: int, one: float) -> None:
    """What a single sender has: a whole NIC, whether eight or four GPUs share it or each has its own."""
    assert rate("send_recv", Span("cp", 16, 1, world=16), shared(nics)) == pytest.approx(one, rel=0.01)


@pytest.mark.parametrize(("stage", "share"), [(1, 1.0), (2, 1 / 2), (4, 1 / 4), (8, 1 / 8), (16, 1 / 8)])
def test_pipelines_that_cross_share_the_nics(stage: int, share: float) -> None:
    """All ranks of a stage send to the next at once, and no more than a node has; so do those that tie a table."""
    net, last = shared(1), 16 // stage + 1
    first = 8 // stage - 1 if stage < 8 else 0
    hop = Span("pp", 2, stage, (first * stage, (first + 1) * stage))
    assert rate("send_recv", hop, net) == pytest.approx(NIC * share, rel=0.01)
    tied = rate("all_reduce", Span("pp", 2, stage, (0, stage * last)), net)
    assert tied == pytest.approx(NIC * share, rel=0.1)


def test_both_copies_of_a_model_exchange_on_all_stages_at_once() -> None:
    """Each rank of a node has its like on another: as many flows as there are GPUs."""
    pair = Span("pp", 2, 1, (0, 15))
    net = shared(1)
    alone, together = rate("all_reduce", pair, net), rate("all_reduce", pair._replace(all_at_once=True), net)
    assert alone / together == pytest.approx(8, rel=0.01)


@pytest.mark.parametrize("backend", ["nccl", "mpi", "gloo"])
def test_one_rank_that_sends_to_all_has_a_whole_nic(backend: str) -> None:
    """A scatter's root sends half of its buffer to the other node, where in an all-to-all eight ranks do."""
    group, size = group_of(16, 8, shared(1, backend)), 2.0**33
    scattered, exchanged = (float(price(op, size, group).seconds) for op in ("scatter", "all_to_all"))
    assert exchanged / scattered == pytest.approx(8, rel=0.02)
    if backend == "nccl":
        assert scattered == pytest.approx(size / 2 / NIC, rel=0.01)
    neighbours = float(price("send_recv", size, group).seconds)
    assert float(price("send_recv", size, group_of(2, 1, shared(1, backend))).seconds) / neighbours == pytest.approx(
        8, rel=0.01
    )


def test_messages_of_a_shipped_machine_with_one_nic() -> None:
    """nccl-tests' sendrecv on two p3.16xlarge: one rank of each sends over its 25 Gb/s."""
    found = distsim.collective("send_recv", cluster="p3.16xlarge", gpus=16, bytes=2**33)
    assert found.algorithm_bandwidth == pytest.approx(25e9 / 8, rel=0.02)


def test_a_search_prices_the_same() -> None:
    """Stages of several widths at once, as one array; and alike pairs that exchange alone or all at once."""
    net, widths = shared(1), numpy.array([1, 2, 4, 8, 16])
    size = numpy.full(5, 2.0**30)

    def flow(span: Span, sent: object = size) -> Flow:
        return Flow("pipeline activations", "send_recv", span, "bf16", "forward", 1, sent)

    pairs = Span("pp", 2, widths, (widths * 0, widths * (16 // widths)))
    flows = [flow(pairs), flow(pairs._replace(all_at_once=True)), flow(Span("cp", 16, widths))]
    prices = Prices()
    prices.together(flows, net)
    for one in flows:
        together = numpy.broadcast_to(prices(one, net).seconds, widths.shape)
        for place, width in enumerate(widths):
            ends = None if one.span.ends is None else (0, int(width * (16 // width)))
            alone = one.span._replace(stride=int(width), ends=ends)
            assert together[place] == pytest.approx(float(price("send_recv", 2.0**30, alone.placed(net)).seconds))
