"""Every accelerator answers, those included whose architecture nobody has measured."""

from __future__ import annotations

import pytest

import distsim
from distsim import catalog
from distsim.engine.jobs.resolve import resolve
from distsim.engine.kernels.chip import TYPICAL_SHARE, Chip, usual_share
from distsim.engine.runs.cluster import cluster_of
from distsim.interop.runs import Run

NAMES = catalog.names("gpus")
USUAL = {"tpu": "maxtext", "neuron": "neuronx"}


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_told_for_every_accelerator(name: str) -> None:
    kind = catalog.load("gpus", name).generation
    job = {"model": "llama-7b", "gpu": name, "framework": USUAL.get(kind, "huggingface")}
    report = distsim.step(**job)
    assert 0 < report.seconds < float("inf") and report.memory.peak > 0


@pytest.mark.parametrize("name", ["c500", "mtt-s4000", "mlu370-x8", "bi-v100", "bw200", "ascend-910a"])
def test_chips_without_measured_relatives_take_the_usual_share(name: str) -> None:
    card = catalog.load("gpus", name)
    assert not card.measured.matmul_bf16 and not card.measured.matmul_fp16
    assert usual_share(card) == TYPICAL_SHARE


def test_stacks_of_an_intel_card_are_half_of_it() -> None:
    stack, card = catalog.load("gpus", "max-1550-stack"), catalog.load("gpus", "Intel Max 1550")
    assert 2 * stack.memory == card.memory and 2 * stack.bandwidth == pytest.approx(card.bandwidth)
    for dtype in ("fp32", "tf32", "bf16", "int8"):
        assert 2 * getattr(stack.peak, dtype) == pytest.approx(getattr(card.peak, dtype), rel=1e-3)
    assert stack.measured.matmul_bf16 * stack.peak.bf16 == pytest.approx(273e12, rel=2e-3)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("Ascend 910A", "ascend-910a"), ("910A", "ascend-910a"), ("MetaX C500", "c500"), ("MTT S4000", "mtt-s4000"),
        ("Cambricon MLU370-X8", "mlu370-x8"), ("Hygon K100 AI", "k100-ai"), ("Iluvatar BI-V150", "bi-v150"),
        ("Intel Data Center GPU Max 1550", "max-1550"), ("RTX 3060 12GB", "rtx-3060"),
        ("Intel Data Center GPU Max 1550 tile", "max-1550-stack"), ("Instinct MI300A", "mi300a"),
        ("RTX 4060 Ti", "rtx-4060-ti-16gb"), ("RTX 5060 Ti", "rtx-5060-ti-16gb"),
        ("NVIDIA L20", "l20"), ("H800 PCIe", "h800-pcie"), ("Quadro RTX 8000", "quadro-rtx-8000"),
        ("GeForce GTX 1080 Ti", "gtx-1080-ti"), ("RTX 5080", "rtx-5080"), ("RTX 5000 Ada", "rtx-5000-ada"),
    ],
)  # fmt: skip
def test_new_chips_by_the_names_that_tables_have(told: str, name: str) -> None:
    assert catalog.load("gpus", told).name == name


def test_a_measured_tf32_product_counts_where_it_is_less_than_that_of_16_bits() -> None:
    card = catalog.load("gpus", "max-1550-stack")
    assert card.measured.matmul_tf32 * card.peak.tf32 == pytest.approx(110e12, rel=2e-3)
    assert card.measured.matmul_tf32 < card.measured.matmul_bf16
    job = distsim.Job(model="bert-large", gpu="max-1550-stack", seq=512, micro_batch=32)
    rates = [Chip(resolve(job.model_copy(update={"precision": name}))).rate for name in ("tf32", "bf16")]
    assert rates == [pytest.approx(110e12, rel=2e-3), pytest.approx(273e12, rel=2e-3)]


@pytest.mark.parametrize(
    ("name", "units", "clock"), [("mi100", 120, 1502), ("mi210", 104, 1700), ("mi250x-gcd", 110, 1700)]
)
def test_fp32_of_cdna_is_that_of_its_matrix_cores(name: str, units: int, clock: int) -> None:
    """256 operations a compute unit and clock; the vector units have half, packed or not."""
    assert catalog.load("gpus", name).peak.fp32 == pytest.approx(256 * units * clock * 1e6, rel=2e-3)


def test_servers_of_two_boards_are_two_meshes() -> None:
    """An Ascend 910 has three links, one to each neighbour on its board of four; 910B servers join eight."""
    row = {"model": "llama-7b", "n_gpus": "8", "gpus_per_node": "8", "framework": "mindformers", "precision": "fp16"}
    nodes = [cluster_of(Run({**row, "gpu": gpu}, 2)) for gpu in ("ascend-910a", "ascend-910b")]
    assert [node and (node.gpus_per_node, node.domain) for node in nodes] == [(4, 4), (8, 8)]


@pytest.mark.parametrize("name", [name for name in NAMES if catalog.load("gpus", name).devices])
def test_chips_that_programs_see_as_several_devices_say_so(name: str) -> None:
    """A replica of 70 GiB that fits the 96 GiB of a Trainium2 fits no device that a program has."""
    chip = catalog.load("gpus", name)
    job = {"model": "llama-7b", "gpu": name, "framework": USUAL.get(chip.generation, "huggingface")}
    told = f"programs see {chip.devices} devices of {chip.capacity / chip.devices / 2**30:,.2f} GiB in each {name}"
    for report in (distsim.memory(**job), distsim.comm(**job), distsim.step(**job)):
        (note,) = [note for note in report.notes if note.startswith(told)]
        assert (f"--gpu {chip.device}" in note) == bool(chip.device)
    if chip.device:
        part = catalog.load("gpus", chip.device)
        assert part.capacity * chip.devices == chip.capacity and not part.devices
        assert not [note for note in distsim.memory(**{**job, "gpu": part.name}).notes if "programs see" in note]
