"""No link carries more than its line rate: bytes of the algorithm that runs, in no less time than they take."""

from __future__ import annotations

from functools import cache

import pytest

import distsim
from distsim import catalog
from distsim.engine.networks.crossing import WIRE, crossing_fraction
from distsim.engine.networks.links import network_for
from distsim.engine.networks.network import Factor, Group, group_of
from distsim.engine.networks.pricing import price
from distsim.engine.traffic import TrafficReport
from distsim.report.comm import link_lines
from distsim.report.hierarchy import stays_inside
from distsim.specs.cluster import Cluster

SIZE = 2.0**36


@cache
def joined() -> tuple[Cluster, ...]:
    """Shipped clusters that have two domains and a network between them."""
    known: list[Cluster] = [catalog.load("clusters", name) for name in catalog.names("clusters")]
    return tuple(
        one for one in known if one.network is not None and (one.nodes or 2 * one.domain) * one.gpus_per_node
        >= 2 * one.domain
    )  # fmt: skip


def on_two(cluster: Cluster) -> Group:
    return group_of(2 * cluster.domain, cluster.domain, network_for(cluster.gpu, cluster=cluster))


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_nothing_exceeds_the_line_rate(op: str) -> None:
    """Of two domains each sends at least the whole vector of an all-reduce or broadcast, half of what is gathered."""
    least = 1.0 if op in ("all_reduce", "broadcast") else 0.5
    for cluster in joined():
        group, network = on_two(cluster), cluster.network
        assert network is not None
        line = network.node_bytes_per_second * cluster.domain / cluster.gpus_per_node
        assert least * SIZE / float(price(op, SIZE, group).seconds) <= line * 1.0001, cluster.name


def test_no_measured_factor_lifts_a_price_above_the_line() -> None:
    """One of a user's own profile neither."""
    net = network_for("h100-sxm", 8, 400.0)
    quick = net._replace(factors={f"{link}/all_reduce": Factor(1, 1, 3.0) for link in (net.inter, net.intra)})
    for nodes in (2, 4, 16):
        seconds = float(price("all_reduce", SIZE, group_of(8 * nodes, 8, quick)).seconds)
        assert 2 * (nodes - 1) / nodes * SIZE / seconds <= 400e9


@pytest.mark.parametrize(("op", "algorithm", "sent"), [
    ("all_reduce", "ring", 2 * 15 / 16), ("all_reduce", "tree", 1.0), ("all_reduce", "nvls_tree", 1.0),
    ("all_reduce", "sharp_direct", 1.0), ("all_gather", "ring", 15 / 16), ("broadcast", "ring", 0.5),
    ("all_to_all", "direct", 4.0), ("send_recv", "direct", 1.0),
])  # fmt: skip
def test_what_a_node_of_two_sends(op: str, algorithm: str, sent: float) -> None:
    """In the mean of both, relative to the size: a ring's edge carries nearly two vectors, a tree's one each way, a
    chain's one in one direction; in an all-to-all eight ranks send half of theirs."""
    group = group_of(16, 8, network_for("h100-sxm", 8, 400.0))
    found = WIRE[op](1.0, 16) * crossing_fraction(op, algorithm, group) * 8
    assert float(found) == pytest.approx(sent)


def busy(report: TrafficReport) -> dict[str, float]:
    """Utilisation by link, as it is printed."""
    found = [line.split() for line in link_lines(report)[2:]]
    return {" ".join(words[:-5] or words[:1]): float(words[-1].rstrip("%")) for words in found if words[-1] != "-"}


def test_no_link_is_busier_than_it_can_be() -> None:
    """On two domains of every shipped cluster, whatever algorithm adds up the gradients."""
    for cluster in joined():
        report = distsim.comm(
            "gpt2", cluster=cluster.name, gpus=2 * cluster.domain, global_batch=4 * cluster.domain, seq=1024
        )
        assert all(share <= 100 for share in busy(report).values()), cluster.name


def test_trees_cross_once() -> None:
    """Eight billion parameters in fp32 on two nodes of B200, each GPU an eighth of its node's; inside, the switch takes
    a vector of each rank, and an eighth of it back."""
    report = distsim.comm("llama-3-8b", cluster="nebius-b200", gpus=16, zero=0, seq=1024, micro_batch=2,
                          framework="torchtitan")  # fmt: skip
    rows = [row for row in report.collectives if row.purpose == "gradients"]
    assert {row.algorithm for row in rows} == {"nvls_tree"}
    whole = sum(float(row.bytes_per_call * row.calls) for row in rows)
    assert sum(row.level_bytes[0] for row in rows) == pytest.approx(whole / 8)
    assert sum(map(stays_inside, rows)) == pytest.approx(whole * 9 / 8)
    assert 80 < max(busy(report).values()) <= 100


def test_a_message_of_few_has_the_nic_that_it_fills() -> None:
    """A pipeline of one GPU per stage sends from one of a node's eight: at 3.1 GB/s, not at an eighth of it."""
    report = distsim.comm("gpt2-xl", cluster="p3.16xlarge", gpus=16, pp=16, seq=1024, micro_batch=1, global_batch=32,
                          framework="deepspeed", zero=0)  # fmt: skip
    assert report.stage in (0, 7, 8, 15)
    assert all(share <= 100 for share in busy(report).values())
    assert any("3.12 GB/s" in line for line in link_lines(report))


def test_a_parameter_server_has_a_line_of_its_own() -> None:
    """One server's NIC carries what all 16 ranks push and pull, and is what they wait for."""
    job = {"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 16, "seq": 2048, "framework": "torch-ddp",
           "sync": "parameter-server"}  # fmt: skip
    one = [line for line in link_lines(distsim.comm(**job, servers=1)) if "of a server" in line]
    assert len(one) == 1 and one[0].endswith(" 100%")
    assert not any("server" in line for line in link_lines(distsim.comm(**job, servers=16)))
    assert not any("server" in line for line in link_lines(distsim.comm(**job)))
