"""A plan tells which settings that change no layout would make its option cheaper, and what its framework refuses."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from shell import piped

import distsim
from distsim.engine.advice.settings import OF_NO_LAYOUT, quicker_settings
from distsim.engine.jobs.resolve import resolve
from distsim.engine.plans.layouts import space
from distsim.specs.job import Job

EXPERTS = (
    "plan qwen3-235b-a22b --tokens 1T --gpu h100-sxm --provider nebius --gpus 256 --seq 8192 --zero 1 --pp 1,2,4 --cp 1"
)
ASKED = "plan qwen3.5-397b-a17b --tokens 1T --gpu gb200 --provider coreweave --gpus 512 --seq 8192 --cp 1 --tp 1,2,4"


@pytest.fixture(scope="module")
def planned() -> dict[str, Any]:
    """The JSON of a plan whose experts send their tokens one by one."""
    answer: dict[str, Any] = json.loads(piped(*shlex.split(EXPERTS), "--json").stdout)
    return answer


def test_a_plan_names_the_settings_that_would_save_and_what(planned: dict[str, Any]) -> None:
    saving, option = planned["saving"], planned["options"][planned["cheapest"]]
    assert saving["saved_dollars"] > 0 and "--expert-dispatcher" in saving["flags"]
    assert saving["dollars"] + saving["saved_dollars"] == pytest.approx(option["dollars"])
    ratio = saving["step_seconds"] / option["step_seconds"]
    assert saving["days"] == pytest.approx(option["days"] * ratio)


def test_its_step_takes_what_the_line_promises_and_the_plan_takes_no_more(planned: dict[str, Any]) -> None:
    saving = planned["saving"]
    text = piped(*shlex.split(EXPERTS)).stdout
    (line,) = re.findall(r"^the step    distsim (.*)$", text, re.MULTILINE)
    assert f"settings    {saving['flags']}: $" in text
    flags = shlex.split(saving["flags"])
    step = json.loads(piped(*shlex.split(line), *flags, "--json").stdout)
    assert step["seconds"] == pytest.approx(saving["step_seconds"])
    again = json.loads(piped(*shlex.split(EXPERTS), *flags, "--json").stdout)
    assert again["options"][again["cheapest"]]["dollars"] <= saving["dollars"] * 1.01


def test_settings_keep_the_layout_and_the_margin() -> None:
    job = Job(model="qwen3-30b-a3b", gpu="h100-sxm", gpus=64, ep=8, zero=1, micro_batch=1, recompute="full", seq=4096,
              global_batch=256)  # fmt: skip
    found = quicker_settings(resolve(job))
    assert found is not None and "expert_dispatcher" in found.options
    after = distsim.step(job.model_copy(update=found.options))
    assert after.seconds == pytest.approx(found.seconds) and after.setup.layout.ep == 8
    assert quicker_settings(resolve(job), margin=0.9) is None
    assert "tp" not in OF_NO_LAYOUT and "recompute" not in OF_NO_LAYOUT


def test_a_plan_of_its_own_accord_recommends_nothing_that_its_default_framework_refuses() -> None:
    """ZeRO 3 with pipeline stages, which Megatron core refuses."""
    answer = json.loads(piped(*shlex.split(ASKED), "--zero", "3", "--json").stdout)
    assert all(option["layout"]["pp"] == 1 for option in answer["options"])
    named = json.loads(piped(*shlex.split(ASKED), "--zero", "3", "--framework", "megatron-core", "--json").stdout)
    assert [one["layout"] for one in named["options"]] == [one["layout"] for one in answer["options"]]
    assert not any("computed anyway" in note for note in answer["notes"])


def test_a_plan_says_what_its_default_framework_would_refuse_of_what_was_asked_for() -> None:
    told = piped(*shlex.split(ASKED), "--zero", "3", "--pp", "4").stderr
    assert "megatron-core does not run ZeRO 3 with 4 pipeline stages" in told
    assert "computed anyway, as no --framework is given" in told


def test_only_bounds_of_the_user_are_stated() -> None:
    from distsim import catalog
    from distsim.engine.layouts.bounds import parse_bounds

    made = space(Job(model="llama-7b"), catalog.load("clusters", "dgx-h100"), parse_bounds({"tp": "4"}, []))
    assert "tp" not in made.usual and {"pp", "zero", "micro_batch"} <= made.usual <= made.given.keys()


@pytest.mark.parametrize("command", ["memory", "comm"])
def test_stages_that_the_default_framework_refuses_are_told(command: str) -> None:
    words = (command, "llama-7b", "--gpus", "16", "--pp", "2", "--zero", "1")
    text = piped(*words).stdout
    for stage in (2, 3):
        told = f"ZeRO {stage}: megatron-core does not run ZeRO {stage} with 2 pipeline stages; computed anyway"
        assert told in re.sub(r"\s+", " ", text)
        if command == "memory":
            assert re.search(rf"^{stage} .* refused$", text, re.MULTILINE)
    assert "ZeRO 0:" not in text
    named = piped(*words, "--framework", "megatron-core").stdout
    assert "computed anyway" not in named and "not valid" in named
    own = piped(*words[:-1], "3")  # what the job itself breaks is a note, and no more of its own stage
    assert "ZeRO 3:" not in own.stdout and "computed anyway" in own.stderr


def test_degrees_that_do_not_divide_a_sequence_are_tried_without_sequence_parallelism() -> None:
    """A pod of 6,144 chips needs a factor of three that neither batch nor sequence have: PaLM's own layout had none."""
    answer = json.loads(piped(*shlex.split(
        "plan palm-540b --tokens 780B --gpu tpu-v4 --gpus 6144 --price 3 --seq 2048 --global-batch 2048 --json"
    )).stdout)  # fmt: skip
    layout = answer["options"][0]["layout"]
    assert layout["tp"] % 3 == 0 and not layout["sequence_parallel"]
