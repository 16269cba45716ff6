"""What measured runs say of sharding: stages of ZeRO, kinds of FSDP, groups that share a copy."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import Replay, assumed_of, replay
from distsim.engine.runs.software import sharding_group
from distsim.interop.runs import Run
from distsim.interop.runs.sharding import stage_in

ROW = {"id": "a", "model": "llama-2-7b", "gpu": "h100-sxm", "n_gpus": "64", "seq_len": "4096", "tp": "1", "pp": "1",
       "dp": "64", "micro_batch": "1", "global_batch": "256", "framework": "deepspeed", "step_time_s": "5"}  # fmt: skip


def _replay(**cells: str) -> Replay:
    return replay(Run({**ROW, **cells}, 2))


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        ("ZeRO-3", 3), ("deepspeed-zero3", 3), ("DeepSpeed ZeRO stage 2", 2), ("zero_stage=1", 1), ("Z2", 2),
        ("ZeRO-Infinity", 3), ("ZeRO", None), ("FSDP", 3), ("FSDP2", 3), ("FSDPv2", 3), ("fms_fsdp", 3), ("HSDP", 3),
        ("HYBRID_SHARD", 3), ("_HYBRID_SHARD_ZERO2", 2), ("FSDP1 SHARD_GRAD_OP", 2), ("FSDP (ZeRO-2)", 2),
        ("FSDP2 reshard_after_forward=never", 2), ("FSDP2 reshard_after_forward=always", 3),
        ("Megatron-FSDP optim_grads_params", 3), ("Megatron-FSDP optim_grads", 2), ("Megatron-FSDP optim", 1),
        ("FSDP NO_SHARD (ddp)", 0), ("no FSDP", 0), ("none", 0), ("JAX mesh DP=64 FSDP=1", 0),
        ("JAX mesh DP=1 FSDP=16", 3), ("something", None),
    ],
)  # fmt: skip
def test_words_of_sharding(words: str, stage: int | None) -> None:
    assert stage_in(words) == stage


@pytest.mark.parametrize(
    ("cells", "zero"),
    [
        ({}, 1), ({"fsdp_kind": "ZeRO-3"}, 3), ({"framework": "DeepSpeed ZeRO-3"}, 3),
        ({"framework": "huggingface", "fsdp_kind": "FSDP2"}, 3), ({"framework": "Hugging Face Accelerate FSDP"}, 3),
        ({"framework": "megatron-core", "fsdp_kind": "Megatron-FSDP optim_grads_params"}, 3),
        ({"framework": "megatron-fsdp"}, 3), ({"framework": "PyTorch DDP, FSDP for others"}, 0),
        ({"framework": "huggingface", "fsdp_kind": "no FSDP"}, 0),
    ],
)  # fmt: skip
def test_cells_that_name_a_stage(cells: dict[str, str], zero: int) -> None:
    setup = _replay(**cells).setup
    assert setup is not None and setup.layout.zero == zero


def test_what_is_not_understood_or_contradicts_is_told() -> None:
    told = _replay(fsdp_kind="my-sharder").assumed
    assert told.startswith("fsdp_kind 'my-sharder' is not understood: assumed ZeRO 1")
    assert not _replay(fsdp_kind="my-sharder", zero_stage="3").assumed
    assert "'FULL_SHARD' contradicts zero_stage 2" in _replay(fsdp_kind="FULL_SHARD", zero_stage="2").assumed
    assert not _replay(framework="fsdp", fsdp_kind="FSDP2", zero_stage="2").assumed  # may keep what it gathered


@pytest.mark.parametrize(
    ("kind", "group", "told"),
    [
        ("HSDP", 8, "assumed 8"), ("FSDP HYBRID_SHARD", 8, "assumed 8"), ("HSDP shard 16", 16, ""),
        ("HSDP, shard degree = 16", 16, ""), ("HSDP replicate 4 shard 16", 16, ""), ("HSDP replicate=2", 32, ""),
        ("HSDP shard 24", 64, "does not divide 64"), ("FSDP group=16", 64, ""),
        ("HSDP 16x4", 4, "16 copies of 4 shards"),
        ("HSDP 8x8", 8, ""), ("HSDP 16 replicas", 4, ""), ("HSDP (16 replicas x 4 shards)", 4, ""),
        ("FSDP 16 x DP 4", 16, ""), ("FSDP 16 DP 4", 16, ""),
        ("DDP 4 x FSDP 16", 16, ""), ("FSDP16xDDP4", 16, ""), ("FSDP2 x DP 64", 64, ""), ("FSDP1", 64, ""),
        ("FSDP 16 x DP 8", 64, ""), ("FSDP2 fully_shard mesh (4,16)", 16, "4 copies"), ("MiCS 16", 16, ""),
    ],
)  # fmt: skip
def test_groups_that_share_a_copy(kind: str, group: int, told: str) -> None:
    """HSDP means groups of a node where nobody says how large they are; such a guess is nothing to fit to."""
    found = _replay(framework="fsdp", fsdp_kind=kind)
    assert found.setup is not None
    assert (found.setup.layout.zero, found.setup.layout.zero_group) == (3, group)
    assert told in found.assumed and (found.assumed if told else not found.assumed)
    assert assumed_of(found.run, found.setup) == found.assumed


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("ZeRO++", "qwz,hpz,qgz"), ("ZeRO++ (qwZ, hpZ)", "qwz,hpz"), ("ZeRO-3 hpZ=8", "hpz"), ("ZeRO-3", None)],
)
def test_parts_of_zero_plus_plus(kind: str, parts: str | None) -> None:
    found = _replay(fsdp_kind=kind)
    assert found.setup is not None and found.setup.job.zeropp == parts and not found.assumed
    assert found.setup.layout.zero == 3


def test_parts_that_a_layout_cannot_have_are_told() -> None:
    found = _replay(fsdp_kind="ZeRO++", n_gpus="8", dp="8", step_time_s="50")
    assert found.setup is not None and found.setup.job.zeropp is None
    assert "qwz,hpz,qgz of ZeRO++ ignored" in found.assumed


def test_a_stage_that_software_lacks_is_the_next() -> None:
    """The search for degrees had taken tp 8 and pp 8: any layout with several replicas has no such stage."""
    blank = {"tp": "", "pp": "", "dp": "", "framework": "torchtitan", "model": "llama-3.1-8b"}
    found = _replay(**blank, zero_stage="1")
    assert found.setup is not None and (found.setup.layout.zero, found.setup.layout.tp) == (2, 1)
    assert "torchtitan has no ZeRO 1: assumed ZeRO 2" in found.assumed


@pytest.mark.parametrize(
    "kind", ["FSDP within slice, DP across slices", "FSDP Within Slice, DP across slices", "fsdp=8"]
)
def test_shards_within_a_slice_in_any_case(kind: str) -> None:
    assert sharding_group(Run({"fsdp_kind": kind}, 2), 64, 8, 4) == 8
