"""Cards that a bridge joins, cards that meet over PCIe, and cards that cannot reach each other's memory."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

import distsim
from distsim import catalog
from distsim.engine.exchanges.flows import Span
from distsim.engine.networks.links import network_for
from distsim.engine.networks.network import group_of
from distsim.engine.networks.pricing import price
from distsim.engine.runs.cluster import cluster_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run

PAIRS = "server-8x-a100-pcie-80gb-bridged"
GIB = 2**30


def bus(gpus: int, cluster: str, size: int = GIB, op: str = "all_reduce") -> float:
    return distsim.collective(op, gpus=gpus, bytes=size, cluster=cluster).bus_bandwidth / 1e9


def test_a_pair_runs_at_the_bridge_and_more_at_pcie() -> None:
    """NVIDIA/nccl-tests issue 178: two A100 PCIe under one bridge 208 GB/s, a third card brings it down to 20."""
    assert bus(2, PAIRS, 12 * GIB) == pytest.approx(208, rel=0.1)
    assert bus(3, PAIRS, 12 * GIB) == pytest.approx(20, rel=0.1)
    pair = distsim.collective("all_gather", gpus=2, bytes=GIB, cluster=PAIRS)
    four = distsim.collective("all_gather", gpus=4, bytes=GIB, cluster=PAIRS)
    assert (pair.link, four.link) == ("nvlink-3", "pcie-4")
    assert bus(2, "server-8x-a100-pcie-80gb") == pytest.approx(20, rel=0.1)


def test_cards_always_sold_bridged_are_bridged_by_default() -> None:
    assert distsim.collective("all_reduce", gpu="h100-nvl", gpus=2, bytes=GIB).link == "nvlink-4"
    fours = [distsim.collective("all_reduce", gpu="h200-nvl", gpus=n, bytes=GIB) for n in (2, 4, 8)]
    assert [one.link for one in fours] == ["nvlink-4", "nvlink-4", "pcie-5"]
    assert fours[0].bus_bandwidth < 0.5 * fours[1].bus_bandwidth  # two of four share a third of a card's links


def test_neighbours_share_a_bridge_and_strided_ranks_do_not() -> None:
    spec = catalog.load("clusters", PAIRS)
    net = network_for(catalog.load("gpus", spec.gpu), cluster=spec)
    assert Span("tp", 2, 1).placed(net).bridged
    assert not Span("zero", 2, 2).placed(net).bridged and not Span("zero", 4, 1).placed(net).bridged
    assert Span("pp", 2, 1, (0, 1)).placed(net).bridged and not Span("pp", 2, 1, (1, 2)).placed(net).bridged
    assert not network_for("h100-sxm").bridge


def test_many_groups_cost_what_each_costs() -> None:
    spec = catalog.load("clusters", "xe7740-h200-nvl")
    net = network_for(catalog.load("gpus", spec.gpu), cluster=spec)
    ranks = numpy.array([1, 2, 3, 4, 8, 16])
    for op in ("all_reduce", "all_gather", "all_to_all", "send_recv"):
        together = price(op, float(GIB), group_of(ranks, 8, net))
        for index, count in enumerate(ranks):
            alone = price(op, float(GIB), group_of(int(count), 8, net))
            assert together.seconds[index] == pytest.approx(alone.seconds), (op, count)
            assert str(together.link[index]) == alone.link


def test_a_step_takes_the_bridge_for_tensor_parallel_pairs() -> None:
    options = {"model": "llama-7b", "gpus": 8, "tp": 2, "zero": 1}
    joined = distsim.step(distsim.Job(cluster=PAIRS, **options))  # type: ignore[arg-type]
    apart = distsim.step(distsim.Job(cluster="server-8x-a100-pcie-80gb", **options))  # type: ignore[arg-type]
    assert joined.breakdown["tensor_parallel"] < 0.25 * apart.breakdown["tensor_parallel"]
    assert joined.breakdown["data_parallel"] == pytest.approx(apart.breakdown["data_parallel"], rel=0.1)


@pytest.mark.parametrize(
    ("gpu", "kind", "cards", "words"),
    [
        ("l40s", "pcie", 2, "joins 2 cards by a bridge, but l40s has no links"),
        ("rtx-3090", "pcie", 3, "bridges of 3 cards do not divide the 4 accelerators of a node"),
        ("h100-sxm", "nvswitch", 2, "applies to PCIe cards, not to a fabric of kind nvswitch"),
    ],
)
def test_bridges_that_cannot_be_are_refused(tmp_path: Path, gpu: str, kind: str, cards: int, words: str) -> None:
    path = tmp_path / "bridged.toml"
    path.write_text(
        f'name = "mine"\ngpu = "{gpu}"\ngpus_per_node = 4\ndomain = 4\n[fabric]\nkind = "{kind}"\nrate = "25 GB/s"\n'
        f'bridged = {cards}\n[source]\nother = "x"\nchecked = 2026-11-22\n',
        encoding="utf-8",
    )
    with pytest.raises(DistsimError, match=words):
        distsim.collective("all_reduce", gpus=2, bytes=GIB, cluster=str(path))


@pytest.mark.parametrize(("gpu", "gpus", "rate"), [("rtx-5090", 4, 27.3), ("rtx-5090", 8, 28.0), ("rtx-4090", 8, 14.7)])
def test_cards_without_peers_pass_host_memory(gpu: str, gpus: int, rate: float) -> None:
    """Stock driver: a card's lanes carry what goes up and what comes down at once (NVIDIA/nccl-tests issue 287,
    NVIDIA/nccl issue 1639)."""
    seconds = distsim.collective("all_reduce", gpu=gpu, gpus=gpus, bytes=GIB, gpus_per_node=8).bus_bandwidth / 1e9
    assert seconds == pytest.approx(rate, rel=0.06)


def test_rings_over_bridged_pairs_use_both_directions() -> None:
    """Four A100 PCIe, two bridges: 30.8 to 31.1 GB/s; half-filled bridges and strided ranks gain nothing."""
    assert bus(4, PAIRS) == pytest.approx(31, rel=0.05)
    assert bus(3, PAIRS) == pytest.approx(bus(3, "server-8x-a100-pcie-80gb"))
    spec = catalog.load("clusters", PAIRS)
    net = network_for(catalog.load("gpus", spec.gpu), cluster=spec)
    assert Span("zero", 4, 1).placed(net).bridges and not Span("zero", 4, 2).placed(net).bridges
    assert not Span("zero", 16, 1).placed(net).bridges  # of two nodes
    assert bus(2, "workstation-4x-rtx-3090-bridged") > 2 * bus(2, "workstation-4x-rtx-3090")


@pytest.mark.parametrize("name", [name for name in catalog.names("gpus") if name.startswith(("gtx-", "rtx-", "titan"))])
def test_geforce_cards_have_no_peers_over_pcie(name: str) -> None:
    card = catalog.load("gpus", name)
    geforce = not (name.startswith(("rtx-a", "rtx-pro")) or name.endswith("-ada"))
    assert card.host.peer is not geforce


def test_slots_of_an_older_generation_carry_less() -> None:
    """Dell's DSS8440 has PCIe 3.0 (mlcommons/training_results_v1.0 Dell/systems/DSS8440x8A100-PCIE-40GB.json)."""

    def rate(notes: str, gpu: str = "a100-pcie-40gb") -> float | None:
        found = cluster_of(Run({"gpu": gpu, "source": "ours", "notes": notes}, 1))
        assert found is not None
        return found.fabric.rate

    assert rate("PCIe 3.0 x16 slots") == rate("PCIe Gen3") == pytest.approx(12.6e9)
    assert rate("PCIe 4.0x16") == rate("A100-PCIe-80GB, PCIe 4 cards") == rate("") == 25e9
    assert rate("PCIe 3.0 x16", "h100-sxm") == rate("", "h100-sxm")


def test_notes_that_tell_of_a_bridge_join_two_cards() -> None:
    """Two RTX 3090 of huggingface/transformers issue 9371; larger nodes that notes call bridged were no faster."""

    def bridged(notes: str, cards: int, gpu: str = "rtx-3090") -> int | None:
        found = cluster_of(Run({"gpu": gpu, "gpus_per_node": str(cards), "notes": notes}, 1))
        assert found is not None
        return found.fabric.bridged

    assert bridged("DDP, NVLink bridge between the cards", 2) == 2
    assert bridged("NVLink bridges between pairs", 4) is None and bridged("NVLink bridge", 2, "rtx-4090") is None
    denied = ("", "no NVLink bridge", "NVLink bridges not told", "NVLink off: NCCL_P2P_DISABLE=1")
    assert [bridged(notes, 2) for notes in denied] == [None] * 4
