"""What is sharded where a job does not say, or says that nothing is and its software shards all the same."""

from typing import Any

import pytest

import distsim
from distsim.cli.app import run

JOB: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "seq": 1024}
PARAMETERS = 8_030_261_248
ANYWAY = "in bf16 {} shards states over replicas even without ZeRO: computed as --zero 1"


@pytest.mark.parametrize("framework", ["megatron-deepspeed", "megatron-deepspeed-2022"])
@pytest.mark.parametrize("stated", [{}, {"zero": 0}])
def test_deepspeed_in_bf16_shards_states_without_zero(framework: str, stated: dict[str, int]) -> None:
    """deepspeedai/DeepSpeed runtime/bf16_optimizer.py: fp32 groups of BF16_Optimizer are partitioned."""
    plain, asked = (distsim.memory(**JOB, framework=framework, **zero) for zero in (stated, {"zero": 1}))
    assert plain.stages[0].categories["optimizer"] == pytest.approx(12 * PARAMETERS / 8, rel=1e-3)
    assert plain.peak == asked.peak and plain.setup.layout.zero == 1
    told = ANYWAY.format(framework)
    assert len([one for one in plain.notes if one.startswith(told)]) == 1
    assert not any(one.startswith(told) for one in asked.notes)
    assert distsim.step(**JOB, framework=framework, **stated).seconds == pytest.approx(
        distsim.step(**JOB, framework=framework, zero=1).seconds
    )
    assert distsim.comm(**JOB, framework=framework, **stated).wire_bytes_per_rank == pytest.approx(
        distsim.comm(**JOB, framework=framework, zero=1).wire_bytes_per_rank
    )


@pytest.mark.parametrize("options", [{}, {"precision": "fp16"}, {"framework": "megatron-core"}, {"gpus": 1}])
def test_others_share_nothing_unless_asked(options: dict[str, Any]) -> None:
    report = distsim.memory(**{**JOB, "framework": "deepspeed", **options})
    assert report.setup.layout.zero == 0 and not any("even without ZeRO" in note for note in report.notes)


def test_deepspeed_shards_states_of_bf16_in_its_pipelines_alone() -> None:
    """runtime/engine.py, _do_optimizer_sanity_check: BF16_Optimizer where pipeline_parallelism."""
    job = {**JOB, "framework": "deepspeed", "gpus": 8, "global_batch": 32}
    assert [distsim.memory(**job, pp=pp, zero=0).setup.layout.zero for pp in (1, 2)] == [0, 1]
    for one in distsim.search(**job, zero="0", pp="1,2", tp=1, top=20).best:
        assert one.report.setup.layout.zero == one.found.layout["zero"] == int(one.found.layout["pp"] > 1)


@pytest.mark.parametrize("command", ["memory", "comm"])
def test_tables_of_stages_leave_out_what_does_not_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([command, "llama-3-8b", "--framework", "megatron-deepspeed", "--gpu", "h100-sxm", "--seq", "1024"])
    text = capsys.readouterr().out
    assert "ZeRO 0: in bf16 megatron-deepspeed shards states over replicas even without ZeRO, as ZeRO 1" in " ".join(
        text.split()
    )
    (none,) = [line for line in text.splitlines() if line.startswith("0     nothing")]
    assert "not valid" in none and "1 *" in text and "--zero 1" not in text


def test_a_search_has_no_replicas_without_shards() -> None:
    """Nor does one that asks for none: its layouts are those of ZeRO 1, or of one rank alone."""
    for asked in ({}, {"zero": "0"}):
        best = distsim.search(**JOB, framework="megatron-deepspeed", gpus=8, global_batch=64, top=20, **asked).best
        found = [one.found.layout for one in best]
        alone = [one["dp"] * one["cp"] == 1 for one in found]
        assert found and all(layout["zero"] > 0 or one for layout, one in zip(found, alone, strict=True))
        assert not asked or all(layout["zero"] == 1 - one for layout, one in zip(found, alone, strict=True))
        assert all(one.report.setup.layout.zero == one.found.layout["zero"] for one in best)


@pytest.mark.parametrize(
    "framework", ["torchtitan", "torchtune", "nemo-automodel", "prime-rl", "kempnerforge", "olmo-core"]
)
def test_software_that_shards_unless_told_otherwise_does(framework: str) -> None:
    job = {**JOB, "framework": framework, "gpus": 8}
    plain, sharded, whole = (distsim.memory(**job, **zero) for zero in ({}, {"zero": 3}, {"zero": 0}))
    assert plain.peak == sharded.peak < whole.peak and whole.setup.layout.zero == 0
    assert plain.setup.origins["zero"] == f"framework {framework}"


def test_sharding_by_default_is_no_obstacle_where_no_rank_shares() -> None:
    job = {**JOB, "framework": "torchtitan", "gpus": 8}
    for degrees in ({"tp": 8}, {"pp": 8}):
        plain, whole = (distsim.memory(**job, **degrees, **zero) for zero in ({}, {"zero": 0}))
        assert plain.peak == whole.peak and not any("saves nothing" in note for note in plain.notes)
    assert any("saves nothing" in note for note in distsim.memory(**job, tp=8, zero=3).notes)


def test_one_micro_batch_in_a_pipeline_is_told() -> None:
    job = {**JOB, "seq": 4096, "gpus": 8, "tp": 2, "pp": 4, "micro_batch": 2}
    alone, full = distsim.memory(**job), distsim.memory(**job, global_batch=8)
    assert full.peak > alone.peak and full.setup.layout.micro_batches == 4
    (note,) = [note for note in alone.notes if note.startswith("--global-batch not given")]
    assert note.endswith("--global-batch 8 makes 4 micro-batches")
    others = (full, distsim.memory(**JOB, gpus=8))
    assert not any("--global-batch not given" in note for one in others for note in one.notes)


@pytest.mark.parametrize("framework", ["deepspeed", "torchtitan", "torchtune"])
@pytest.mark.parametrize("variant", [{"compress": "1bit"}, {"sync": "local-sgd", "sync_every": 10}])
def test_what_needs_whole_gradients_shards_nothing(framework: str, variant: dict[str, Any]) -> None:
    """A default refused what somebody asked for, and proposed --zero 0, which DeepSpeed in bf16 made ZeRO 1 again."""
    job = {**JOB, "framework": framework, **variant}
    assert distsim.comm(**job).setup.layout.zero == distsim.comm(**job, zero=0).setup.layout.zero == 0
    with pytest.raises(distsim.DistsimError, match=r"zero is 3|ZeRO 3"):
        distsim.comm(**job, zero=3)
