"""An accelerator of a user's own whose architecture, links or host nobody knows: an answer, and what it is like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distsim import catalog
from distsim.engine.collective import collective
from distsim.engine.jobs.resolve import resolve
from distsim.engine.kernels.chip import TYPICAL_SHARE, usual_share
from distsim.engine.kernels.weights import host_bandwidth
from distsim.engine.memory import memory_of
from distsim.engine.networks.links import network_for, scale_up
from distsim.engine.networks.network import GENERATIONS
from distsim.engine.networks.unknown import unknown_architecture, unknown_links
from distsim.engine.step import step_of
from distsim.engine.steps.report import StepReport
from distsim.engine.traffic import comm_of
from distsim.errors import DistsimError
from distsim.specs.accelerator import ARCHITECTURES, VENDORS, Accelerator
from distsim.specs.job import Job

JOB = Job(model="llama-2-7b", gpus=8, gpu="ours", cluster="our-nodes", framework="huggingface")


def card(name: str) -> Accelerator:
    found: Accelerator = catalog.load("gpus", name)
    return found


@pytest.fixture
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own presets, with nodes of eight of the user's own chips."""
    monkeypatch.setenv("DISTSIM_PRESETS", str(tmp_path))
    for kind in ("gpus", "clusters"):
        (tmp_path / kind).mkdir()
    nodes = (catalog.shipped_folder() / "clusters" / "dgx-b200.toml").read_text(encoding="utf-8")
    nodes = re.sub(r"(?m)^(name|aliases) = .*$", "", nodes)
    (tmp_path / "clusters" / "our-nodes.toml").write_text(re.sub(r"(?m)^gpu = .*$", 'gpu = "ours"', nodes))
    return tmp_path


def written(folder: Path, lines: str, change: tuple[str, str] = ("", "")) -> None:
    """A B200 under another name, its architecture in these ``lines``."""
    text = (catalog.shipped_folder() / "gpus" / "b200-sxm.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(name|aliases|architecture) = .*$", "", text)
    (folder / "gpus" / "ours.toml").write_text(f"{lines}\n{re.sub(*change, text) if change[0] else text}")


def step_on(gpu: str = "ours", cluster: str = "our-nodes") -> StepReport:
    return step_of(resolve(JOB.model_copy(update={"gpu": gpu, "cluster": cluster})))


def test_all_shipped_chips_are_known_and_no_other_name_is() -> None:
    chips = [card(name) for name in catalog.names("gpus")]
    assert {chip.treated for chip in chips} == set(ARCHITECTURES)
    assert {chip.vendor for chip in chips} == set(VENDORS)
    assert not [note for chip in chips for note in unknown_links(chip)]
    assert all(bool(unknown_architecture(chip)) == bool(chip.treated_like) for chip in chips)
    assert set(GENERATIONS) <= {name.split()[0] for name in ARCHITECTURES}


def test_an_unknown_architecture_is_answered_and_told_everywhere(presets: Path) -> None:
    written(presets, 'architecture = "rubin"')
    report = step_on()
    setup = report.setup
    for notes in (report.notes, memory_of(setup).setup.notes, comm_of(setup).notes):
        (note,) = [note for note in notes if "architecture 'rubin' of ours is not known" in note]
        assert "as on ampere" in note and 'treated_like = "blackwell"' in note
    assert report.seconds != step_on("b200-sxm", "dgx-b200").seconds
    assert network_for("ours", cluster=setup.cluster).generation == GENERATIONS["ampere"]
    bare = setup.accelerator.model_copy(update={"measured": type(setup.accelerator.measured)()})
    assert usual_share(bare) == TYPICAL_SHARE


def test_a_chip_that_is_treated_like_a_known_one_has_its_times(presets: Path) -> None:
    written(presets, 'architecture = "Rubin"\ntreated_like = "Blackwell"')
    ours, theirs = step_on(), step_on("b200-sxm", "dgx-b200")
    assert ours.work.setup.accelerator.architecture == "rubin"
    assert ours.timing == theirs.timing and ours.memory.peak == theirs.memory.peak
    assert ours.seconds == pytest.approx(theirs.seconds, rel=0.15)  # but for runs that were measured on a B200
    assert "ours is of architecture rubin, and treated like blackwell, as its preset says" in ours.notes
    prices = [collective("all_reduce", gpu=name, gpus=8).seconds for name in ("ours", "b200-sxm")]
    assert prices[0] == prices[1]


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ('architecture = "hoper"', "architecture 'hoper' of ours is not known (did you mean hopper?)"),
        ('architecture = "hopper gh300"', "die 'hopper gh300' of ours is not known: treated like any of hopper"),
        ('architecture = "Ampere  GA102"', ""),
    ],
)
def test_slips_and_other_dies_are_told(stated: str, told: str, presets: Path) -> None:
    written(presets, stated)
    note = unknown_architecture(card("ours"))
    assert note.startswith(told) and bool(note) == bool(told)


def test_case_tells_no_vendor_from_another(presets: Path) -> None:
    written(presets, 'architecture = "blackwell"', (r"(?m)^vendor = .*$", 'vendor = "Nvidia"'))
    assert card("ours").vendor == "NVIDIA"
    assert step_on().memory.peak == step_on("b200-sxm", "dgx-b200").memory.peak


def test_the_memory_of_a_grace_is_in_its_preset() -> None:
    assert {name for name in catalog.names("gpus") if (host := card(name).host) and host.memory_rate} == {
        name for name in catalog.names("gpus") if (host := card(name).host) and host.kind == "c2c"
    }
    assert host_bandwidth(card("gb200").host) == 500e9


def test_one_can_be_treated_like_what_is_known_only(presets: Path) -> None:
    written(presets, 'architecture = "rubin"\ntreated_like = "blackwel"')
    with pytest.raises(DistsimError, match="treated_like 'blackwel' is no known architecture") as raised:
        card("ours")
    assert "did you mean blackwell" in str(raised.value)


def test_a_network_of_no_known_generation_is_told() -> None:
    clusters = [catalog.load("clusters", name) for name in catalog.names("clusters")]
    told = {one.network.link_class for one in clusters if one.network and unknown_links(card("h100-sxm"), one, 10**6)}
    assert told == {"ib"}
    bare = catalog.load("clusters", "node-4x-max-1550")
    note = "network ib of node-4x-max-1550 is timed as ib-edr: no other is known"
    assert unknown_links(card("max-1550"), bare, 8) == [note]
    assert unknown_links(card("max-1550"), bare, 4) == []


def test_links_and_hosts_that_nobody_described_are_told(presets: Path) -> None:
    written(presets, 'architecture = "blackwell"', (r"(?m)^generation = \d+", "generation = 7"))
    notes = step_on().notes
    assert "links of ours (nvlink 7) are not known: they reach the share of their rate that nvlink-5 does" in notes
    assert "PCIe 7 of ours is not known: a flow between cards is that of PCIe 6" in notes


def test_a_host_that_is_not_described_has_the_usual_slots() -> None:
    card = catalog.load("gpus", "l40s").model_copy(update={"host": None})
    assert scale_up(card)[0] == "pcie-4"
