"""Rings of cards over PCIe against the table of measured bus bandwidths (presets/runs/pcie_collectives.csv)."""

from __future__ import annotations

import csv
import statistics

import pytest

from distsim import catalog
from distsim.engine.networks.links import pcie_flow, pcie_lanes, scale_up
from distsim.engine.networks.network_classes import fabrics
from distsim.specs.cluster import Fabric
from distsim.units import GIGA


def table() -> list[dict[str, str]]:
    with open(catalog.path("runs", "pcie_collectives"), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def told(row: dict[str, str]) -> float:
    """GB/s of bus bandwidth of large messages: the flow of a ring."""
    card = catalog.load("gpus", row["gpu"])
    peers = row["peers"] == "yes"
    slot = pcie_lanes()[int(row["pcie"])] * GIGA
    host = card.host.model_copy(update={"peer": peers})
    slots = slot * fabrics()["pcie"]["share"]
    fabric = Fabric(kind="pcie", rate=slots, sockets=int(row["sockets"]))
    return pcie_flow(card.model_copy(update={"host": host}), fabric) / GIGA


def errors(usual: str) -> list[float]:
    return [told(row) / float(row["bus_gb_per_s"]) - 1 for row in table() if row["usual"] == usual]


def test_machines_as_they_are_usually_set_up_are_met() -> None:
    """As docs/collectives.md states it."""
    found = errors("yes")
    assert len(found) == 16
    assert statistics.median(abs(one) for one in found) < 0.03
    assert sorted(abs(one) for one in found)[-3] < 0.09
    assert max(found) < 0.85  # NCCL's own channels on two Turin


def test_rented_hosts_reach_a_fraction() -> None:
    """No rule tells them: containers whose hosts copy at 1 to 6 GB/s."""
    assert min(errors("no")) > 0.3


@pytest.mark.parametrize(
    ("gpu", "cluster", "rate"),
    [
        ("a100-pcie-80gb", "server-8x-a100-pcie-80gb", 20.0),
        ("rtx-a6000", "workstation-4x-rtx-a6000", 25.0),
        ("rtx-pro-6000", "server-8x-rtx-pro-6000", 40.0),
        ("v100-pcie-32gb", "server-4x-v100-pcie-32gb", 10.08),
        ("a10g", "g5.48xlarge", 14.06),
        ("l40s", "g6e.48xlarge", 14.06),
    ],
)
def test_flows_of_shipped_machines(gpu: str, cluster: str, rate: float) -> None:
    flow = scale_up(catalog.load("gpus", gpu), catalog.load("clusters", cluster))[1]
    assert flow / GIGA == pytest.approx(rate, rel=0.01)


def test_one_cpu_is_faster_than_two() -> None:
    card = catalog.load("gpus", "l40")
    one, two = (pcie_flow(card, Fabric(kind="pcie", rate=25e9, sockets=count)) for count in (1, 2))
    assert two / one == pytest.approx(0.8)
    closed = Fabric(kind="pcie", rate=25e9, sockets=1, peers=False)
    assert pcie_flow(card, closed) < two


def test_slots_carry_what_passes_host_memory_too() -> None:
    """A GeForce card in a slot of PCIe 3.0 has half the lanes, both ways."""
    card = catalog.load("gpus", "rtx-3090")
    full, half = (pcie_flow(card, Fabric(kind="pcie", rate=rate)) for rate in (25e9, 12.5e9))
    assert half / full == pytest.approx(0.5)
