"""The links inside a domain: what a cluster states of them is what exchanges are priced on."""

from __future__ import annotations

from pathlib import Path

import pytest

import distsim
from distsim import Job, catalog
from distsim.engine.exchanges.reach import refuse_beyond
from distsim.engine.jobs.resolve import resolve
from distsim.engine.networks.links import link_rate, network_for
from distsim.engine.networks.nccl_graph import graph_of
from distsim.engine.networks.network import Group
from distsim.engine.networks.network_classes import fabrics
from distsim.errors import DistsimError
from distsim.units import GIB

JOB = {"model": "llama-2-70b", "gpus": 16, "tp": 8, "zero": 1, "global_batch": 16}


def cluster(
    folder: Path, gpu: str = "h100-sxm", kind: str = "nvswitch", rate: str = "450 GB/s", domain: int = 8
) -> str:
    path = folder / "mine.toml"
    path.write_text(
        f'name = "mine"\ngpu = "{gpu}"\ngpus_per_node = 8\ndomain = {domain}\n[fabric]\nkind = "{kind}"\n'
        f'rate = "{rate}"\n[network]\nkind = "ib"\ngeneration = "ndr"\nnics = 8\nnic_rate = "400 Gb/s"\n'
        '[source]\nother = "x"\nchecked = 2026-11-22\n',
        encoding="utf-8",
    )
    return str(path)


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_a_shipped_cluster_is_priced_at_the_rate_that_it_states(name: str) -> None:
    spec = catalog.load("clusters", name)
    chip = catalog.load("gpus", spec.gpu)
    network = network_for(chip, cluster=spec)
    if spec.fabric.kind == "pcie":
        assert network.intra.startswith("pcie-") and network.intra_rate <= spec.fabric.rate
    elif spec.fabric.kind != "none":
        share = fabrics()["scale_up"][network.intra.removesuffix("-rack")]["share"]
        assert network.intra_rate == pytest.approx(spec.fabric.rate * share)
        assert spec.fabric.rate <= chip.link.rate or name == "trn1n.32xlarge"  # twice the links of a trn1
    assert network.domain == spec.domain


def test_a_slower_fabric_takes_longer_and_no_link_carries_more_than_its_rate(tmp_path: Path) -> None:
    usual = distsim.comm(distsim.Job(cluster="dgx-h100", **JOB))  # type: ignore[arg-type]
    same = distsim.comm(distsim.Job(cluster=cluster(tmp_path), **JOB))  # type: ignore[arg-type]
    slow = distsim.comm(distsim.Job(cluster=cluster(tmp_path, rate="100 GB/s"), **JOB))  # type: ignore[arg-type]
    for one, other, third in zip(usual.collectives, same.collectives, slow.collectives, strict=True):
        if one.group == "tp" and one.bytes_per_call > 2**23:
            assert one.seconds == pytest.approx(other.seconds)
            assert third.seconds > 3 * one.seconds
            assert third.wire_bytes_per_rank / third.seconds < 100e9


def test_accelerators_with_links_may_stand_in_a_node_of_pcie(tmp_path: Path) -> None:
    network = network_for("h100-sxm", cluster=catalog.load("clusters", cluster(tmp_path, kind="pcie", rate="50 GB/s")))
    assert (network.intra, network.intra_rate) == ("pcie-5", 40e9)
    narrow = catalog.load("clusters", cluster(tmp_path, kind="pcie", rate="12 GB/s"))
    assert network_for("h100-sxm", cluster=narrow).intra_rate == pytest.approx(9.6e9)


def test_cards_without_links_have_no_fabric_but_pcie(tmp_path: Path) -> None:
    with pytest.raises(DistsimError, match="by nvswitch, but l40s has no links for it"):
        distsim.collective("all_reduce", gpus=8, bytes=GIB, cluster=cluster(tmp_path, gpu="l40s"))
    with pytest.raises(DistsimError, match="by xgmi, but mi210 has no links"):  # its bridge is no fabric
        distsim.collective("all_reduce", gpus=8, bytes=GIB, cluster=cluster(tmp_path, gpu="mi210", kind="xgmi"))


def test_a_domain_smaller_than_a_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DistsimError, match="domain 4 is less than the 8 accelerators") as slip:
        catalog.load("clusters", cluster(tmp_path, domain=4))
    assert "gpus_per_node = 4" in str(slip.value) and "bridged = 4" in str(slip.value)


def test_links_that_leave_the_node_are_not_counted_inside() -> None:
    assert network_for("gaudi2").intra_rate == pytest.approx(0.977 * 262.5e9)  # 21 of 24 ports
    chip = catalog.load("gpus", "trainium2")
    assert link_rate(chip, catalog.load("clusters", "trn2.48xlarge")) == 512e9
    assert link_rate(chip, catalog.load("clusters", "trn2-ultraserver")) == link_rate(chip) == 640e9


@pytest.mark.parametrize("gpu", ["mi300x", "v100-sxm2-32gb"])
def test_groups_that_nodes_do_not_divide_have_links(gpu: str) -> None:
    """Three ranks on two nodes have two on one of them: that one's link carries what they exchange, not none at all."""
    report = distsim.comm(model="gpt2", gpu=gpu, gpus=24, pp=3, cp=2, global_batch=8, micro_batch=2)
    assert all(0 < row.seconds < 10 for row in report.collectives)
    split, whole = (graph_of(Group(ranks, ranks / 2, 2, network_for(gpu))).inside for ranks in (3, 4))
    assert split == whole > 0


def test_racks_have_as_many_gpus_as_their_nodes() -> None:
    rack = catalog.load("clusters", "gb200-nvl72").model_copy(update={"nodes": 18})
    setup = resolve(Job(model="llama-7b", gpus=72), {"cluster": rack})
    refuse_beyond(setup, 72)
    with pytest.raises(DistsimError, match="has 72"):
        refuse_beyond(setup, 73)
