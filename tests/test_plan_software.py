"""A plan times accelerators with a compiler of their own under software that they have."""

from __future__ import annotations

import json
import shlex

import pytest
from shell import piped

import distsim
from distsim import catalog
from distsim.engine.jobs.lacking import own_software
from distsim.engine.jobs.resolve import resolve
from distsim.specs.job import Job


def test_every_compiled_only_chip_has_a_profile() -> None:
    kinds = {"tpu-v5p": "maxtext", "trainium1": "neuronx", "gaudi2": "habana", "h100-sxm": None, "mi300x": None}
    assert {name: own_software(catalog.load("gpus", name)) for name in kinds} == kinds


def test_a_tpu_is_timed_under_software_that_it_has() -> None:
    asked = shlex.split("plan llama-2-7b --tokens 100B --gpu tpu-v5p,h100-sxm --gpus 64 --provider gcp,nebius")
    answer = json.loads(piped(*asked, "--json").stdout)
    software = {one["gpu"]: one["framework"] for one in answer["options"]}
    assert software == {"tpu-v5p": "maxtext", "h100-sxm": "megatron-core"}
    assert any("tpu-v5p is timed under maxtext: megatron-core does not run on it" in note for note in answer["notes"])
    assert not any("h100-sxm is timed under" in note for note in answer["notes"])


def test_the_step_of_a_tpu_agrees_with_its_plan() -> None:
    asked = shlex.split("plan llama-2-7b --tokens 100B --gpu tpu-v5p --gpus 64")
    text = piped(*asked).stdout
    (line,) = [line for line in text.splitlines() if line.startswith("the step")]
    words = shlex.split(line.split("distsim", 1)[1])
    step = piped(*words, "--json")
    (option,) = json.loads(piped(*asked, "--json").stdout)["options"]
    answer = json.loads(step.stdout)
    assert (answer["job"]["framework"], answer["seconds"]) == ("maxtext", option["step_seconds"])
    assert "tpu-v5p is timed under maxtext" in step.stderr


@pytest.mark.parametrize(("where", "software"), [
    ({"gpu": "tpu-v5p"}, "maxtext"), ({"cluster": "tpu-v5p-pod"}, "maxtext"), ({"gpu": "trn2-neuroncore"}, "neuronx"),
    ({"gpu": "gaudi2"}, "habana"), ({}, "megatron-core"), ({"gpu": "mi300x"}, "megatron-core"),
])  # fmt: skip
def test_every_command_takes_the_software_of_the_chip(where: dict[str, str], software: str) -> None:
    job = Job(model="llama-2-7b", gpus=8, zero=1, **where)
    assert resolve(job).framework.name == software
    stated = Job(model="llama-2-7b", gpus=8, zero=1, framework=software, **where)
    assert distsim.step(job).seconds == distsim.step(stated).seconds
    assert distsim.memory(job).peak == distsim.memory(stated).peak


def test_a_search_takes_it_too() -> None:
    asked = shlex.split("search llama-2-7b --gpu tpu-v5p --gpus 8 --global-batch 64 --json")
    unnamed, named = piped(*asked), piped(*asked, "--framework", "maxtext")
    first, second = ([one["seconds"] for one in json.loads(told.stdout)["layouts"]] for told in (unnamed, named))
    assert first == second
    assert "tpu-v5p is timed under maxtext" in unnamed.stderr
    assert "is timed under maxtext" not in named.stderr


def test_a_stated_framework_leaves_out_what_it_does_not_run_on() -> None:
    asked = shlex.split("plan llama-2-7b --tokens 100B --gpus 64 --provider gcp,nebius --framework megatron-core")
    mixed = piped(*asked, "--gpu", "tpu-v5p,h100-sxm", "--json")
    answer = json.loads(mixed.stdout)
    assert {one["gpu"] for one in answer["options"]} == {"h100-sxm"}
    assert any(note.startswith("left out: megatron-core does not run on tpu-v5p") for note in answer["notes"])
    alone = piped(*asked, "--gpu", "tpu-v5p")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "error: megatron-core does not run on tpu-v5p" in alone.stderr
