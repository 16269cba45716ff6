"""An accelerator of a user's own whose architecture, links or host nobody knows: an answer, and what it is like."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from distsim import catalog
from distsim.architectures import KIND, traits_of
from distsim.engine.collective import collective
from distsim.engine.jobs.resolve import resolve
from distsim.engine.kernels.chip import TYPICAL_SHARE, usual_share
from distsim.engine.kernels.weights import host_bandwidth
from distsim.engine.memory import memory_of
from distsim.engine.networks.links import network_for, scale_up
from distsim.engine.networks.unknown import unknown_architecture, unknown_links
from distsim.engine.step import step_of
from distsim.engine.steps.report import StepReport
from distsim.engine.traffic import comm_of
from distsim.errors import DistsimError
from distsim.preset_files import plain
from distsim.specs.accelerator import VENDORS, Accelerator, Measured
from distsim.specs.architecture import ABOUT
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
    likes = {catalog.load(KIND, name).like for name in catalog.names(KIND)}
    assert {plain(chip.treated) for chip in chips} == set(catalog.names(KIND)) - (
        likes & {plain(one) for one in VENDORS}
    )
    assert {chip.vendor for chip in chips} == set(VENDORS)
    assert not [note for chip in chips for note in unknown_links(chip)]
    assert all(bool(unknown_architecture(chip)) == bool(chip.treated_like) for chip in chips)


def test_an_unknown_architecture_is_answered_and_told_everywhere(presets: Path) -> None:
    written(presets, 'architecture = "rubin"')
    report = step_on()
    setup = report.setup
    for notes in (report.notes, memory_of(setup).setup.notes, comm_of(setup).notes):
        (note,) = [note for note in notes if "architecture 'rubin' of ours is unknown" in note]
        assert "are those of ampere" in note and 'treated_like = "blackwell"' in note
    assert report.seconds != step_on("b200-sxm", "dgx-b200").seconds
    assert network_for("ours", cluster=setup.cluster).generation == catalog.load(KIND, "ampere").tuning_row
    bare = setup.accelerator.model_copy(update={"measured": type(setup.accelerator.measured)()})
    assert usual_share(bare) == TYPICAL_SHARE


def test_a_chip_that_is_treated_like_a_known_one_has_its_times(presets: Path) -> None:
    written(presets, 'architecture = "Rubin"\ntreated_like = "Blackwell"')
    ours, theirs = step_on(), step_on("b200-sxm", "dgx-b200")
    assert ours.work.setup.accelerator.architecture == "rubin"
    assert ours.timing == theirs.timing and ours.memory.peak == theirs.memory.peak
    assert ours.seconds == pytest.approx(theirs.seconds, rel=0.15)  # but for runs that were measured on a B200
    assert "ours has architecture rubin and is treated like blackwell, as its preset says" in ours.notes
    prices = [collective("all_reduce", gpu=name, gpus=8).seconds for name in ("ours", "b200-sxm")]
    assert prices[0] == prices[1]


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ('architecture = "hoper"', "architecture 'hoper' of ours is unknown (did you mean hopper?)"),
        ('architecture = "hopper gh300"', "die 'hopper gh300' of ours is unknown: treated like any of hopper"),
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
    with pytest.raises(DistsimError, match="treated_like 'blackwel' of ours is not a known architecture") as raised:
        traits_of(card("ours"))
    assert "did you mean blackwell" in str(raised.value)


def test_a_network_of_no_known_generation_is_told() -> None:
    clusters = [catalog.load("clusters", name) for name in catalog.names("clusters")]
    told = {one.network.link_class for one in clusters if one.network and unknown_links(card("h100-sxm"), one, 10**6)}
    assert told == {"ib", "efa"}  # nobody has told the generation of a trn3-ultraserver's EFA
    bare = catalog.load("clusters", "node-4x-max-1550")
    note = "network ib of node-4x-max-1550 is of an unknown class: timed as ib-edr"
    assert unknown_links(card("max-1550"), bare, 8) == [note]
    assert unknown_links(card("max-1550"), bare, 4) == []


def test_links_and_hosts_that_nobody_described_are_told(presets: Path) -> None:
    written(presets, 'architecture = "blackwell"', (r"(?m)^generation = \d+", "generation = 7"))
    notes = step_on().notes
    assert "links of ours (nvlink 7) are unknown: they reach the same share of their rate as nvlink-5" in notes
    assert "PCIe 7 of ours is unknown: cards transfer at the rate of PCIe 6" in notes


def test_a_host_that_is_not_described_has_the_usual_slots() -> None:
    card = catalog.load("gpus", "l40s").model_copy(update={"host": None})
    assert scale_up(card)[0] == "pcie-4"


TRAITS: dict[str, Any] = {
    "collectives": "rccl", "tuning_row": 0, "cuda_graphs": False, "common": False, "context_unit_bytes": "5 MB",
    "context_bytes": "1 GB", "multicast_rank_bytes": "0.2 GB", "small_workspaces": True, "transposes": True,
    "full_clock_joules": 2e-12,
    "fp32_joules": 3e-12, "usual_share": 0.5, "batched_share": 0.4, "tf32_weight_share": 0.3, "scan_share": 0.2,
    "wide_passes": 0.7, "widened_share": 0.6,
    "lanes": 0.5, "bf16_adds": False, "unaligned_by_clock": False, "attention_age": 1, "older_per_clock": 900.0,
    "own_backward_share": 0.6,
    "torch_attention_forward": 0.9, "torch_attention_backward": 0.8, "flash_attention": "none", "cuda": False,
    "sparse_attention": False, "device_counts": False, "checked_units": False, "own_software": "maxtext",
    "compiled_only": True, "one_queue": True, "torch_own_width": 64, "triton": False,
}  # fmt: skip


def test_a_chip_inherits_from_its_architecture_and_may_state_each_figure_for_itself(presets: Path) -> None:
    """Tables in code knew architectures only: a chip could have no context, energy or kernels of its own."""
    theirs = traits_of(card("b200-sxm"))
    assert set(TRAITS) | {"grouped"} == set(type(theirs).model_fields) - ABOUT
    for name, value in TRAITS.items():
        text = str(value).lower() if isinstance(value, bool) else json.dumps(value)
        written(presets, f'architecture = "blackwell"\ntraits.{name} = {text}')
        ours = traits_of(card("ours"))
        changed = {one for one in type(ours).model_fields if getattr(ours, one) != getattr(theirs, one)}
        assert changed == {name}, value
    written(presets, 'architecture = "blackwell"\ntraits.grouped.torch = [0.5, 0.5, 0.5]')
    grouped = traits_of(card("ours")).grouped
    assert grouped is not None and theirs.grouped is not None
    assert grouped == theirs.grouped.model_copy(update={"torch": (0.5, 0.5, 0.5)})


def test_what_a_chip_states_for_itself_reaches_memory_and_time(presets: Path) -> None:
    written(presets, 'architecture = "blackwell"')
    plain_one = step_on()
    written(presets, 'architecture = "blackwell"\ntraits = { context_bytes = "1.48 GB", full_clock_joules = 9e-12 }',
            (r"(?s)\[measured\].*?\n\n", ""))  # fmt: skip
    ours = step_on()
    assert ours.memory.peak - plain_one.memory.peak == pytest.approx(1e9)
    assert usual_share(card("ours")) < usual_share(card("b200-sxm").model_copy(update={"measured": Measured()}))


def test_an_architecture_of_a_users_own_is_known_and_may_be_like_another(presets: Path) -> None:
    (presets / KIND).mkdir()
    file = presets / KIND / "acme-1.toml"
    file.write_text('like = "hopper"\nlanes = 2.0')
    written(presets, 'architecture = "Acme 1"', (r"(?m)^vendor = .*$", 'vendor = "Acme"'))
    assert not unknown_architecture(card("ours"))
    assert traits_of(card("ours")) == traits_of(card("h100-sxm")).model_copy(update={"lanes": 2.0})
    for text, told in (('like = "acme-1"', "to each other by like: acme-1"), ('like = "hoper"', "did you mean hopper"),
                       ("attention_age = 3", "attention_age 3 is too large")):  # fmt: skip
        file.write_text(text)
        with pytest.raises(DistsimError, match=told):
            traits_of(card("ours"))
    written(presets, 'architecture = "blackwell"\ntraits.like = "hopper"')
    with pytest.raises(DistsimError, match="traits cannot state like"):
        card("ours")
