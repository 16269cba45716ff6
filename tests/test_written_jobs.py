"""The ``job`` of an answer: every option as resolved, and the same job again."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from accepted import accepted
from shell import piped

import distsim
from distsim import DistsimError
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.stages import in_rows
from distsim.layers.network import embedding_block, head_block, layer_block, layer_kinds
from distsim.specs.job import Job
from distsim.specs.written import CHECKSUM, STATED

JOBS = 100
MODELS = ("llama-7b", "llama-3-8b", "mixtral-8x7b", "gpt3-13b", "deepseek-v2-lite", "gemma-2-9b", "bert-large")
SOME: dict[str, tuple[Any, ...]] = {
    "framework": ("megatron-core", "torchtitan", "deepspeed", "fsdp", "huggingface", "maxtext", "megatron-lm"),
    "recompute": ("none", "selective", "full"), "precision": ("bf16", "amp-bf16", "fp8"), "zero": (0, 1, 2, 3),
    "attention": ("flash", "eager"), "compile": (True, False), "no_sync": (True, False), "clip": (True, False),
    "zeropp": ("qwz", "qwz,qgz"), "lora_rank": (8,), "lora_dropout": (0.0, 0.05), "offload": ("none", "optimizer"),
    "schedule": ("1f1b", "gpipe", "zb-h1", "pipedream"), "recompute_layers": (1, 4), "optimizer": ("sgd", "adam"),
    "stage_layers": ("balanced",), "sequence_parallel": (True, False), "ep": (2, 4), "etp": (1, 2), "cp": (2,),
    "cp_mode": ("ring", "all_gather"), "dropout": (True, False), "mtp": (0, 1), "sync": ("local-sgd",),
    "sync_every": (4,), "cluster": ("dgx-h100", "dgx-b200"), "expert_imbalance": (1.2,), "gpu_power": (500,),
    "compress": ("1bit", "powersgd-r4"), "sample_tokens": (512,), "loss_parallel": (True, False),
}  # fmt: skip

NEEDS = {"recompute_layers": {"recompute": "full"}, "lora_dropout": {"lora_rank": 8}, "cp_mode": {"cp": 2},
         "sync_every": {"sync": "local-sgd"}, "expert_imbalance": {"model": "mixtral-8x7b", "ep": 2},
         "zeropp": {"gpus": 16, "zero": 3, "tp": 1, "pp": 1}, "mtp": {"model": "deepseek-v3"}}  # fmt: skip
"""Without which an option has no effect, and is refused."""


def drawn(rng: random.Random) -> dict[str, Any]:
    """A job as a user might state it; many are refused."""
    tp, pp, dp = (rng.choice(some) for some in ((1, 1, 2, 4), (1, 1, 2, 4), (1, 2, 8, 16)))
    job = {"model": rng.choice(MODELS), "gpus": tp * pp * dp, "tp": tp, "pp": pp, "seq": rng.choice((1024, 4096)),
           "global_batch": dp * rng.choice((1, 4, 16))}  # fmt: skip
    more = {name: rng.choice(SOME[name]) for name in rng.sample(sorted(SOME), rng.choice((0, 1, 2, 3, 4)))}
    needed = {key: value for name in more for key, value in NEEDS.get(name, {}).items()}
    return {**job, **more, **needed, **({} if "cluster" in more else {"gpu": "h100-sxm"})}


ASKED = accepted(drawn, 11, JOBS)


def again(job: dict[str, Any]) -> Job:
    """From what was written to a file."""
    return Job(**json.loads(json.dumps(job)))


def test_the_jobs_state_most_options() -> None:
    stated = {name for job in ASKED for name in job}
    assert len(stated & SOME.keys()) >= len(SOME) - 2


@pytest.mark.parametrize("job", ASKED, ids=lambda job: "-".join(str(value) for value in job.values()))
def test_a_written_job_gives_the_same_answer(job: dict[str, Any]) -> None:
    for command in (distsim.memory, distsim.comm, distsim.step):
        try:
            first = command(**job).to_dict()
        except DistsimError:
            continue  # of what has memory but no time
        assert command(again(first["job"])).to_dict() == first


def test_a_model_that_was_changed_is_written_whole() -> None:
    model = load_model("gpt3-13b").spec.model_copy(update={"layers": 12})
    first = distsim.memory(model, gpus=4, pp=2).to_dict()
    assert distsim.memory(again(first["job"])).to_dict() == first


def test_every_option_that_applies_is_there() -> None:
    job = distsim.memory("llama-2-7b", framework="torchtitan", gpus=8, zero=3, compile=True, no_sync=True,
                         clip=False, lora_rank=8, lora_dropout=0.1).to_dict()["job"]  # fmt: skip
    found = {name: job[name] for name in ("compile", "no_sync", "clip", "lora_dropout", "zeropp", "compress", "sync")}
    assert found == {"compile": True, "no_sync": True, "clip": False, "lora_dropout": 0.1, "zeropp": [],
                     "compress": "none", "sync": "allreduce"}  # fmt: skip
    assert job[STATED] == {"model": "llama-2-7b", "framework": "torchtitan", "gpus": 8, "zero": 3, "compile": True,
                           "no_sync": True, "clip": False, "lora_rank": 8, "lora_dropout": 0.1}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [("tp", 2), ("micro_batches", 3), ("vocab_padded", 1), (CHECKSUM, "0")])
def test_what_was_changed_is_no_longer_what_followed(name: str, value: Any) -> None:
    job = distsim.memory("llama-7b", gpus=8).to_dict()["job"]
    with pytest.raises(DistsimError, match="changed after it was resolved"):
        Job(**{**job, name: value})
    assert distsim.memory(Job(**{**job[STATED], "tp": 2})).setup.layout.tp == 2


def test_show_config_tells_switches_that_were_typed() -> None:
    told = piped("memory", "llama-3-8b", "--gpus", "16", "--zero", "3", "--compile", "--framework", "torchtitan",
                 "--no-sync", "--no-clip", "--show-config").stdout  # fmt: skip
    rows = {words[0]: words[1:] for words in map(str.split, told.splitlines()) if len(words) > 2}
    for name, value in {"compile": "True", "no_sync": "True", "clip": "False"}.items():
        assert rows[name] == [value, "command", "line"]
    assert rows["zeropp"] == ["none", "default"] and STATED not in rows


@pytest.mark.parametrize("job", ASKED[::4], ids=lambda job: f"{job['model']}-{job['gpus']}")
def test_rows_depend_on_no_more_than_they_are_shared_for(job: dict[str, Any]) -> None:
    ctx = distsim.memory(**job).setup.context()
    kinds = layer_kinds(ctx.model).values()
    contexts = [ctx._replace(layer=layers[0]) for layers in kinds]
    assert [layer_block(one) for one in contexts] == [layer_block(in_rows(one)) for one in contexts]
    assert embedding_block(ctx) == embedding_block(in_rows(ctx)) and head_block(ctx) == head_block(in_rows(ctx))


def test_a_layout_that_was_found_is_a_job_too() -> None:
    told = piped(
        "search", "llama-7b", "--gpu", "h100-sxm", "--gpus", "8", "--global-batch", "32", "--top", "2", "--json"
    )
    for one in json.loads(told.stdout)["layouts"][:4]:
        report = distsim.step(Job(**one["layout"]))
        assert report.seconds == pytest.approx(one["seconds"])
        assert report.memory.peak == one["peak_memory"]


@pytest.mark.parametrize("ep", [1, 8])
def test_a_resolved_imbalance_that_is_stated_again_changes_nothing(ep: int) -> None:
    """Unstated it is no number: time has another than memory and messages."""
    asked = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 8, "ep": ep, "seq": 4096}
    report, sent = distsim.step(**asked), distsim.comm(**asked)
    told = report.to_dict()["job"]["expert_imbalance"]
    assert told is None and sent.to_dict()["job"]["expert_imbalance"] is None
    assert distsim.step(**asked, expert_imbalance=told).seconds == report.seconds
    if ep > 1:
        balanced = distsim.step(**asked, expert_imbalance=1)
        assert balanced.to_dict()["job"]["expert_imbalance"] == 1 and balanced.seconds < report.seconds
