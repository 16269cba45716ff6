"""Links that are NICs of the chip: no channels of NCCL, and no copy behind a ring's last step."""

from __future__ import annotations

import pytest

from distsim.engine.collective import collective
from distsim.engine.networks.links import network_for


@pytest.mark.parametrize(("op", "size", "measured"), [("all_reduce", "256MiB", 513e9), ("all_gather", "128MiB", 509e9)])
def test_what_hccl_demo_shows_on_eight_gaudi_3(op: str, size: str, measured: float) -> None:
    """docs.habana.ai, Collectives Performance; short of it by the latency of NCCL's rings, with which it is priced."""
    assert 0.87 * measured < collective(op, "gaudi3", 8, size).bus_bandwidth < measured


@pytest.mark.parametrize(("gpu", "ports"), [("gaudi2", 37.5e9), ("gaudi3", 75e9)])
def test_two_of_them_have_three_ports(gpu: str, ports: float) -> None:
    """A channel of NCCL's holds 20 GB/s, and more of it than that was left idle."""
    assert 0.95 * ports < collective("all_reduce", gpu, 2, "64MiB").bus_bandwidth < ports


@pytest.mark.parametrize(
    ("gpu", "channelled"), [("gaudi2", False), ("h100-sxm", True), ("mi300x", True), ("rtx-4090", False)]
)
def test_whose_links_are_filled_by_channels(gpu: str, channelled: bool) -> None:
    assert network_for(gpu).channelled is channelled
