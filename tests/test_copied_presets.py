"""A preset under another name has the answers of its original: what decides stands in the preset, not in its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.architectures import traits_of
from distsim.engine.advice.changes import changes
from distsim.engine.jobs.hardware import profile_of
from distsim.engine.jobs.profile import recipe_kernels
from distsim.engine.jobs.resolve import resolve
from distsim.engine.step import step_of
from distsim.preset_files import plain
from distsim.specs.accelerator import Accelerator
from distsim.specs.job import Job

JOB: dict[str, Any] = {"model": "gpt2", "gpu": "h100-sxm", "gpus": 2, "micro_batch": 1}


def copied(folder: Path, kind: str, name: str, *changes: tuple[str, str]) -> str:
    """A copy of a shipped preset in a file of another name, without what names the original, and with changed lines."""
    text = (catalog.shipped_folder() / kind / f"{name}.toml").read_text(encoding="utf-8")
    for found, new in (("(?m)^name = .*$", ""), ("(?m)^aliases = .*$", ""), *changes):
        text = re.sub(found, new, text, count=1)  # states have names, too
    file = folder / "ours.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("framework", ["huggingface", "fsdp"])
@pytest.mark.parametrize("name", catalog.names("optimizers"))
def test_optimizers(name: str, framework: str, tmp_path: Path) -> None:
    """fsdp runs torch's foreach in the place of adam and adamw, Trainer keeps embeddings' states of bitsandbytes' in
    fp32."""
    whole = {"zero": 0} if catalog.load("optimizers", name).projection else {}  # of gradients that nobody shards
    ours, theirs = (distsim.memory(**{**JOB, **whole}, framework=framework, optimizer=one)
                    for one in (copied(tmp_path, "optimizers", name), name))  # fmt: skip
    assert ours.peak == theirs.peak


@pytest.mark.parametrize("folder", ["plain", "unfused"])
def test_a_folder_does_not_fuse_an_update(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    file = copied(tmp_path / folder, "optimizers", "adamw")
    assert resolve(Job(**JOB, framework="fsdp", optimizer=file)).optimizer.foreach


def test_fused_updates_are_aliases() -> None:
    for name in catalog.names("optimizers"):
        one = catalog.load("optimizers", name)
        assert set(one.fused) <= set(one.aliases)
        assert all(plain(word) == word for word in one.fused)


@pytest.mark.parametrize("name", ["adamw-foreach", "adam-forloop", "lamb"])
def test_one_bit_is_for_adam_however_it_is_made(name: str, tmp_path: Path) -> None:
    for one in (name, copied(tmp_path, "optimizers", name)):
        assert distsim.comm(**JOB, optimizer=one, compress="1bit").collectives


@pytest.mark.parametrize("name", [*catalog.names("precisions")])
def test_recipes_of_precision(name: str, tmp_path: Path) -> None:
    """Leaving the master copy out is proposed alike."""
    offered = [[change.shown.get("precision") for change in changes(resolve(
                    Job(**{**JOB, "gpu": "b200-sxm"}, framework="huggingface", precision=one)))]
               for one in (copied(tmp_path, "precisions", name), name)]  # fmt: skip
    assert offered[0] == offered[1]


@pytest.mark.parametrize("precision", ["nvfp4", "mxfp8"])
@pytest.mark.parametrize("name", ["nemotron-3-super-120b-a12b", "nemotron-3.5-lightning-30b-a3b", "qwen3-235b-a22b"])
def test_models_have_their_recipes(name: str, precision: str, tmp_path: Path) -> None:
    bridge, chip = catalog.load("frameworks", "megatron-bridge"), catalog.load("gpus", "b200-sxm")
    ours, theirs = (recipe_kernels(bridge, catalog.load("models", one), chip, precision)
                    for one in (copied(tmp_path, "models", name), name))  # fmt: skip
    assert ours == theirs != {}


def test_a_chip_of_a_new_vendor_has_the_times_of_what_it_is_treated_like(tmp_path: Path) -> None:
    """Plain torch in fp32, whose kernels are NVIDIA's, and what a context takes."""

    def on(gpu: str) -> Any:
        setup = resolve(Job(model="gpt2", gpu=gpu, gpus=1, framework="plain-torch", precision="tf32"))
        return step_of(setup)

    acme = copied(tmp_path, "gpus", "h100-sxm", ('(?m)^vendor = .*$', 'vendor = "Acme"'),
                  ("(?m)^architecture = .*$", 'architecture = "acme-1"\ntreated_like = "hopper"'))  # fmt: skip
    ours, theirs = on(acme), on("h100-sxm")
    assert ours.breakdown == theirs.breakdown and ours.memory.peak == theirs.memory.peak


def test_architectures_are_like_their_makers() -> None:
    chips: list[Accelerator] = [catalog.load("gpus", name) for name in catalog.names("gpus")]
    for chip in chips:
        assert traits_of(chip).cuda == (chip.vendor == "NVIDIA"), chip.name
        assert traits_of(chip).common == (chip.vendor in ("NVIDIA", "AMD")), chip.name


@pytest.mark.parametrize("name", ["tpu-v3", "tpu-v4", "h100-sxm"])
def test_chips_have_their_power_profiles(name: str, tmp_path: Path) -> None:
    ours, theirs = (profile_of(catalog.load("gpus", one)) for one in (copied(tmp_path, "gpus", name), name))
    assert ours == theirs
    assert theirs.name == (name if name.startswith("tpu") else "default")
