"""Mends that move states off the GPU, or train otherwise: only where a framework can, and computed like all others."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.advice.changes import changes
from distsim.engine.advice.mend import mend
from distsim.engine.advice.trials import Trials
from distsim.engine.jobs.resolve import resolve
from distsim.engine.memory import memory_of, memory_unless
from distsim.specs.job import Job

ALONE: dict[str, Any] = {"model": "llama-2-7b", "gpu": "a100-sxm4-40gb", "gpus": 1, "seq": 2048, "recompute": "full"}


def offered(**options: Any) -> dict[str, Any]:
    return {one.flags: one for one in mend(distsim.memory(**{**ALONE, **options})).fitting}


def families(**options: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for change in changes(resolve(Job.read({**ALONE, **options}))):
        found.setdefault(change.family, []).append(change.shown)
    return found


def test_a_job_that_does_not_fit_may_leave_its_states_to_the_host() -> None:
    found = offered(framework="deepspeed")
    peak = found["--zero 1 --offload optimizer"].report.peak
    assert peak == distsim.memory(**ALONE, framework="deepspeed", zero=1, offload="optimizer").peak
    assert "--lora-rank 16" in found


@pytest.mark.parametrize(
    ("framework", "offload", "trains"),
    [
        ("huggingface", 4, {"precision", "adapters"}), ("litgpt", 3, {"precision", "adapters"}),
        ("deepspeed", 4, {"adapters"}), ("megatron-core", 1, set()), ("nanotron", 0, set()), ("torchtitan", 3, set()),
    ],
)  # fmt: skip
def test_a_framework_is_told_of_what_it_has(framework: str, offload: int, trains: set[str]) -> None:
    found = families(framework=framework, precision="bf16")
    assert len(found.get("offload", [])) == offload
    assert trains == {"precision", "adapters"} & set(found)


def test_a_larger_accelerator_does_not_end_the_search_for_what_costs_nothing() -> None:
    """No single change but a larger GPU is enough here; two that cost no money are."""
    job = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 64, "ep": 8, "micro_batch": 2, "seq": 8192,
           "global_batch": 512, "precision": "fp8"}  # fmt: skip
    found = mend(distsim.memory(**job)).fitting
    sizes = [len(one.changes) for one in found]
    assert found[0].shown == {"zero": 2, "micro_batch": 1, "global_batch": 512} and max(sizes) == 2
    assert not any({"gpu", "gpus"} & set(one.shown) for one in found), "money is a last resort"
    assert [one.effort for one in found] == sorted(one.effort for one in found)


def test_changes_that_cost_nothing_come_before_a_larger_accelerator() -> None:
    """Two consumer cards and a quantised model of 70B, which a card of 141 GB would hold, too."""
    job = {"model": "llama-3-70b", "gpu": "rtx-5090", "gpus": 2, "framework": "huggingface", "lora_rank": 16,
           "quantize": "nf4", "seq": 4096}  # fmt: skip
    found = mend(distsim.memory(**job)).fitting
    first = found[0]
    assert len(first.changes) > 1 and not {"gpu", "gpus"} & set(first.shown)
    assert any(len(one.changes) == 3 and "gpu" not in one.shown for one in found)
    assert distsim.memory(**{**job, **first.shown}).fits
    assert any("gpu" in one.shown for one in found)


def test_adapters_beside_weights_in_16_bits_may_have_them_in_4() -> None:
    """8B on a card of 16 GB: QLoRA is what people run there."""
    job = {"model": "llama-3-8b", "gpu": "rtx-a4000", "framework": "huggingface", "lora_rank": 16}
    assert "--quantize nf4" in offered(**job, recompute="none", seq=256)
    assert families(**job)["quantize"] == [{"quantize": "nf4"}]
    assert "quantize" not in families(**job, quantize="nf4") and "quantize" not in families()


@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan", "deepspeed"])
@pytest.mark.parametrize("pp", [1, 4, 8])
def test_parts_of_a_job_leave_no_less_room_than_all_of_it(pp: int, framework: str) -> None:
    """Which lets mends that are far off go by without the whole of them."""
    named = {"framework": framework, "gpus": 8, "pp": pp, "gpu": "h100-sxm", "micro_batch": 4, "global_batch": 64}
    for more in ({}, {"zero": 1 if framework != "torchtitan" else 2}, {"recompute": "full"}):
        setup = resolve(Job.read({**ALONE, **named, **more}))
        left: list[float] = []
        report = memory_unless(setup, lambda room, asked=left: bool(asked.append(room)))
        assert report is not None and report.to_dict() == memory_of(setup).to_dict()
        assert len(left) == pp + 1 and min(left) >= report.headroom - 1  # rounded to bytes
        assert memory_unless(setup, lambda room: room <= min(left)) is None  # noqa: B023 (asked at once)


def test_what_is_there_already_is_not_offered() -> None:
    assert "adapters" not in families(framework="huggingface", lora_rank=8)
    assert "precision" not in families(framework="huggingface", precision="pure-bf16")
    assert {"offload": "optimizer,activations"} in families(framework="deepspeed", zero=1, offload="optimizer")[
        "offload"
    ]


def test_accelerators_that_somebody_sells_come_first() -> None:
    """141 GB: an H200 is for rent, a GH200 of that size is in no price list."""
    names = [shown["gpu"] for shown in families(framework="huggingface")["gpu"]]
    sold = {offer.gpu for name in catalog.names("prices") for offer in catalog.load("prices", name).offers}
    assert "h200-sxm" in names and [name in sold for name in names] == sorted(name in sold for name in names)[::-1]
    assert "--gpu h200-sxm" in offered(framework="huggingface")


@pytest.mark.parametrize(
    ("gpu", "precision", "lacking"), [("rtx-a4000", "bf16", "v100-sxm2-32gb"), ("l4", "fp8", "a100-sxm4-80gb")]
)
def test_a_larger_gpu_has_units_for_the_recipe(gpu: str, precision: str, lacking: str) -> None:
    """A V100 holds twice what an RTX A4000 does and has no bf16."""
    job = {"gpu": gpu, "framework": "huggingface"}
    names = [shown["gpu"] for shown in families(**job, precision=precision)["gpu"]]
    assert names and lacking not in names
    assert lacking in [shown["gpu"] for shown in families(**job, precision="fp16")["gpu"]]


def test_a_larger_gpu_brings_its_cluster_where_one_is_stated() -> None:
    report = distsim.memory("llama-3-8b", cluster="dgx-a100-80gb", gpus=1)
    assert any("--gpu b200-sxm --cluster dgx-b200" in one.flags for one in distsim.advise(report))


def test_mixtures_that_refuse_tensor_parallelism() -> None:
    with pytest.raises(distsim.DistsimError, match="no tensor parallelism for mixture-of-experts models"):
        distsim.step("mixtral-8x7b", gpu="h100-sxm", gpus=64, framework="nemo-automodel", tp=2)


def test_one_card_is_offered_adapters_on_a_larger_one_before_only_a_cluster() -> None:
    """Three changes of which two are another training: none milder is enough for 405B parameters on one GPU."""
    job = {"model": "llama-3.1-405b", "gpu": "rtx-4090", "gpus": 1, "framework": "huggingface", "seq": 4096}
    found = mend(distsim.memory(**job)).fitting
    assert {"adapters", "recompute", "gpu"} == set(found[0].families)
    assert found[0].report.setup.layout.gpus == 1
    assert all(one.fits for one in found)


def test_more_gpus_share_the_states_of_a_job_on_one() -> None:
    """Copies alone free nothing; none of the offered changes is stronger than it has to be."""
    job = {"model": "llama-2-70b", "gpu": "rtx-4090", "gpus": 1, "framework": "megatron-core"}
    found = mend(distsim.memory(**job)).fitting
    assert found and all(one.shown.get("zero") == 3 for one in found if "gpus" in one.shown)
    sets = [set(one.changes) for one in found]
    assert not any(one < other for one in sets for other in sets)
    for one in found:
        fewer = {**job, **one.shown}
        fewer["gpus"] //= 2
        fewer["zero"] = min(fewer.get("zero", 0), 3 if fewer["gpus"] > 1 else 1)
        assert not distsim.memory(**fewer).fits, one.flags


def test_where_nothing_fits_the_nearest_is_the_best_of_all_that_was_tried() -> None:
    """Those that lack least at best are asked first, and the rest not at all."""
    report = distsim.memory("gpt3-175b", gpu="t4", gpus=1, seq=1_000_000)
    trials, pool = Trials(report.setup, 0.0), list(changes(report.setup))
    for change in pool:
        trials.try_((change,))
    assert not trials.fitting and len(trials.missed) > 10
    near = trials.nearest()
    every = [memory_of(trials.setup_with(one.combined)).headroom for one in trials.missed]
    assert near is not None and near.report.headroom == max(every)
    assert near.changes == trials.missed[every.index(max(every))].combined


def test_layers_are_counted_on_the_stages_that_a_mend_has() -> None:
    """Half of 40 layers on one stage become all of the 20 that two stages have."""
    report = distsim.memory(model="llama-13b", gpu="b200-sxm", gpus=8, micro_batch=2)
    pool = list(changes(report.setup))
    stages = next(one for one in pool if one.shown.get("pp") == 2)
    words = []
    for count in (10, 30):
        again = next(one for one in pool if one.shown.get("recompute_layers") == count)
        assert again.words == f"recompute {count} of 40 layers per stage"
        made = Trials(report.setup, 0.0).computed((again, stages))
        assert made is not None
        words.append(made.words)
    assert words == [
        "recompute 10 of 20 layers per stage, pipeline stages 2",
        "recompute all layers, pipeline stages 2",
    ]


TENSORS = Job(model="qwen3-30b-a3b", gpu="rtx-5090", gpus=1, framework="huggingface", seq=2048, lora_rank=16,
              lora_targets="q,v", recompute="full")  # fmt: skip


@pytest.mark.parametrize("quantize", [None, "nf4"])
def test_experts_that_stay_in_16_bits_are_proposed_in_4(quantize: str | None) -> None:
    """Experts that are tensors of one module, whether or not what is linear is quantised already."""
    job = TENSORS.model_copy(update={"quantize": quantize})
    (found,) = [one for one in distsim.advise(distsim.memory(job)) if one.shown == {"quantize": "nf4+experts"}]
    assert found.report.peak == distsim.memory(job.model_copy(update=found.shown)).peak
    assert "experts" in found.words


@pytest.mark.parametrize("update", [
    {"quantize": "nf4+experts"}, {"model": "mixtral-8x7b", "framework": "torchtune"}, {"model": "llama-3-70b"},
    {"model": "gpt-oss-120b", "framework": "unsloth", "quantize": "nf4"},
])  # fmt: skip
def test_experts_are_not_proposed_where_they_are_quantised_or_there_are_none(update: dict[str, Any]) -> None:
    job = TENSORS.model_copy(update={"lora_targets": None, "recompute": None, **update})
    named = [one.flags for one in distsim.advise(distsim.memory(job))]
    assert not any("+experts" in flags for flags in named)


def test_all_weights_may_give_way_to_adapters_beside_quantised_experts() -> None:
    job = Job(model="qwen3-30b-a3b", gpu="rtx-5090", gpus=1, framework="huggingface", seq=1024, recompute="full")
    named = [change.shown for change in changes(resolve(job)) if change.family == "adapters"]
    assert [one.get("quantize") for one in named] == [None, "nf4", "nf4+experts"]


@pytest.mark.parametrize(("model", "documented"), [("gpt-oss-20b", 14), ("gpt-oss-120b", 65)])
def test_unsloth_quantises_the_experts_of_gpt_oss(model: str, documented: int) -> None:
    """Its documentation on gpt-oss names the memory that QLoRA takes (recalled)."""
    job = Job(model=model, gpu="h100-sxm", gpus=1, framework="unsloth", seq=2048, lora_rank=16, quantize="nf4")
    report = distsim.memory(job)
    assert report.to_dict()["job"]["quantize"] == "nf4+experts"
    assert report.peak == distsim.memory(job.model_copy(update={"quantize": "nf4+experts"})).peak
    assert report.peak / 1e9 == pytest.approx(documented, rel=0.2)
    assert not any("stay in 16 bits" in note for note in report.notes)
    others = distsim.memory(job.model_copy(update={"framework": "huggingface"}))
    assert any("stay in 16 bits" in note for note in others.notes)


def test_host_memory_comes_before_drives() -> None:
    """Shards of ZeRO 3 leave a single GPU, too; drives are for what host memory does not hold."""
    job = Job(model="gemma-3-27b", gpu="h100-sxm", gpus=1, framework="huggingface", seq=4096, micro_batch=2,
              lora_rank=64, reference="base", recompute="full")  # fmt: skip
    named = [one.flags for one in distsim.advise(distsim.memory(job))]
    assert "--zero 3 --offload optimizer,parameters" in named and not any("nvme" in flags for flags in named)
    moved = {one.shown.get("offload_to") for one in changes(resolve(job)) if one.family == "offload"}
    assert moved == {None, "nvme"}
