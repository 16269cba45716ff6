"""Accelerator and cluster presets against published tables, and what the specs refuse."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from distsim import catalog
from distsim.architectures import traits_of
from distsim.engine.networks.links import link_rate, network_for
from distsim.errors import DistsimError
from distsim.specs.accelerator import PEAK_DTYPES, Accelerator
from distsim.specs.cluster import Cluster, Network
from distsim.specs.limits import RANGES
from distsim.units import GIB, MIB
from tests.examples import EXAMPLE, NODE

ORACLES = Path(__file__).parent / "oracles"
# Names under which published measurements (training runs, collectives) give their accelerator.
MEASURED_ON = (
    "a10g", "a100", "a100-80gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "a800-sxm4-80gb",
    "ascend-910b", "b200-sxm", "b300", "b300-sxm", "gaudi2", "gb200", "gb300", "gh200", "h100", "h100-sxm",
    "h200-nvl", "h200-sxm", "h800-sxm", "l40s", "mi300x", "mi325x", "mi350x", "mi355x", "rtx-3090", "rtx-4090",
    "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "trainium1", "trn1-neuroncore", "v100-pcie-16gb",
    "v100-sxm2-16gb", "v100-sxm2-32gb", "v100-sxm3-32gb",
)  # fmt: skip
OTHER_TOOL = ("a100-sxm4-40gb",)  # the table has FlagPerf's figure there, which no training run reaches


def oracle(name: str) -> list[dict[str, str]]:
    with (ORACLES / name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def number(text: str) -> float | None:
    return float(text) if text and not text.startswith("n/a") else None


OTHER_PEAKS = {("b300-sxm", "int8"), ("gb300", "int8")}
"""Where the table repeats another format's rate: Blackwell Ultra has hardly any int8."""


@pytest.mark.parametrize("row", oracle("gpus.csv"), ids=lambda row: row["name"])
def test_accelerator_agrees_with_published_table(row: dict[str, str]) -> None:
    card = catalog.load("gpus", row["name"])
    for dtype in PEAK_DTYPES:
        if (row["name"], dtype) in OTHER_PEAKS:
            continue
        published = number(row[dtype])
        stated = getattr(card.peak, dtype)
        assert stated == (None if published is None else pytest.approx(published * 1e12)), dtype
    assert card.bandwidth == pytest.approx(float(row["hbm_GBps"]) * 1e9)
    link = number(row["scaleup_GBps_per_dir"])
    assert (card.link.rate if card.link else 0) == pytest.approx((link or 0) * 1e9)
    assert card.power == number(row["tdp_W"])
    if row["mem_MiB_reported"]:  # by nvidia-smi, of which drivers keep some
        assert 0.96 <= card.usable_memory / (int(row["mem_MiB_reported"]) * MIB) <= 1
    if row["mamf_bf16_frac"] and row["name"] not in OTHER_TOOL:
        assert card.measured.matmul_bf16 == float(row["mamf_bf16_frac"])
    label = float(row["mem_GB"])  # vendors mix GB and GiB
    assert label * 1e9 * 0.99 <= card.memory <= label * GIB * 1.02


@pytest.mark.parametrize("row", oracle("nodes.csv"), ids=lambda row: row["node"])
def test_cluster_agrees_with_published_table(row: dict[str, str]) -> None:
    node = catalog.load("clusters", row["node"])
    assert catalog.load("gpus", node.gpu) is catalog.load("gpus", row["gpu"])
    assert (node.gpus_per_node, node.domain) == (int(row["gpus_per_node"]), int(row["scaleup_domain_gpus"]))
    if row["intra_GBps_per_dir_per_gpu"]:
        assert node.fabric.rate == pytest.approx(float(row["intra_GBps_per_dir_per_gpu"]) * 1e9)
    if row["node_net_GBps_per_dir"]:
        assert node.network.node_bytes_per_second == pytest.approx(float(row["node_net_GBps_per_dir"]) * 1e9, rel=0.02)
    if row["cpu_ram_GB"]:
        assert node.host_memory in (int(row["cpu_ram_GB"]) * 1e9, int(row["cpu_ram_GB"]) * GIB)  # clouds mean GiB
    assert node.power == (float(row["node_kW_max"]) * 1e3 if row["node_kW_max"] else None)


@pytest.mark.parametrize("kind", ["gpus", "clusters"])
def test_every_preset_loads_and_every_figure_has_a_source(kind: str) -> None:
    for name in catalog.names(kind):
        preset = catalog.load(kind, name)
        assert preset.name == name
        assert preset.checked is not None, name
        unsourced = [figure for figure, _ in preset.figures() if not preset.source_of(figure)]
        assert not unsourced, (name, unsourced)


def test_accelerators_state_what_estimates_need() -> None:
    for name in catalog.names("gpus"):
        card = catalog.load("gpus", name)
        assert card.capacity <= card.memory, name
        assert card.capacity > 0.9 * card.memory, name
        assert (card.peak.bf16 or card.peak.fp16) is not None, name
        peaks = [getattr(card.peak, dtype) for dtype in ("fp32", "bf16", "fp8", "fp4") if getattr(card.peak, dtype)]
        assert peaks == sorted(peaks), f"{name}: a narrower format is slower"


def test_bandwidth_and_peak_are_of_one_order() -> None:
    """A factor of a thousand between units would put the balance (FLOP per byte) far outside what exists."""
    for name in catalog.names("gpus"):
        card = catalog.load("gpus", name)
        assert 20 < (card.peak.bf16 or card.peak.fp16) / card.bandwidth < 700, name
        assert 4 * GIB <= card.memory < 512 * GIB, name
        assert card.link is None or 0.01 < card.link.rate / card.bandwidth < 0.5, name
        assert card.host is None or card.host.measured is None or card.host.measured < card.host.rate, name


@pytest.mark.parametrize("name", MEASURED_ON)
def test_accelerators_of_published_measurements_are_there(name: str) -> None:
    """In a node of their own kind, whose links carry what the accelerator's do, or its slot's."""
    card, node, joined = catalog.load("gpus", name), catalog.usual_cluster(name), network_for(name)
    assert catalog.load("gpus", node.gpu).name == card.name
    most = link_rate(card, node) or card.host.rate
    assert 0.1 * most < joined.intra_rate <= most


def test_usual_cluster_carries_the_accelerator_and_its_link() -> None:
    for name in catalog.names("gpus"):
        card, node = catalog.load("gpus", name), catalog.usual_cluster(name)
        assert catalog.load("gpus", node.gpu) is card
        if node.fabric.kind in ("nvswitch", "nvlink-mesh", "xgmi", "torus") and card.link:
            assert node.fabric.rate <= card.link.rate * 1.001, name


def test_torchtitan_part_is_not_a_plain_h100() -> None:
    card, plain = catalog.load("gpus", "h100-sxm-96gb-500w"), catalog.load("gpus", "h100-sxm")
    assert (card.power, card.bandwidth) == (500, 2.4e12)
    assert card.bandwidth < plain.bandwidth
    assert card.capacity > plain.capacity


def test_half_chips_are_half() -> None:
    parts = (
        ("mi250x-gcd", "mi250x", 2), ("trn1-neuroncore", "trainium1", 2), ("trn2-neuroncore", "trainium2", 4),
        ("tpu-v7x-core", "tpu-v7x", 2),
    )  # fmt: skip
    for half, whole, count in parts:
        small, large = catalog.load("gpus", half), catalog.load("gpus", whole)
        assert count * small.memory == large.memory
        assert count * small.peak.bf16 == large.peak.bf16
        assert count * small.bandwidth == pytest.approx(large.bandwidth)


def test_rack_is_one_domain_of_small_nodes() -> None:
    rack = catalog.load("clusters", "gb200-nvl72")
    assert (rack.gpus_per_node, rack.domain) == (4, 72)
    assert rack.network_bytes_per_second_per_gpu == 50e9


def test_tiers_say_where_bandwidth_is_missing() -> None:
    tiers = catalog.load("clusters", "meta-24k-roce").network.tiers
    assert [(tier.nodes, tier.oversubscription) for tier in tiers] == [(2, 1), (384, 7)]


def test_adapted_keeps_the_rate_per_accelerator() -> None:
    node = catalog.load("clusters", "dgx-h100")
    four = node.adapted(gpus_per_node=4)
    assert (four.gpus_per_node, four.domain, four.network_bytes_per_second_per_gpu) == (4, 4, 50e9)
    slow = node.adapted(network_bytes_per_second_per_gpu=12.5e9)
    assert (slow.network.node_bytes_per_second, slow.network.link_class) == (100e9, "ib-ndr")
    assert node.adapted() == node
    assert catalog.load("clusters", "gb200-nvl72").adapted(gpus_per_node=8).domain == 72


def test_usable_memory_is_what_torch_sees() -> None:
    """Less than nvidia-smi's total, from which drivers keep 0.7% and more (cards of 16 GB print 16303 MiB, torch 15.47
    GiB); a preset whose figure is nearer to the label copied the other one."""
    chips = [catalog.load("gpus", name) for name in catalog.names("gpus")]
    near = {
        chip.name: chip.usable_memory / chip.memory
        for chip in chips
        if chip.vendor == "NVIDIA" and chip.usable_memory and chip.usable_memory / chip.memory > 0.9935
    }
    assert near == {}
    assert catalog.load("gpus", "rtx-5080").usable_memory == round(15.47 * 1024**3)


def test_which_chips_transpose_fp8_operands() -> None:
    """Transformer Engine's is_non_tn_fp8_gemm_supported: layouts other than TN from 10.0 on, but not on 12 (RTX)."""
    chips = {
        name: traits_of(catalog.load("gpus", name)).transposes for name in ("h100", "l40s", "b200", "gb300", "rtx-5090")
    }
    assert chips == {"h100": True, "l40s": True, "b200": False, "gb300": False, "rtx-5090": True}


def test_storage_of_rented_machines() -> None:
    """Amazon's table has drives of 3,800 GB, Google's disks have 375 GiB each."""
    storage = {
        name: catalog.load("clusters", name).storage for name in ("p5en.48xlarge", "p6-b300.48xlarge", "a3-ultragpu-8g")
    }
    sizes = {name: (one.drives, one.capacity) for name, one in storage.items() if one is not None}
    assert sizes["p5en.48xlarge"] == sizes["p6-b300.48xlarge"] == (8, 30.4e12)
    assert sizes["a3-ultragpu-8g"] == (32, 32 * 375 * 1024**3)


def test_recalled_figures_say_so() -> None:
    assert catalog.load("gpus", "mi308x").source_of("chip").startswith("recalled")
    assert catalog.load("gpus", "h100-sxm").source_of("peak.bf16").startswith("stas00")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bandwith": "2 TB/s"}, ("bandwith", "bandwidth")),
        ({"peak": {"bf18": "300 TFLOP/s"}}, ("peak.bf18", "bf16")),
        ({"memory": "80 apples"}, ("memory", "80 apples", "80 GB")),
        ({"memory": "-80 GB"}, ("memory", "more than 0")),
        ({"bandwidth": "2 TB"}, ("bandwidth", "2 TB", "TB/s")),
        ({"usable_memory": "81 GB"}, ("usable_memory 75.44 GiB", "memory 74.51 GiB")),
        ({"measured": {"matmul_bf16": 80}}, ("measured.matmul_bf16", "1.2")),
        ({"link": {"kind": "nvlnk", "rate": "1 GB/s"}}, ("link.kind", "nvlink")),
        ({"power": "700"}, ()),
    ],
)
def test_accelerator_mistakes_are_answered(change: dict[str, object], words: tuple[str, ...]) -> None:
    if not words:
        assert Accelerator.read({**EXAMPLE, **change}).power == 700
        return
    with pytest.raises(DistsimError) as raised:
        Accelerator.read({**EXAMPLE, **change}, where="x.toml")
    for word in ("x.toml", *words):
        assert word in str(raised.value)


def test_all_mistakes_are_told_together() -> None:
    with pytest.raises(DistsimError) as raised:
        Accelerator.read({"name": "x", "memory": "80 GB", "bandwith": "2 TB/s"})
    for word in ("vendor", "architecture", "bandwidth", "peak", "bandwith"):
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"domain": 12}, ("domain 12", "8")),
        ({"fabric": {"kind": "nvswitch"}}, ("nvswitch", "rate")),
        ({"network": {"kind": "ib"}}, ("rate", "nics and nic_rate")),
        ({"network": {"kind": "ib", "nics": 8, "nic_rate": "400 Gb/s", "node_rate": "1 GB/s"}}, ("both",)),
        ({"network": {"kind": "ib", "nics": 8, "nicrate": "400 Gb/s"}}, ("network.nicrate", "nic_rate")),
        ({"gpus_per_node": 0}, ("gpus_per_node", "at least 1")),
    ],
)
def test_cluster_mistakes_are_answered(change: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(DistsimError) as raised:
        Cluster.read({**NODE, **change})
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"peak": {"bf16": 989}}, "peak.bf16 989 (a bare number is in FLOP/s) is too small to be meant\n  did you mean "
                                  "989 TFLOP/s?"),
        ({"peak": {"bf16": 989000}}, "did you mean 989000 GFLOP/s?"),
        ({"peak": {"bf16": "989 EFLOP/s"}}, "it must be 1e+09 to 1e+19 FLOP/s"),
        ({"bandwidth": 3350}, "bandwidth 3350 (a bare number is in B/s) is too small to be meant\n  did you mean "
                              "3350 GB/s?"),
        ({"memory": 81920}, "did you mean 81920 MiB?"), ({"memory": "80 kB"}, "is too small to be meant\n  it must be"),
        ({"power": "0.7"}, "did you mean 0.7 kW?"), ({"chip": {"clock": 1830}}, "did you mean 1830 MHz?"),
    ],
)  # fmt: skip
def test_figures_that_no_hardware_has_are_refused(change: dict[str, object], words: str) -> None:
    """A unit that was left out made steps of a million days."""
    with pytest.raises(DistsimError) as raised:
        Accelerator.read({**EXAMPLE, **change})
    assert words in str(raised.value)


def test_small_hardware_is_taken() -> None:
    """A cache of 256 KiB, and a line of 1 Mb/s that somebody shares over the Internet."""
    assert Accelerator.read({**EXAMPLE, "chip": {"cache": "256 KiB"}}).chip.cache == 2**18
    slow = {"kind": "ethernet", "nics": 1, "nic_rate": "1 Mb/s"}
    assert Cluster.read({**NODE, "network": slow}).network.nic_rate == 125_000


def test_networks_that_cannot_be_are_refused() -> None:
    with pytest.raises(DistsimError, match="did you mean 400 Gb/s"):
        Cluster.read({**NODE, "network": {"kind": "ib", "nics": 8, "nic_rate": 400}})
    tiers = [{"name": "pod", "nodes": 64}, {"name": "leaf", "nodes": 8}]
    network = {"kind": "ib", "nics": 8, "nic_rate": "400 Gb/s"}
    assert Cluster.read({**NODE, "network": {**network, "tiers": tiers[::-1]}}).network
    with pytest.raises(DistsimError, match="tier leaf joins 8 nodes, fewer than the 64 of tier pod"):
        Cluster.read({**NODE, "network": {**network, "tiers": tiers}})


def test_ranges_hold_all_that_is_shipped_with_room() -> None:
    """Of a hundred times on either side, peaks and rates of links alike."""
    for kind, dimension in (("peak", "FLOP/s"), ("bandwidth", "B/s"), ("memory", "B")):
        told = [value for name in catalog.names("gpus") for field, value in catalog.load("gpus", name).figures()
                if field.startswith(kind)]  # fmt: skip
        assert RANGES[dimension].least * 100 <= min(told) and max(told) <= RANGES[dimension].most / 100


def test_network_rate_is_bits_or_bytes() -> None:
    assert Network(kind="ib", nics=8, nic_rate="400 Gb/s").node_bytes_per_second == 400e9
    assert Network(kind="dcn", node_rate="25 GB/s").node_bytes_per_second == 25e9


def test_specs_are_frozen_and_hashable() -> None:
    card = Accelerator.read(EXAMPLE)
    assert {card: 1}[Accelerator.read(EXAMPLE)] == 1
    with pytest.raises(ValueError, match="frozen"):
        card.memory = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("a100-sxm4-40gb", "a100-sxm4-80gb"), ("a100-pcie-40gb", "a100-pcie-80gb"), ("h100-sxm-94gb", "h100-sxm"),
        ("h100-sxm", "h200-sxm"), ("h20", "h20-141gb"), ("b200-sxm", "b300-sxm"), ("gb200", "gb300"),
        ("mi300x", "mi325x"), ("v100-sxm2-16gb", "v100-sxm2-32gb"), ("b200-sxm-750w", "b200-sxm"),
    ],
)  # fmt: skip
def test_the_larger_part_of_one_design_is_no_slower(smaller: str, larger: str) -> None:
    """Measured rates of unlike tools made the A100 with 80 GB slower than the one with 40."""
    import distsim

    job = {"model": "llama-3-8b", "gpus": 8, "zero": 1, "seq": 4096, "global_batch": 32}
    less, more = (distsim.step(**job, gpu=name).seconds for name in (smaller, larger))
    assert more <= less * (1 + 1e-9)


def test_every_chip_of_nvidias_with_units_states_its_clock() -> None:
    """What plain torch's kernels are limited by; without it they would silently run at the speed of memory."""
    for name in catalog.names("gpus"):
        card = catalog.load("gpus", name)
        if traits_of(card).lanes and card.chip.units:
            assert card.chip.clock, name


@pytest.mark.parametrize(("name", "terabits"), [("p6e-gb200", 28.8 / 18), ("p6-b200", 3.2), ("p6-b300", 6.4)])
def test_efa_of_aws_instances(name: str, terabits: float) -> None:
    """Each GPU of P6e-GB200 has 400 Gb/s however many cards reach it; an UltraServer of 18 instances has 28.8 Tb/s."""
    network = catalog.load("clusters", name).network
    assert network.node_bytes_per_second * 8 == pytest.approx(terabits * 1e12)


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        ("a100-sxm4-80gb", 79.25), ("a100-sxm4-40gb", 39.49), ("h100-sxm", 79.18), ("h200-sxm", 139.80),
        ("b200-sxm", 178.35), ("gb200", 184.31), ("t4", 14.56), ("l4", 22.03), ("rtx-3090", 23.56),
        ("rtx-a6000", 47.53), ("mi300x", 191.98),
    ],
)  # fmt: skip
def test_capacity_is_what_torch_says_that_it_has(gpu: str, told: float) -> None:
    """Its out-of-memory errors print the total of cudaMemGetInfo: drivers keep a part of nvidia-smi's."""
    assert round(catalog.load("gpus", gpu).capacity / GIB, 2) == pytest.approx(told, abs=0.011)
