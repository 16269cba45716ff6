"""Layouts with which frameworks do not offload, and parts of ZeRO++ that only DeepSpeed has."""

from typing import Any

import pytest

import distsim
from distsim.engine.advice.changes import changes, together
from distsim.errors import DistsimError

JOB: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "seq": 1024, "gpus": 8}
LAYERS = "offloads activations of layers only without pipeline stages and recomputation"
STATES = "offloads optimizer states only under ZeRO 1 or more, but --zero is 0"
LAYERWISE = ["megatron-core", "megatron-lm", "megatron-bridge", "nemo"]


@pytest.mark.parametrize("framework", LAYERWISE)
@pytest.mark.parametrize("options", [{"pp": 2}, {"recompute": "full"}, {"recompute": "selective"}])
def test_megatron_offloads_layers_without_stages_and_recomputation(framework: str, options: dict[str, Any]) -> None:
    """transformer_config.py: cpu_offloading. Modules are another feature, and whole-iteration graphs go with both."""
    job = {**JOB, "framework": framework, "offload": "activations"}
    why = "pp is 2" if "pp" in options else "activations are recomputed"
    with pytest.raises(DistsimError, match=f"{framework} {LAYERS}, but {why}") as refused:
        distsim.memory(**job, **options)
    assert "transformer_config.py" in str(refused.value) and "--offload-modules" in str(refused.value)
    distsim.memory(**job, cuda_graphs="iteration")
    distsim.memory(**JOB, framework=framework, offload_modules="core_attn,attn_proj", pp=2)
    distsim.memory(**{**job, "framework": "deepspeed"}, **{"zero": 1, **options})


@pytest.mark.parametrize("framework", [*LAYERWISE, "deepspeed", "megatron-deepspeed"])
def test_states_leave_only_where_they_are_sharded(framework: str) -> None:
    job = {**JOB, "framework": framework, "offload": "optimizer", "precision": "fp16"}
    with pytest.raises(DistsimError, match=f"{framework} {STATES}") as refused:
        distsim.memory(**job)
    assert "add --zero 1" in str(refused.value)
    distsim.memory(**job, zero=1)


@pytest.mark.parametrize(
    ("options", "why"),
    [({}, "--offload-fraction 0.5 has no effect without --offload optimizer"),
     ({"offload": "activations"}, "--offload-fraction 0.5 has no effect without --offload optimizer"),
     ({"offload": "optimizer", "framework": "fms-fsdp", "zero": 3}, "fms-fsdp: no option is known"),
     *(({"offload": "optimizer", "framework": "deepspeed", "zero": zero}, f"only under ZeRO 3, but --zero is {zero}")
       for zero in (1, 2)),
     ({"offload": "optimizer", "zero": 3, "offload_to": "nvme"}, "not for drives")],
)  # fmt: skip
def test_what_may_be_moved_in_part(options: dict[str, Any], why: str) -> None:
    with pytest.raises(DistsimError, match=why):
        distsim.memory(**JOB, **options, offload_fraction=0.5)


def test_a_part_of_the_optimizer_is_told_and_searched() -> None:
    """A search that tries none as well has it where something leaves."""
    job = {**JOB, "framework": "megatron-core", "zero": 1, "offload_fraction": 0.25}
    report = distsim.memory(**job, offload="optimizer")
    assert report.to_dict()["job"]["offload_fraction"] == 0.25
    whole, none = (distsim.memory(**{**job, "offload_fraction": None}, offload=one) for one in ("optimizer", "none"))
    between = [float(one.peak) for one in (whole, report, none)]
    assert between == sorted(between) and between[0] < between[1] < between[2]
    assert report.node_bytes == pytest.approx(0.25 * whole.node_bytes)
    stated = {name: job[name] for name in ("model", "gpu", "seq", "gpus", "framework", "offload_fraction")}
    found = distsim.search(**stated, global_batch=64, offload="none,optimizer")
    layouts = [one["layout"] for one in found.to_dict()["layouts"]]
    assert {(one["offload"], one.get("offload_fraction")) for one in layouts} == {("none", None), ("optimizer", 0.25)}


def test_deepspeed_moves_whole_sub_groups() -> None:
    """Of 1e9 parameters of a rank, and norms in one of their own: a shard of one billion leaves or stays as a whole, as
    issue 4775 of deepspeedai/DeepSpeed saw; searches and plans keep to ZeRO 3."""
    job = {**JOB, "framework": "deepspeed", "offload": "optimizer"}
    whole, none = (distsim.memory(**{**job, "offload": one}, zero=3).node_bytes for one in ("optimizer", "none"))
    assert none == 0
    for part, moved in ((0.9, 1), (0.6, 1), (0.5, 2 / 18), (0.1, 2 / 18)):
        report = distsim.step(**job, zero=3, offload_fraction=part)
        told = [note for note in report.notes if "whole sub-groups of 1,000,000,000 parameters" in note]
        assert report.memory.node_bytes == pytest.approx(moved * whole, rel=1e-3)
        assert told == [note for note in report.memory.notes if "sub-groups" in note] and len(told) == 1
        assert f"{100 * (moved == 1)}% of the optimizer in host memory, not {part:.0%}" in told[0]
    asked = {name: job[name] for name in ("model", "gpu", "seq", "framework", "offload")} | {"offload_fraction": 0.6}
    found = distsim.search(**asked, gpus=8, global_batch=64, top=9).to_dict()["layouts"]
    planned = distsim.plan(**asked, tokens="1B").to_dict()["options"]
    assert {one["layout"]["zero"] for one in (*found, *planned)} == {3}
    alone = {**job, "gpus": 1, "zero": 3, "model": "llama-2-13b"}  # 13 sub-groups and that of norms
    half = [distsim.step(**alone, offload_fraction=part) for part in (1.0, 0.5)]
    assert half[1].seconds < half[0].seconds and half[1].memory.peak > half[0].memory.peak
    assert half[0].memory.node_bytes - half[1].memory.node_bytes == pytest.approx(16 * 7e9, rel=0.05)


def test_megatrons_optimizer_on_hosts_is_in_fp32() -> None:
    """Whatever its precision-aware one has otherwise; gradients, pinned in host memory, and parameters go so, too."""
    job = {**JOB, "framework": "megatron-core", "zero": 1, "precision": "bf16-precision-aware"}
    narrow, away, half = (distsim.memory(**job, **more) for more in (
        {}, {"offload": "optimizer"}, {"offload": "optimizer", "offload_fraction": 0.5}))  # fmt: skip
    elements = float(narrow.worst.states.optimizer) / 6
    assert float(half.worst.states.optimizer) == pytest.approx(12 * elements / 2)
    assert away.node_bytes == pytest.approx(8 * 16 * elements)
    moved = [row for row in distsim.comm(**job, offload="optimizer").stages[0] if "host" in row.op]
    assert {row.purpose: row.dtype for row in moved} == {"gradients to host": "fp32", "parameters from host": "fp32"}
    assert [float(row.bytes_per_call) for row in moved] == pytest.approx([4 * elements] * 2)
    unnamed = distsim.memory(**{**job, "framework": None, "precision": "bf16"}, offload="optimizer")
    assert unnamed.node_bytes == pytest.approx(8 * 12 * elements)


def test_advice_moves_more_of_an_optimizer_that_leaves_in_part() -> None:
    job = {**JOB, "framework": "megatron-core", "zero": 1, "offload": "optimizer"}
    for part, more in ((0.6, [0.75, 1.0]), (0.1, [0.25, 0.5, 0.75, 1.0]), (1.0, []), (None, [])):
        found = changes(distsim.memory(**job, offload_fraction=part).setup)
        assert [one.shown["offload_fraction"] for one in found if "offload_fraction" in one.shown] == more


def test_what_the_default_framework_does_not_offload_is_noted() -> None:
    for options, told in (({"offload": "activations", "pp": 2}, LAYERS), ({"offload": "optimizer"}, STATES)):
        notes = [note for note in distsim.memory(**JOB, **options).notes if "computed anyway" in note]
        assert len(notes) == 1 and told in notes[0]


def test_advice_shards_states_that_it_moves() -> None:
    """And keeps the higher stage where another change shards more; activations are not moved off a pipeline."""
    setup = distsim.memory(**JOB).setup
    found = {change.words: change for change in changes(setup)}
    moved, more = found["optimizer states in host memory, ZeRO 1"], found["ZeRO 2"]
    assert moved.shown == {"zero": 1, "offload": "optimizer"}
    for both in ((moved, more), (more, moved)):
        assert together(setup, both)[1] == {"zero": 2, "offload": "optimizer"}
    assert "activations in host memory" in found
    piped = distsim.memory(**JOB, pp=2, zero=1).setup
    named = {change.words for change in changes(piped)}
    assert "optimizer states in host memory" in named and "activations in host memory" not in named


def test_advice_names_one_zero_stage() -> None:
    """Of two changes that state one, that which is typed."""
    found = distsim.advise(distsim.memory("qwen2.5-32b", gpus=8, seq=2048))
    moved = [one for one in found if "optimizer states" in one.words and one.shown.get("zero")]
    stated = {one.words: one.shown["zero"] for one in moved}
    assert stated["ZeRO 3, optimizer states in host memory"] == 3
    assert all(words.count("ZeRO") == 1 and f"ZeRO {zero}" in words for words, zero in stated.items())


@pytest.mark.parametrize("offload", ["activations", "optimizer", "optimizer+activations"])
def test_searches_try_what_their_framework_offloads(offload: str) -> None:
    report = distsim.search(**JOB, framework="megatron-core", global_batch=16, offload=offload, top=40)
    assert report.best
    for one in report.best:
        layout = one.report.setup.layout
        assert layout.zero >= 1 or "optimizer" not in offload
        assert "activations" not in offload or (layout.pp, layout.selective, layout.recompute_layers) == (1, 0, 0)
        assert one.found.layout["zero"] == layout.zero
    degrees = {one.found.layout["dp"] * one.found.layout["cp"] for one in report.best}
    assert offload == "activations" or len(degrees) > 1


def test_plans_shard_states_that_leave() -> None:
    asked = {"tokens": "1B", "gpu": "h100-sxm", "framework": "megatron-core", "offload": "optimizer", "zero": "0..2"}
    found = distsim.plan("llama-3-8b", **asked).to_dict()["options"]
    assert found and all(one["layout"]["zero"] >= 1 for one in found)


def test_one_rank_moves_states_at_the_first_stage_that_does() -> None:
    report = distsim.search(**{**JOB, "gpus": 1, "model": "llama-3.2-1b"}, framework="megatron-core", global_batch=4,
                            offload="optimizer", top=40)  # fmt: skip
    assert report.best and {one.found.layout["zero"] for one in report.best} == {1}


def test_zeropp_is_deepspeeds() -> None:
    job = {**JOB, "gpus": 16, "zero": 3, "zeropp": "qwz"}
    for framework in ("torchtitan", "fsdp", "maxtext"):
        with pytest.raises(DistsimError, match=f"{framework} has no ZeRO"):
            distsim.comm(**job, framework=framework)
    for framework in ("deepspeed", "megatron-deepspeed", "huggingface"):
        assert not any("ZeRO++, but" in note for note in distsim.comm(**job, framework=framework).notes)
    assert any("megatron-core has no ZeRO++" in note for note in distsim.comm(**job).notes)
