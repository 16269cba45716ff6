"""Machines that notes of measured runs name, and what was exported on them."""

from __future__ import annotations

import pytest

from distsim import catalog
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import resolve
from distsim.engine.networks.links import network_for
from distsim.engine.runs.cluster import cluster_of
from distsim.engine.runs.precision import precision_of
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.step import seconds_of, timed
from distsim.engine.steps.pass_times import pass_times
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.chips import chip_in
from distsim.interop.runs.gpu_notes import power_of
from distsim.specs.job import Job

ROW = {"id": "a", "model": "llama-2-7b", "gpu": "a100-sxm4-80gb", "n_gpus": "16", "seq_len": "2048", "micro_batch": "2",
       "global_batch": "64", "precision": "bf16", "framework": "megatron-deepspeed", "year": "2024"}  # fmt: skip


def _machine(gpu: str, notes: str, source: str = "ours") -> str:
    found = cluster_of(Run({"gpu": gpu, "source": source, "notes": notes}, 1))
    assert found is not None
    return found.name


@pytest.mark.parametrize(
    ("gpu", "notes", "name"),
    [
        ("a100-sxm4-80gb", "Jean-Zay, 8 A100 per node", "jean-zay-a100"),
        ("a100-sxm4-80gb", "8 GPUs of Jean Zay", "jean-zay-a100"),
        ("a100-sxm4-40gb", "Polaris, 4 GPUs per node", "polaris"), ("a100-sxm4-40gb", "on Perlmutter", "perlmutter"),
        ("gh200-96gb", "one node of Clariden (Alps)", "alps"), ("a100-sxm4-40gb", "p4d.24xlarge", "p4d.24xlarge"),
        ("h200-sxm", "two p5en.48xlarge, EFA", "p5en.48xlarge"), ("h100-sxm", "cluster eos", "eos"),
        ("h100-sxm", "documents end in EOS", "dgx-h100"), ("h100-sxm", "BOS and EOS tokens", "dgx-h100"),
        ("a100-sxm4-40gb", "Sophia-G optimizer", "dgx-a100-40gb"), ("a100-sxm4-40gb", "Sophia (ALCF)", "sophia"),
    ],
)  # fmt: skip
def test_notes_that_name_a_preset(gpu: str, notes: str, name: str) -> None:
    assert _machine(gpu, notes) == name


def test_a_citation_names_no_machine() -> None:
    """Repositories and papers are called like machines, too."""
    assert _machine("a100-sxm4-40gb", "", "lab/scaling, runs on Polaris (2024)") == "dgx-a100-40gb"


@pytest.mark.parametrize("notes", ["polarised units", "as on Polaris", "our cluster"])
def test_machines_of_other_gpus_are_not_taken(notes: str) -> None:
    assert _machine("h100-sxm", notes) == catalog.usual_cluster("h100-sxm").name


def test_a_stated_rate_holds_on_a_named_machine() -> None:
    cells = {"gpu": "a100-sxm4-40gb", "notes": "Polaris", "internode_gbps_per_gpu": "25", "gpus_per_node": "4"}
    found = cluster_of(Run(cells, 1))
    assert found is not None and found.network is not None
    assert found.network.node_bytes_per_second == pytest.approx(4 * 25e9 / 8)


@pytest.mark.parametrize(
    ("notes", "rate"),
    [
        ("nodes exchange over TCP sockets (derived)", 1.125e9), ("NCCL_IB_DISABLE=1, NCCL over Ethernet", 1.125e9),
        ("NCCL_NET=Socket: TCP over eth0", 1.125e9), ("GCP, NCCL over TCP sockets", 25e9), ("", 25e9),
        ("8x RTX 5090 over two sockets", 25e9), ("instead of NCCL_NET=Socket", 25e9),
    ],
)  # fmt: skip
def test_a_process_copies_all_that_sockets_send(notes: str, rate: float) -> None:
    """Pier on Perlmutter: four A100 a node all-reduce at 4.4 GB/s, whatever their four NICs of 200 Gb/s carry."""
    cells = {"gpu": "a100-sxm4-40gb", "gpus_per_node": "4", "internode_gbps_per_gpu": "200", "notes": notes}
    found = cluster_of(Run(cells, 1))
    assert network_for(catalog.load("gpus", "a100-sxm4-40gb"), cluster=found).nic_rate == pytest.approx(rate)


@pytest.mark.parametrize(("per_node", "rate"), [(1, 2.3e9), (2, 2.25e9), (4, 1.125e9), (8, 0.5625e9)])
def test_a_node_and_a_process_copy_so_much(per_node: int, rate: float) -> None:
    """One A10 a node passes 1.9 GB/s or more; eight A100 and H100 a node were too fast by what one of four has."""
    assert network_for("a100-sxm4-40gb", per_node, 200, "sockets").nic_rate == pytest.approx(rate)


def test_a_line_slower_than_sockets_stays() -> None:
    assert network_for("a100-sxm4-40gb", 8, 4, "sockets").nic_rate == pytest.approx(0.5e9)


@pytest.mark.parametrize(("per_node", "watts"), [("1", None), ("4", 660), (None, 660)])
def test_a_cap_of_the_usual_machine_is_not_that_of_other_boards(per_node: str | None, watts: float | None) -> None:
    cells = {"gpu": "gh200-96gb", "internode_gbps_per_gpu": "400", **({"gpus_per_node": per_node} if per_node else {})}
    found = cluster_of(Run(cells, 1))
    assert found is not None and found.gpu_power == watts
    named = cluster_of(Run({**cells, "notes": "Alps"}, 1))
    assert named is not None and named.gpu_power == 660


def test_launches_that_wait() -> None:
    assert setup_of(Run({**ROW, "notes": "CUDA_LAUNCH_BLOCKING=1 exported"}, 2)).kernels.launches == "blocking"
    for words in ("", "CUDA_LAUNCH_BLOCKING=0", "CUDA_DEVICE_MAX_CONNECTIONS=1"):
        assert setup_of(Run({**ROW, "notes": words}, 2)).kernels.launches == "ahead"


@pytest.mark.parametrize(("zero", "size"), [("", 6), ("0", 6), ("1", 2), ("2", 2)])
def test_gradients_of_deepspeed_in_bf16(zero: str, size: int) -> None:
    """BF16_Optimizer adds up in fp32 beside them, and runs without ZeRO."""
    run = Run({**ROW, "zero_stage": zero}, 2)
    assert catalog.load("precisions", precision_of(run, framework_of(run))).gradient_bytes == size


CARDS = {**ROW, "model": "llama-3.2-1b", "gpu": "rtx-3090", "n_gpus": "8", "framework": "torch-ddp", "step_time_s": "3"}


def test_cards_without_a_network_are_one_node() -> None:
    found = replay(Run(CARDS, 2))
    assert "one node of 8" in found.assumed and found.predicted_seconds is not None
    stated = replay(Run({**CARDS, "gpus_per_node": "8"}, 2))
    assert "one node" not in stated.assumed
    assert found.predicted_seconds == pytest.approx(stated.predicted_seconds)


@pytest.mark.parametrize("cells", [{"gpus_per_node": "4"}, {"n_gpus": "32"}], ids=str)
def test_nodes_that_nothing_joins_are_no_machine(cells: dict[str, str]) -> None:
    """Their steps had come to 1e40 seconds."""
    assert "internode_gbps_per_gpu is blank" in replay(Run({**CARDS, **cells}, 2)).reason
    assert not replay(Run({**CARDS, **cells, "internode_gbps_per_gpu": "10"}, 2)).reason


def test_no_command_prices_what_nothing_joins() -> None:
    job = Job(model="llama-3.2-1b", gpu="rtx-3090", gpus=8, pp=8, global_batch=8, seq=2048)
    for asked in (seconds_of, timed, pass_times):
        with pytest.raises(DistsimError, match="need a network"):
            asked(resolve(job))


@pytest.mark.parametrize(
    ("cell", "chip"),
    [
        ("NVIDIA B300 SXM6 AC", ("b300-sxm", None, None)), ("NVIDIA GH200 120GB", ("gh200-96gb", None, None)),
        ("Standard_ND96isr_H100_v5", ("h100-sxm", "nd96isr_h100_v5", None)),
        ("Blackwell B200", ("b200-sxm", None, None)),
        ("H100 SXM5 (700W)", ("h100-sxm", None, None)), ("H100 SXM5 (350W)", None),
        ("H100 (80GB, SXM5)", ("h100-sxm", None, None)), ("H100 (PCIe, 80GB)", ("h100-pcie", None, None)),
        ("A100-SXM4-80GB 8x", ("a100-sxm4-80gb", None, 8)),
    ],
)  # fmt: skip
def test_names_as_drivers_and_clouds_print_them(cell: str, chip: tuple[str, str | None, int | None] | None) -> None:
    """All had been refused, as a power that is not the chip's still is."""
    assert chip_in(cell) == chip


@pytest.mark.parametrize(
    ("cells", "gibibytes"),
    [({}, 79.25), ({"notes": "A100 of 95.04 GiB"}, 95.04), ({"gpu_memory": "95 GiB"}, 95), ({"gpu_memory": "64"}, 64),
     ({"notes": "card of 80 GB"}, 79.25), ({"notes": "8 GPUs of 48 GB, modified"}, 48)],
)  # fmt: skip
def test_cards_of_another_size_than_their_usual_part(cells: dict[str, str], gibibytes: float) -> None:
    """Meta's H100s have 95 GiB: a peak of 88 on them had been no peak at all."""
    assert setup_of(Run({**ROW, **cells}, 2)).accelerator.capacity == pytest.approx(gibibytes * 2**30, rel=0.001)
    found = replay(Run({**ROW, "mem_peak_gb_per_gpu": "88", "mem_kind": "reserved", **cells}, 2))
    assert (found.memory_error is not None) == (gibibytes > 85)


@pytest.mark.parametrize(
    ("gpu", "notes", "watts"),
    [
        ("rtx-3090", "a PCIe card with power limit 240 W (default 350)", 240),
        ("rtx-3090", "power limit of 240W", 240), ("rtx-3090", "card limited to 280 W", 280),
        ("b300-sxm", "B300 with a 1000 W cap", 1000), ("rtx-3090", "power cap of 350 W reached", None),
        ("gh200-96gb", "660 W cap shared by CPU and GPU", None), ("rtx-3090", "no power limit of 240 W", None),
        ("rtx-3090", "drew 240 W", None), ("nobody's", "power limit 240 W", None),
    ],
)  # fmt: skip
def test_notes_that_tell_a_power_limit(gpu: str, notes: str, watts: float | None) -> None:
    assert power_of(Run({**ROW, "gpu": gpu, "notes": notes}, 2)) == watts
    assert power_of(Run({**ROW, "gpu": gpu, "notes": notes, "gpu_power": "200"}, 2)) == 200
