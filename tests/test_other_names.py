"""Names of other tools, told by what they are here."""

from __future__ import annotations

import inspect

import pytest

from distsim.cli import app
from distsim.errors import DistsimError
from distsim.other_names import _SWITCHES, Here, all_names, here, meant
from distsim.specs.experts import Experts
from distsim.specs.flags import NEGATIVE
from distsim.specs.job import SWITCHES, Job
from distsim.specs.model import Model

COMMANDS = ("memory", "comm", "step", "search", "plan", "pipeline")


def options() -> set[str]:
    """All options of all commands that price something, by their parameters' names."""
    found = set()
    for name in COMMANDS:
        module = __import__(f"distsim.cli.{name}", fromlist=[name])
        found |= {parameter.strip("_") for parameter in inspect.signature(getattr(module, name)).parameters}
    return found


def test_what_a_name_is_told_to_be_exists() -> None:
    fields = {*Job.model_fields, *Model.model_fields, *Experts.model_fields, *options()}
    assert {found.name for _, found in all_names()} <= fields


def test_a_name_is_told_once() -> None:
    found = list(all_names())
    assert len(found) == len(set(found))


def test_no_field_of_a_job_is_taken_for_another_tools_name() -> None:
    """But for the degrees, which a pipeline drawn by itself calls stages and chunks."""
    spelt = {name.replace("_", "-") for name in Job.model_fields}
    assert {(other, found.name) for other, found in all_names() if other in spelt} == {
        ("pp", "stages"),
        ("vpp", "chunks"),
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tensor_model_parallel_size", [Here("tp")]),
        ("--per-device-train-batch-size", [Here("micro_batch")]),
        ("batch_size", [Here("micro_batch"), Here("global_batch")]),
        ("expert-tensor-parallel-size", [Here("etp")]),
        ("use_distributed_optimizer", [Here("zero", "1")]),
        ("gradient_accumulation_steps", [Here("global_batch", why="(micro-batch x dp x accumulation)")]),
        (
            "recompute_num_layers",
            [Here("recompute_layers", why="(block: its value x vpp; uniform: recompute-group)")],
        ),
        ("recompute-method", [Here("recompute", "full", "(block: with recompute-layers)")]),
        ("num-layers-per-virtual-pipeline-stage", [Here("vpp", why="(layers / pp / its value)")]),
        ("ds-sequence-parallel-size", [Here("cp", why="(Ulysses: with cp-mode all_to_all)")]),
        ("sp_size", [Here("cp", why="(Ulysses: with cp-mode all_to_all)")]),
        ("sequence_parallel_degree", [Here("cp")]),
        ("sequence_parallel", []),
        ("pipeline_parallel_microbatch_size", [Here("micro_batch")]),
        ("hidden_size", []),
        ("tp", []),
    ],
)
def test_a_job_has_another_name_for_it(name: str, told: list[Here]) -> None:
    assert here(name, Job.model_fields) == told


def test_fields_are_told_as_files_have_them_and_options_as_they_are_typed() -> None:
    assert meant("bf16", Job.model_fields) == 'did you mean precision = "bf16"?'
    assert meant("fsdp", Job.model_fields) == "did you mean zero = 3?"
    assert meant("--bf16", Job.model_fields, option=True) == "did you mean --precision bf16?"
    assert meant("--micro_batch_size", Job.model_fields, option=True) == "did you mean --micro-batch?"
    assert meant("num_hidden_layers", Model.model_fields) == "did you mean layers?"
    assert meant("xyzzy", Job.model_fields) == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["memory", "llama-7b", "--batch-size", "4"], "did you mean --micro-batch, --global-batch?"),
        (["step", "llama-7b", "--dtype", "bf16"], "did you mean --precision?"),
        (["comm", "llama-7b", "--nnodes", "4"], "did you mean --gpus (nodes x GPUs per node)?"),
        (["plan", "llama-7b", "--tokens", "1T", "--within", "30d"], "did you mean --deadline?"),
        (["search", "llama-7b", "--steps", "9"], "did you mean --tokens (steps x global batch x sequence)?"),
        (["pipeline", "--pp", "4"], "did you mean --stages?"),
        (["step", "llama-7b", "--context-fn", "mlp"], "did you mean --recompute selective (the framework decides what"),
        (["step", "llama-7b", "--local-batch-size", "4"], "did you mean --micro-batch (under pipelines pipeline_p"),
        (
            ["step", "llama-7b", "--framework", "gpt-neox"],
            "the nearest is megatron-deepspeed, which stands in for it when runs",
        ),
        (["step", "llama-7b", "--framework", "torchtitn"], "did you mean torchtitan"),
        (["step", "llama-7b", "--precision", "fp8-blockwise"], "the nearest is fp8, which stands in for it when runs"),
        (["memory", "llama-7b", "--hidden-size", "64"], "a model's shape comes from its preset, TOML or"),
        (["memory", "--model_name", "llama-7b"], "the model is a plain argument: distsim memory llama-7b"),
        (["step", "llama-7b", "--lora-alpha", "32"], "leave it out: it affects neither memory nor time"),
        (["step", "llama-7b", "--ici-fsdp-parallelism=64"], "did you mean --zero 3 (zero-group: ici x dcn"),
        (["comm", "llama-7b", "--dcn_tensor_parallelism", "2"], "did you mean --tp (ici x dcn of this axis)?"),
        (["step", "llama-7b", "--pipeline-model-parallel-layout", "Et"], "did you mean --stage-layers?"),
        (["step", "llama-7b", "--decoder-last-pipeline-num-layers", "7"], "did you mean --stage-layers (layers of ev"),
        (["memory", "llama-7b", "--use-megatron-fsdp"], "did you mean --zero 3?"),
        (["memory", "llama-7b", "--remat", "full"], "did you mean --recompute?"),
        (["memory", "llama-7b", "--cross-entropy-loss-fusion"], "did you mean --loss?"),
        (["memory", "llama-7b", "--bnb-4bit-quant-type", "nf4"], "did you mean --quantize?"),
        (["step", "llama-7b", "--no-overlap-grad-reduce"], "did you mean --no-dp-comm-overlap?"),
        (["step", "llama-7b", "--train-iters", "9"], "leave it out: only one step is predicted"),
        (["plan", "llama-7b", "--tokens", "1T", "--train-iters", "9"], "did you mean --tokens (steps x"),
        (["plan", "llama-7b", "--tokens", "1T", "--save-interval", "9"], "did you mean --checkpoint-every?"),
        (["step", "llama-7b", "--parallelism.tensor_parallel_degree", "4"], "did you mean --tp?"),
        (["step", "llama-7b", "--activation_checkpoint.mode=full"], "did you mean --recompute?"),
        (["step", "llama-7b", "--swiglu"], "a model's shape comes from its preset"),
        (["memory", "llama-7b", "--reshard-after-forward", "8"], "did you mean --zero (True or always: 3; False"),
        (["comm", "llama-7b", "--sharding-strategy=HYBRID_SHARD"], "did you mean --zero (FULL_SHARD: 3; SHARD_GRAD"),
        (["memory", "llama-7b", "--activation_memory_budget", "0.5"], "did you mean --recompute (0: full; 1: none"),
        (["memory", "llama-7b", "--selective-ac-option", "2"], "did you mean --recompute selective (for op; for a"),
        (["comm", "llama-7b", "--set-requires-gradient-sync"], "did you mean --no-sync (False for all micro-b"),
        (["comm", "llama-7b", "--ddp_comm_hook", "fp16"], "did you mean --compress?"),
        (["memory", "llama-7b", "--gradient-as-bucket-view"], "did you mean --framework (a copy of torch-ddp"),
        (["memory", "llama-7b", "--save-on-cpu"], "did you mean --offload activations?"),
        (["memory", "llama-7b", "--no-limit-all-gathers"], "leave it out: it follows from --framework"),
        (["memory", "llama-7b", "--dropout", "0.1"], "a switch takes no value: --dropout or --no-dropout"),
    ],
)
def test_options_of_other_tools(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(words) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines()[1].strip().startswith(told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["step", "llama-7b", "--tokens", "2T"], "an option of distsim search and plan"),
        (["comm", "llama-7b", "--gantt"], "an option of distsim step"),
        (["pipeline", "llama-7b", "--reference", "copy"], "an option of distsim memory, comm, step, search and plan"),
        (["validate", "--xyzzy"], "distsim validate --help lists the options"),
    ],
)
def test_options_of_other_commands(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(words) == 2
    assert capsys.readouterr().err.splitlines()[1].strip() == told


def test_all_unknown_options_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--tensor-model-parallel-size", "4", "--gpus=8", "--lora-alpha", "32", "--xyzzy", "--lora-alpha", "16"]
    assert app.run(["step", "llama-7b", *words]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: unknown options --tensor-model-parallel-size, --lora-alpha, --xyzzy",
        "  --tensor-model-parallel-size: did you mean --tp?",
        "  --lora-alpha: leave it out: it affects neither memory nor time",
        "  distsim step --help lists the options",
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["comm", "llama-7b", "--cp-mode", "ulysses"],
            "did you mean all_to_all? choices: ring, all_to_all, all_gather",
        ),
        (["memory", "llama-7b", "--attention", "sdpa"], "did you mean flash? choices: flash, eager"),
        (["memory", "llama-7b", "--attention", "flash_attention_2"], "did you mean flash? choices: flash, eager"),
        (["memory", "llama-7b", "--recompute", "op"], "did you mean selective? choices: none, selective, full"),
        (["memory", "llama-7b", "--zero", "SHARD_GRAD_OP"], "did you mean 2?"),
        (["memory", "llama-7b", "--recompute", "on"], "did you mean full? choices: none, selective, full"),
        (["search", "llama-7b", "--recompute", "true"], "did you mean full?"),
        (["step", "llama-7b", "--offload", "params"], "did you mean parameters?"),
        (["search", "llama-7b", "--offload", "cpu"], "did you mean optimizer?"),
        (["memory", "llama-7b", "--recompute", "xyzzy"], "choices: none, selective, full"),
    ],
)
def test_words_of_other_tools(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(words) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines()[1].strip() == told


def test_a_program_is_told_too() -> None:
    with pytest.raises(DistsimError, match="did you mean micro_batch, global_batch"):
        Job(model="llama-7b", batch_size=4)


def test_all_switches_that_a_no_turns_off_are_known() -> None:
    """The names stand below the job's, which is why they are stated again."""
    assert set(_SWITCHES) == set(SWITCHES) - set(NEGATIVE)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--dpo", "a frozen reference: --reference copy"), ("--ref_model", "did you mean --reference?"),
        ("--num-generations", "reinforcement learning"), ("--freeze-trainable-layers", "frozen layers"),
        ("--galore-rank", "did you mean --optimizer-rank?"), ("--use-badam", "some layers at a time"),
        ("--use-galore", "--optimizer galore-adamw"), ("--use-dora", "did you mean --dora?"),
        ("--padding-free", "--sample-tokens"), ("--deepspeed", "--zero"), ("--loraplus-lr-ratio", "leave it out"),
    ],
)  # fmt: skip
def test_options_of_fine_tuning(option: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--dpo had been taken for --dp, --galore-rank for --lora-rank."""
    assert app.run(["memory", "llama-7b", option, "4"]) == 2
    assert told in capsys.readouterr().err.splitlines()[1]
