"""What ``distsim step`` proposes: changes that the command line takes, that fit, and that take what was told."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from shell import piped

import distsim
from distsim.cli.app import run
from distsim.engine.advice.faster import faster

STATED = [
    {"model": "llama-3-70b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "pp": 4, "global_batch": 64},
    {"model": "llama-3-70b", "gpu": "h200-sxm", "tp": 8, "pp": 4, "dp": 2, "vpp": 5},  # gpus and batch left open
    {"model": "llama-13b", "gpus": 16, "tp": 4, "pp": 4, "schedule": "1f1b", "recompute": "full",
     "recompute_layers": 4, "global_batch": 32},
    {"model": "gpt3-1.3b", "gpus": 16, "tp": 4, "zero": 1, "zero_group": 2, "seq": 512, "global_batch": 64},
    {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8},  # too big
    {"model": "llama-3-8b", "gpu": "l4", "gpus": 4, "recompute": "full", "recompute_layers": 2},  # far too big
    {"model": "falcon-40b", "gpu": "v100-sxm2-32gb", "zero": 2, "zero_group": 8},
]  # fmt: skip


@pytest.mark.parametrize("stated", STATED, ids=lambda stated: stated["model"])
def test_what_is_proposed_is_what_the_command_then_gives(stated: dict[str, object]) -> None:
    report = distsim.step(**stated)
    found = distsim.advise(report)
    assert found
    for one in found:
        options = {**stated, **one.options}
        if "no --recompute-layers" in one.words:
            del options["recompute_layers"]
        again = distsim.step(**options)
        assert again.seconds == pytest.approx(one.seconds, rel=1e-9) and again.memory.peak == one.peak
        assert again.memory.fits
        assert one.tokens_per_second == pytest.approx(again.tokens_per_second, rel=1e-9)
        if report.memory.fits:
            before, after = report.setup.layout, again.setup.layout
            assert one.gain > 0 and after.gpus == before.gpus
            assert after.micro_batch * after.micro_batches * after.dp == before.micro_batch * before.micro_batches * (
                before.dp
            )


def test_what_fits_is_ranked_by_tokens_not_by_steps() -> None:
    """Four times the GPUs took 64 sequences in 2.3 s, and stood behind 16 sequences in 1.8 s."""
    report = distsim.step("gpt-oss-120b", gpu="h100-sxm", gpus=16, framework="nemo", seq=4096)
    found = distsim.advise(report)
    rates = [one.tokens_per_second for one in found]
    assert not report.memory.fits and rates == sorted(rates, reverse=True)
    assert any(after.seconds < before.seconds for before, after in itertools.pairwise(found))
    assert [one.gain > 0 for one in found] == [rate > report.tokens_per_second for rate in rates]


def test_nothing_is_proposed_that_the_named_framework_lacks() -> None:
    report = distsim.step(model="gpt2-xl", gpu="v100-sxm2-32gb", gpus=64, framework="torch-ddp", seq=1024)
    named = {name for one in faster(report) for name in one.options}
    assert named.isdisjoint({"tp", "pp"}) and all(one.options.get("zero", 0) < 2 for one in faster(report))


RUNNABLE = [
    {"model": "deepseek-v3", "gpu": "h100-sxm", "gpus": 256, "pp": 8, "ep": 32, "seq": 4096, "global_batch": 1024},
    {"model": "llama-3.1-405b", "gpu": "h100-sxm", "gpus": 1024, "tp": 8, "pp": 16, "vpp": 4, "global_batch": 512,
     "zero": 1},
    {"model": "llama-2-13b", "gpu": "v100", "gpus": 32, "precision": "fp16"},
]  # fmt: skip


@pytest.mark.parametrize("stated", RUNNABLE, ids=lambda stated: stated["model"])
def test_what_is_proposed_runs_in_the_default_framework(stated: dict[str, Any]) -> None:
    """Its rules refuse only who names it, and ZeRO 2 with 8 stages was proposed to all others. Layers to recompute are
    no more than stages have."""
    report = distsim.step(**stated)
    found = distsim.advise(report)
    assert len(found) >= 3 and not report.memory.fits
    for one in found:
        again = distsim.step(**{**stated, **one.options, "framework": report.setup.framework.name})
        assert not any("recomputes every layer" in note for note in again.notes), one


def test_advice_goes_on_where_the_job_is_not_what_the_framework_runs() -> None:
    """What nobody asked the default framework about is computed anyway, and so is what else changes."""
    report = distsim.step("llama-2-7b", gpu="h100-sxm", gpus=16, pp=4, zero=2, global_batch=32, micro_batch=1)
    assert any("does not run ZeRO 2" in note for note in report.notes)
    kept = [one.options for one in faster(report, most=9) if "zero" not in one.options]
    assert any("pp" not in options for options in kept)


def test_a_search_for_what_the_default_framework_lacks_is_mended() -> None:
    """Its bounds lift rules, of which the changed jobs know nothing."""
    found = distsim.search("llama-2-70b", gpu="h100-sxm", gpus=16, pp=4, zero=2, global_batch=64, recompute="none")
    assert not found.best and any("zero" not in one.shown for one in distsim.advise(found))


def test_other_losses_and_context_modes_are_tried() -> None:
    ulysses = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 16, "seq": 32768, "cp": 8, "zero": 1,
               "global_batch": 16}  # fmt: skip
    assert {"cp_mode": "all_to_all"} in [one.options for one in faster(distsim.step(**ulysses))]
    alone = distsim.step(**{**ulysses, "framework": "torchtitan", "zero": 3})  # whose switch has no all-to-all of heads
    assert not any("cp_mode" in one.options for one in faster(alone, most=99))
    chunked = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "framework": "huggingface", "zero": 3,
               "global_batch": 32, "recompute": "full", "loss": "chunked"}  # fmt: skip
    gains = {one.options.get("loss"): one.gain for one in faster(distsim.step(**chunked))}
    assert gains["liger"] > 0.1
    liger = faster(distsim.step(**{**chunked, "loss": "liger"}), most=99)
    assert all(one.options.get("loss") != "liger" for one in liger)


def test_json_has_what_the_terminal_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["step", "llama-3-8b", "--gpu", "h100-sxm", "--gpus", "8", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert "faster" not in answer and answer["fitting"][0]["seconds"] > 0
    run(["step", "llama-3-8b", "--gpu", "h100-sxm", "--gpus", "8"])
    told = capsys.readouterr().out
    assert "What makes it fit" in told and "--zero 2" in told
    assert run(["step", "llama-3-70b", "--gpu", "h200-sxm", "--gpus", "64", "--tp", "8", "--pp", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faster"]


@pytest.mark.parametrize(
    "words",
    [
        "step llama-2-70b --gpu a100-sxm4-80gb --gpus 16",
        "memory qwen2.5-32b --gpu rtx-4090 --gpus 8 --seq 131072",
        "memory llama-2-70b --gpu rtx-3090 --gpus 1 --seq 524288 --micro-batch 64",
    ],
)
def test_options_of_advice_fold_to_the_terminal(words: str) -> None:
    """Whole options, below their line, where a terminal is too narrow; what is piped stays on one line."""
    text = piped(*words.split(), COLUMNS="80").stdout.partition("akes it fit")[2]
    assert text and max(map(len, text.splitlines())) <= 80
    assert "\n  --" in text or "Nearest" in text
    table = piped(*words.split()).stdout.partition("akes it fit")[2]
    assert "\n  --" not in table and " ".join(table.split()) == " ".join(text.split())


@pytest.mark.parametrize("command", ["step", "comm", "search"])
def test_nodes_that_nothing_joins_are_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They took 10^34 days."""
    assert run([command, "llama-3.2-1b", "--gpu", "rtx-3090", "--gpus", "16"]) == 2
    assert "need a network" in capsys.readouterr().err
    assert run([command, "llama-3.2-1b", "--cluster", "selene", "--gpus", "8192"]) == 2
    assert "which has 4480" in capsys.readouterr().err


def test_first_and_last_stage_of_one_node_share_the_embedding_over_its_links() -> None:
    """4 stages of 2 replicas lie on one node: the last stage's rank 6 is not on another."""
    rows = distsim.comm(model="cerebras-gpt-2.7b", cluster="dgx-h100", gpus=8, pp=4).to_dict()["collectives"]
    assert [row["link"] for row in rows if row["purpose"] == "tied embedding gradient"] == ["nvlink-4"]
    alone = distsim.step(model="cerebras-gpt-2.7b", cluster="workstation-4x-rtx-3080", pp=4)
    assert alone.seconds < 60


def test_low_rank_gradients_of_a_stage_that_trains_nothing() -> None:
    """The first stage has no adapters where only the head has."""
    report = distsim.step(model="llama-3-8b", gpus=16, pp=8, lora_rank=1, lora_targets="head", compress="powersgd-r4")
    assert report.seconds > 0


def test_utilisation_over_one_is_explained() -> None:
    """The convention counts attention to all tokens; windows of 1,024 leave out most of 131,072."""
    report = distsim.step(model="gemma-3-27b", gpu="gb300", gpus=8, lora_rank=8)
    assert report.mfu is not None and report.mfu > 1
    assert any("MFU is over 100%" in note for note in report.notes)
    usual = distsim.step(model="llama-3-8b", gpu="h100-sxm", gpus=8)
    assert not any("MFU" in note for note in usual.notes)


def test_software_of_one_vendor_is_told_elsewhere() -> None:
    def notes(gpu: str, framework: str) -> str:
        return " ".join(distsim.step(model="llama-3-8b", gpu=gpu, gpus=8, zero=0, framework=framework).notes)

    assert "does not run on h100-sxm" in notes("h100-sxm", "neuronx") and "does not run" in notes("a100", "habana")
    assert "does not run" not in notes("trainium2", "neuronx") + notes("gaudi2", "habana")


def test_a_framework_with_wide_gradients_is_told_that_they_are_narrow() -> None:
    """Megatron adds up gradients of bf16 in fp32 (arguments.py, accumulate_allreduce_grads_in_fp32), two bytes a
    parameter more than the recipe that is taken where nobody names one."""

    def told(**options: Any) -> list[str]:
        job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "zero": 0, **options}
        return [note for note in distsim.step(**job).notes if "gradients" in note]

    (note,) = told(framework="megatron-lm")
    usual = note.rsplit("--precision ", 1)[1]
    assert not told(framework="megatron-lm", precision=usual)
    assert not told() and told(framework="megatron-bridge") and not told(framework="megatron-lm", lora_rank=8)
    narrow, wide = (distsim.memory(model="llama-3-8b", gpu="h100-sxm", gpus=8, zero=0, framework="megatron-lm",
                                   precision=precision).stages[0].categories["gradients"]
                    for precision in ("bf16", usual))  # fmt: skip
    assert wide == pytest.approx(2 * narrow)


def test_thousands_of_shards_are_told_of_smaller_groups() -> None:
    """Gathering each layer from 8,192 ranks takes as many steps of a ring; groups of fewer cost memory and save a
    quarter of the step. What is told is what a step with that option takes; replicas of local SGD keep their size."""
    fsdp: dict[str, Any] = {"model": "llama-3-70b", "gpu": "h100-sxm", "gpus": 8192, "zero": 3, "compile": True,
                            "framework": "torchtitan", "recompute": "full", "global_batch": 8192}  # fmt: skip
    report = distsim.step(**fsdp)
    (best,) = (one for one in distsim.advise(report) if "zero_group" in one.options)
    assert best.gain > 0.25 and best.peak > report.memory.peak and 8192 % best.options["zero_group"] == 0
    again = distsim.step(**fsdp, **best.options)
    assert again.seconds == pytest.approx(best.seconds) and again.memory.peak == best.peak and again.memory.fits
    local = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 64, "zero": 1, "zero_group": 16, "sync": "local-sgd",
             "sync_every": 100}  # fmt: skip
    assert not any("zero_group" in one.options for one in distsim.advise(distsim.step(**local)))


def test_what_room_there_is_saves_recomputing_some_layers() -> None:
    """Between all layers and none: stages of 405B fit when two of their layers are computed again."""
    experts = distsim.step(
        model="deepseek-v3", gpu="h100-sxm", gpus=1024, pp=16, ep=64, zero=1, seq=4096, global_batch=8192,
        stage_layers="balanced", recompute="full",
    )  # fmt: skip
    stage = {"model": "llama-3.1-405b", "gpu": "h100-sxm", "gpus": 1024, "tp": 8, "pp": 16, "zero": 1, "seq": 8192,
             "global_batch": 1024, "stage_layers": "balanced", "recompute": "full"}  # fmt: skip
    report = distsim.step(**stage)
    (best,) = (one for one in distsim.advise(report) if "recompute_layers" in one.options)
    again = distsim.step(**{**stage, **best.options})
    assert again.seconds == pytest.approx(best.seconds) and best.gain > 0.1 and again.memory.fits
    (node,) = (one for one in distsim.advise(experts) if "ep" in one.options)
    assert node.options == {"ep": 8} and node.gain > 0.4  # experts of a node, an eighth of the ranks: no NIC
    less = best.options["recompute_layers"]
    fewer = distsim.advise(distsim.step(**{**stage, **best.options}))
    assert all(one.options.get("recompute_layers", 0) < less for one in fewer)
    whole = {"model": "llama-3-70b", "gpu": "tpu-v5p", "gpus": 256, "zero": 3, "framework": "maxtext",
             "recompute": "full", "micro_batch": 8}  # fmt: skip
    assert not any("recompute_layers" in one.options for one in distsim.advise(distsim.step(**whole)))


def test_files_are_written_whole_through_links_and_into_pipes(tmp_path: Path) -> None:
    """A device or pipe must not be replaced by a file, nor a link by what it should lead to."""
    from distsim.cli.pipeline_options import write

    real, link, pipe = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "pipe"
    real.write_text("old")
    link.symlink_to(real)
    write(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(pipe, "told")
    assert os.read(end, 9) == b"told" and pipe.is_fifo()
    os.close(end)
    assert {path.name for path in tmp_path.iterdir()} == {"real.json", "link.json", "pipe"}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    from distsim.cli.whole_file import whole
    from distsim.errors import DistsimError

    kept = tmp_path / "kept.csv"
    kept.write_text("old")
    with pytest.raises(DistsimError, match="cannot write"), whole(kept) as scratch:
        scratch.write_text("half")
        raise OSError(28, "No space left on device")
    assert kept.read_text() == "old" and list(tmp_path.iterdir()) == [kept]


def test_experts_are_spread_where_that_fits_or_is_faster() -> None:
    """Experts are 45 of Mixtral's 47 billion parameters."""
    full = {"gpus": 64, "gpu": "h100-sxm", "framework": "megatron-core", "global_batch": 256, "tp": 2, "pp": 4,
            "seq": 4096, "micro_batch": 1}  # fmt: skip
    report = distsim.step("mixtral-8x7b", **full)
    best = distsim.advise(report)[0]
    assert not report.memory.fits and best.options == {"ep": 4} and best.peak <= report.memory.capacity
    wide = {"gpus": 32, "gpu": "h100-sxm", "framework": "megatron-core", "global_batch": 256, "zero": 1, "ep": 32,
            "seq": 4096, "micro_batch": 1}  # fmt: skip
    assert {"ep": 8} in [one.options for one in distsim.advise(distsim.step("qwen3-30b-a3b", **wide))]
    assert all("ep" not in one.options for one in distsim.advise(distsim.step("llama-70b", **full)))


def test_micro_batches_grow_as_long_as_each_gains() -> None:
    """Small images: 128 at once, not four; and of a model whose activations fill memory only what fits."""
    report = distsim.step("vit-large-patch16-224", gpu="h100-sxm", gpus=8, global_batch=1024, framework="torch-ddp")
    assert faster(report)[0].options["micro_batch"] == 128
    large = distsim.step("llama-2-7b", gpu="h100-sxm", gpus=8, global_batch=512, zero=3, framework="torchtitan")
    (one,) = (one for one in faster(large) if "micro_batch" in one.options)
    assert distsim.step("llama-2-7b", gpu="h100-sxm", gpus=8, global_batch=512, zero=3, framework="torchtitan",
                        micro_batch=one.options["micro_batch"]).memory.fits  # fmt: skip


def test_chunks_grow_as_long_as_each_gains() -> None:
    """12 layers a stage may be cut into 2, 3, 4, 6 or 12; what is tried ends where nothing is left to gain."""
    job = {"model": "gpt3-175b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "pp": 8, "global_batch": 8}
    report = distsim.step(**job)
    (one,) = (one for one in faster(report) if "vpp" in one.options)
    seconds = {chunks: distsim.step(**job, vpp=chunks).seconds for chunks in (2, 3, 4, 6, 12)}
    assert one.options["vpp"] > 4 and one.seconds <= 1.01 * min(seconds.values())


@pytest.mark.parametrize("zero", [2, 3])
def test_no_stage_is_proposed_at_which_a_job_would_not_run(zero: int) -> None:
    """DeepSpeed in bf16 runs ZeRO 0 as ZeRO 1, as quickly, and --zero 0 was told as the change."""
    report = distsim.step("llama-7b", gpus=8, zero=zero, framework="deepspeed", global_batch=64)
    stages = [one.options["zero"] for one in distsim.advise(report) if "zero" in one.options]
    assert stages and 0 not in stages
