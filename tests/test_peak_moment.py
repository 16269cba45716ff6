"""Which moment of a step is the peak, with what the allocator loses at each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.cli.app import run


@pytest.mark.parametrize("framework", ["huggingface", "torchtune", "torchtitan", "megatron-core", "fsdp"])
@pytest.mark.parametrize("seq", [512, 2048, 8192])
def test_sharding_more_never_takes_more(framework: str, seq: int) -> None:
    """Above all where autograd makes gradients as it goes: the loss comes before any of them, sharded or not."""
    stages = [0, 1, 2] if framework in ("huggingface", "megatron-core") else [0, 2]
    peaks = [
        distsim.memory("llama-3.1-8b", gpu="h100-sxm", gpus=8, framework=framework, seq=seq, zero=zero).peak
        for zero in stages
    ]
    assert peaks == sorted(peaks, reverse=True)


def test_slack_is_of_all_that_comes_and_goes() -> None:
    """At the loss no gradient is there yet: what the allocator loses does not depend on how these are sharded."""
    one, two = (
        distsim.memory("llama-3.1-70b", gpu="h100-sxm", gpus=2, framework="huggingface", seq=8320, zero=zero).worst
        for zero in (1, 2)
    )
    assert one.peak_moment == two.peak_moment == "loss backward"
    assert one.fragmentation == pytest.approx(two.fragmentation) and one.peak == pytest.approx(two.peak)
    loss = next(moment for moment in one.moments if moment.name == "loss backward")
    step = next(moment for moment in one.moments if moment.name == "optimizer step")
    assert step.total > loss.total  # more is allocated there, and less reserved
    assert one.counted("allocated") == pytest.approx(step.total)
    assert one.counted("reserved") == pytest.approx(loss.total + 0.12 * loss.churning)


@pytest.mark.parametrize("model", ["llama-2-7b", "mistral-7b-v0.3", "phi-2"])
def test_gradients_are_told_whole_where_the_allocator_has_room_for_them(model: str) -> None:
    """Few activations leave room in the place of gradients to come, which what the allocator lost of them fills."""
    report = distsim.memory(model, gpus=1, framework="huggingface", precision="pure-bf16", seq=2048)
    parts = report.worst.categories
    assert parts["activations"] >= 0 and sum(parts.values()) == pytest.approx(report.peak, abs=1)
    assert parts["gradients"] == pytest.approx(parts["parameters"])


DPO: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 4, "framework": "deepspeed", "zero": 2,
                       "reference": "copy", "loss": "selective", "recompute": "full"}  # fmt: skip
DPO_WORDS = [word for name, value in DPO.items() if name != "model" for word in (f"--{name}", str(value))]


@pytest.mark.parametrize("seq", [1024, 2048])
def test_temporaries_of_the_optimizer_are_told_where_the_peak_is_its_step(
    capsys: pytest.CaptureFixture[str], seq: int
) -> None:
    """They are in the column of activations, less the buckets that are gone, and as large whatever the sequence."""
    report = distsim.memory(**DPO, seq=seq)
    (stage,) = report.to_dict()["stages"]
    own = {one["moment"]: one["temporaries"] for one in stage["moments"]}
    assert stage["peak_moment"] == "optimizer step"
    assert own["optimizer step"] == stage["categories"]["activations"] + 2e9
    assert all(not size for name, size in own.items() if name != "optimizer step")
    run(["memory", "llama-3.1-8b", *DPO_WORDS, "--seq", str(seq)])
    told = " ".join(capsys.readouterr().out.split())
    assert "peak moment: optimizer step (of the activations 9.36 GiB are its temporaries)" in told


def test_temporaries_of_the_optimizer_are_not_told_where_the_peak_is_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["memory", "llama-3.1-8b", *DPO_WORDS, "--seq", "131072"])
    assert "temporaries" not in capsys.readouterr().out


OVERHEADS: list[dict[str, Any]] = [
    {"model": "llama-2-70b", "gpu": "h100-sxm", "gpus": 24, "framework": "huggingface", "offload": "optimizer",
     "seq": 8192},  # most is asked for at the step, most is held at the loss
    {"model": "llama-3.1-70b", "gpu": "h100-sxm", "gpus": 3, "framework": "huggingface", "seq": 8192, "zero": 1},
    {"model": "llama-7b", "gpus": 8, "pp": 4, "global_batch": 16},
    {"model": "llama-2-7b", "gpus": 1, "framework": "huggingface", "precision": "pure-bf16", "seq": 2048},
    {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 64, "ep": 8, "framework": "fsdp", "recompute": "full"},
    {"model": "llama-3-8b", "gpus": 8, "framework": "huggingface", "lora_rank": 16, "quantize": "nf4"},
]  # fmt: skip


@pytest.mark.parametrize("job", OVERHEADS, ids=[str(job["model"]) for job in OVERHEADS])
def test_the_peak_is_the_largest_moment_with_its_overhead(job: dict[str, Any]) -> None:
    for stage in distsim.memory(**job).to_dict()["stages"]:
        assert all(one["bytes"] + one["overhead"] == one["whole"] for one in stage["moments"])
        peak = next(one for one in stage["moments"] if one["moment"] == stage["peak_moment"])
        assert peak["whole"] == stage["peak"] == max(one["whole"] for one in stage["moments"])


def test_the_largest_row_of_the_moments_is_the_marked_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Without their overheads another one was larger, and the mark could not be followed."""
    words = [word for name, value in OVERHEADS[0].items() if name != "model" for word in (f"--{name}", str(value))]
    run(["memory", "llama-2-70b", *words, "--explain"])
    rows = [line.split() for line in capsys.readouterr().out.split("Moments compared")[1].split("\n\n")[0].splitlines()]
    marked = [float(row[-3]) for row in rows if row[-1] == "peak"]
    others = {" ".join(row[:-3]): [float(cell) for cell in row[-3:]] for row in rows[3:] if row[-1] != "peak"}
    assert marked == [551.68] and max(whole for *_, whole in others.values()) < 551.68
    assert others["optimizer step"] == [514.40, 34.58, 548.98]


def test_activations_in_the_place_of_gradients_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Before torch makes gradients, what forward kept lies there: 7B at 2,048 tokens keeps 12.6 GB beside states in 16
    bits, of which its column of activations says nothing; where an allocator loses a share of it, that is the peak."""
    bare = tmp_path / "bare.toml"
    bare.write_text('based_on = "huggingface"\nwithout = ["overhead.broken_block_fraction"]\n')
    words = [
        "memory",
        "llama-7b",
        "--gpus",
        "1",
        "--framework",
        str(bare),
        "--precision",
        "pure-bf16",
        "--seq",
        "2048",
    ]
    stage = distsim.memory("llama-7b", gpus=1, framework=str(bare), precision="pure-bf16", seq=2048).stages[0]
    peak = next(one for one in stage.moments if one.name == stage.peak_moment)
    assert stage.peak_moment == "loss backward" and stage.categories["activations"] == 0
    assert stage.saved.total < peak.before_gradients < stage.categories["gradients"]
    sharded = distsim.memory("llama-2-70b", gpus=64, framework="fsdp", zero=3, seq=512).to_dict()["stages"][0]
    assert all(moment["activations_before_gradients"] >= 0 for moment in sharded["moments"])
    assert run([*words]) == 0
    assert "loss backward (12.18 GiB of activations where gradients will be)" in capsys.readouterr().out
    run([*words, "--explain"])
    assert "activations at the loss backward: 0.00 GiB" in capsys.readouterr().out
