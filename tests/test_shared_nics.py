"""NICs that several GPUs of a node share, where a group leaves seats of its last node empty."""

from __future__ import annotations

import pytest

import distsim


@pytest.mark.parametrize(("cluster", "full", "nic_bytes"), [("a2-highgpu-8g", 16, 12.5e9), ("g5.48xlarge", 16, 12.5e9)])
@pytest.mark.parametrize("gpus", [9, 12, 15])
def test_few_gpus_of_a_node_have_its_only_nic(cluster: str, full: int, nic_bytes: float, gpus: int) -> None:
    """What crosses between nodes is bound by one NIC, whoever sits beside it: it was one GPU's share of it."""

    def bus(count: int) -> float:
        seconds = distsim.collective("all_gather", cluster=cluster, gpus=count, bytes=1 << 30).seconds
        return float((1 << 30) * (count - 1) / count / seconds)

    assert bus(gpus) == pytest.approx(bus(full), rel=0.08)
    assert bus(gpus) < nic_bytes


def test_a_nic_for_each_gpu_leaves_one_gpu_one_nic() -> None:
    """Nine H100, each with a NIC of its own: the ninth has one, where sixteen have eight on either node."""
    nine, all_of_them = (
        distsim.collective("all_gather", cluster="dgx-h100", gpus=count, bytes=1 << 30).seconds for count in (9, 16)
    )
    assert nine > 4 * all_of_them


@pytest.mark.parametrize("gpus", [9, 12, 15])
def test_messages_to_every_peer_share_them_the_same_way(gpus: int) -> None:
    """What eight GPUs send through one NIC to the others of the group is what these send back through theirs."""
    size = 1 << 30
    seconds = distsim.collective("all_to_all", cluster="a2-highgpu-8g", gpus=gpus, bytes=size).seconds
    crossing = 8 * size * (gpus - 8) / gpus
    assert 10e9 < crossing / seconds < 12.5e9
