"""What a framework has no switch for is computed where it is asked for, told, and neither tried nor proposed."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from typing import Any

import pytest
from shell import piped

import distsim
from distsim import catalog
from distsim.engine.advice.changes import changes
from distsim.engine.advice.quicker import changes as quicker
from distsim.engine.jobs.resolve import resolve
from distsim.errors import DistsimError
from distsim.specs.job import Job

WHOLE: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 8, "seq": 4096}
PACKED: dict[str, Any] = {**WHOLE, "gpus": 2, "lora_rank": 16, "lora_targets": "q,v"}
NO_SWITCH = "has no switch for --recompute"


def recomputed(framework: str, **options: Any) -> set[tuple[str, str]]:
    """(kind, words) of recomputation that any advice proposes."""
    setup = resolve(Job(**WHOLE, framework=framework, **options))
    fit = {tuple(sorted(one.shown.items())) for one in changes(setup) if one.family == "recompute"}
    fast = {tuple(sorted(options.items())) for kind, _, options in quicker(setup) if kind == "recompute"}
    return {(name, str(value)) for one in fit | fast for name, value in one if value is not None}


def layouts(*words: str) -> list[dict[str, Any]]:
    """The jobs that a search ranks."""
    return [one["layout"] for one in json.loads(piped(*words).stdout)["layouts"]]


@pytest.mark.parametrize("framework", ["huggingface", "unsloth", "axolotl"])
@pytest.mark.parametrize("now", ["none", "full"])
def test_advice_proposes_no_recomputation_that_takes_code(framework: str, now: str) -> None:
    named = recomputed(framework, recompute=now, **({} if framework != "unsloth" else {"zero": 0}))
    assert named <= {("recompute", "full"), ("recompute", "none")}


@pytest.mark.parametrize("now", ["none", "selective", "full"])
def test_torchtitan_chooses_operations_but_no_layers(now: str) -> None:
    """Its release of summer 2026 has no more number for every n-th layer."""
    named = recomputed("torchtitan", recompute=now)
    assert not any(name == "recompute_layers" for name, _ in named)
    assert named & {("recompute", "selective"), ("recompute", "none"), ("recompute", "full")}


@pytest.mark.parametrize("framework", ["fsdp", "deepspeed", "torch-ddp", "megatron-core"])
def test_frameworks_whose_wrappers_choose_layers_are_proposed_some(framework: str) -> None:
    named = recomputed(framework, recompute="none")
    assert ("recompute", "selective") in named and any(name == "recompute_layers" for name, _ in named)


def test_a_search_tries_it_only_where_it_is_asked_for() -> None:
    words = shlex.split("search llama-3.1-8b --gpu h100-sxm --gpus 8 --framework huggingface --seq 8192 --json --top 9 "
                        "--global-batch 64 --all-ranks")  # fmt: skip
    free = layouts(*words)
    asked = layouts(*words, "--recompute", "selective")
    some = layouts(*words, "--recompute", "full", "--recompute-layers", "8")
    assert {one["recompute"] for one in free} <= {"none", "full"} and free
    assert {one["recompute_layers"] for one in free} <= {0, -1, 32}
    assert {one["recompute"] for one in asked} == {"selective"}
    assert {one["recompute_layers"] for one in some} == {8}


@pytest.mark.parametrize("options", [{"recompute": "selective"}, {"recompute": "full", "recompute_layers": 4}])
def test_what_takes_code_is_computed_with_a_note(options: dict[str, Any]) -> None:
    for framework, told in (("huggingface", True), ("fsdp", False)):
        report = distsim.memory(**WHOLE, framework=framework, zero=3, **options)
        assert any(NO_SWITCH in note for note in report.notes) is told
    whole = distsim.memory(**WHOLE, framework="huggingface", recompute="full", recompute_layers=32)
    assert not any(NO_SWITCH in note for note in whole.notes)


@pytest.mark.parametrize("framework", ["huggingface", "fsdp", "nemo-automodel"])
@pytest.mark.parametrize("quantize", ["nf4", "int8"])
def test_weights_that_bitsandbytes_packs_are_not_cut(framework: str, quantize: str) -> None:
    with pytest.raises(DistsimError, match="does not cut weights in"):
        distsim.memory(**PACKED, framework=framework, quantize=quantize, tp=2)
    assert distsim.memory(**PACKED, framework=framework, tp=2).setup.layout.tp == 2
    one = resolve(Job(**PACKED, framework=framework, quantize=quantize))
    assert not one.framework.supports.tp


def test_step_and_memory_propose_no_cut_of_packed_weights() -> None:
    from distsim.engine.advice.faster import faster

    job = {**WHOLE, "framework": "huggingface", "lora_rank": 16, "lora_targets": "q,v", "quantize": "nf4"}
    degrees = {}
    for quantize in ("nf4", "none"):
        found = faster(distsim.step(**{**job, "quantize": quantize}), most=20)
        degrees[quantize] = {one.options["tp"] for one in found if "tp" in one.options}
    assert not degrees["nf4"]
    large = distsim.memory(**{**job, "model": "llama-3-70b", "gpu": "rtx-4090"})
    assert not any("--tp" in one.flags for one in distsim.advise(large))


def test_searches_and_plans_leave_packed_weights_whole() -> None:
    words = shlex.split("llama-3-70b --gpu h100-sxm --gpus 8 --framework huggingface --seq 4096 --lora-rank 16 --json "
                        "--quantize")  # fmt: skip
    degrees = {}
    for quantize in ("nf4", "none"):
        found = layouts("search", *words, quantize, "--top", "50", "--all-ranks")
        planned = piped("plan", *words, quantize, "--tokens", "1B", "--provider", "nebius").stdout
        found += [option["layout"] for option in json.loads(planned)["options"]]
        degrees[quantize] = {one["tp"] for one in found}
    assert degrees["nf4"] == {1} < degrees["none"]
    refused = piped("search", *words, "nf4", "--tp", "2")
    assert refused.returncode == 2


def test_quantised_weights_name_the_framework_that_nobody_named() -> None:
    job = {**PACKED, "gpus": 1}
    for quantize, other in (("nf4", "huggingface"), ("nf4-torchao", "torchtune")):
        report = distsim.step(**job, quantize=quantize)
        (note,) = [one for one in report.notes if "no switch for weights in" in one]
        assert "computed under megatron-core, as no --framework is given" in note
        assert re.search(rf"add --framework {other}", note)
        assert not any("no switch" in one for one in distsim.step(**job, quantize=quantize, framework=other).notes)
    assert not any("no switch for weights" in one for one in distsim.step(**job).notes)


def test_every_switch_that_is_missing_has_a_source() -> None:
    for name, field in itertools.product(catalog.names("frameworks"), ("recompute_switches", "cuts_packed")):
        own = catalog.tables("frameworks", name, lambda table: True).get("supports", {})
        if field in own:
            assert f"supports.{field}" in catalog.load("frameworks", name).source, (name, field)
