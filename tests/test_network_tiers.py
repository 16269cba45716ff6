"""Uplinks that carry less than what hangs below them: who crosses them, and how much of their rate is left to each."""

from __future__ import annotations

import pytest

import distsim
from distsim import catalog
from distsim.engine.exchanges.flows import Span
from distsim.engine.networks.links import network_for
from distsim.engine.networks.network import group_of
from distsim.engine.networks.pricing import price
from distsim.specs.tiers import Tier


def test_ranks_far_apart_share_the_uplinks_with_the_groups_between() -> None:
    """Rings of ranks that lie eight nodes apart: eight of them cross an uplink that one ring of neighbours would cross;
    and what a pipeline sends leaves a group of switches that is no larger than its stage."""
    flat = network_for("h100-sxm", 8, 400.0)
    tapered = flat._replace(tiers=((8, 4.0),))

    def slower(op: str, span: Span, size: float = 2.0**30) -> float:
        return float(price(op, size, span.placed(tapered)).seconds / price(op, size, span.placed(flat)).seconds)

    neighbours, scattered = Span("dp", 32, 8), Span("dp", 32, 64)
    assert slower("reduce_scatter", neighbours) == pytest.approx(1.0)
    assert slower("reduce_scatter", scattered) == pytest.approx(4, rel=0.1)
    assert slower("all_to_all", Span("ep", 4, 64)) == pytest.approx(4, rel=0.15)
    stages = {nodes: Span("pp", 2, 8 * nodes, (8 * nodes, 16 * nodes)) for nodes in (4, 8, 32)}
    assert [slower("send_recv", stages[nodes]) > 1.5 for nodes in stages] == [False, True, True]
    sent = price("send_recv", 2.0**30, stages[32].placed(tapered))
    assert 2.0**30 / sent.seconds == pytest.approx(50e9 / 4, rel=0.01)  # the uplink's share, not half of it


def test_pods_of_meta_are_joined_by_a_seventh() -> None:
    """Seven to one between pods of 3,072 GPUs (Llama 3, section 3.3.1): an all-to-all inside one runs at full rate, and
    over 16,384 GPUs nearly all of it leaves at 50 / 7 GB/s; rings cross once."""

    def seconds(op: str, gpus: int, cluster: str = "meta-24k-roce") -> float:
        return distsim.collective(op, cluster=cluster, gpus=gpus, bytes=2**36).seconds

    rate = 2**36 * 15 / 16 / seconds("all_to_all", 16_384)
    assert rate == pytest.approx(50e9 / 7, rel=0.2)
    assert seconds("all_to_all", 4_096) > 1.4 * seconds("all_to_all", 3_072)
    assert seconds("all_reduce", 16_384) < 1.1 * seconds("all_reduce", 3_072)


def test_tiers_of_racks_are_counted_in_nodes() -> None:
    """18 trays are one rack of 72: a tier of 36 trays holds two racks."""
    rack = catalog.load("clusters", "gb200-nvl72")
    tiers = (Tier(name="pod", nodes=36, oversubscription=2.0),)
    joined = rack.model_copy(update={"network": rack.network.model_copy(update={"tiers": tiers})})
    assert network_for("gb200", cluster=joined).tiers == ((2.0, 2.0),)
    ratio = [price("all_to_all", 2.0**33, group_of(gpus, 72, network_for("gb200", cluster=joined))).seconds /
             price("all_to_all", 2.0**33, group_of(gpus, 72, network_for("gb200", cluster=rack))).seconds
             for gpus in (144, 288)]  # fmt: skip
    assert ratio[0] == pytest.approx(1.0) and ratio[1] > 1.2
