"""Configurations of other tools, given as a model or as a job: told what they are, and what to type for them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from distsim.cli.app import run

DEEPSPEED = '{"train_batch_size": 16, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
AXOLOTL = "base_model: NousResearch/Llama-3.2-1B  # a comment\nadapter: lora\nload_in_8bit: true\nsequence_len: 2048\n"
TORCHTITAN = (
    '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 2'
)
NEMO = "model:\n  tensor_model_parallel_size: 2\n  micro_batch_size: 1\n  global_batch_size: 64\n"
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n"
TORCHTUNE = "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\n"
FACTORY = "model_name_or_path: meta-llama/Llama-3\nstage: sft\nfinetuning_type: lora\ncutoff_len: 4096\n"
TRAINER = '{"per_device_train_batch_size": 4, "output_dir": "out", "gradient_accumulation_steps": 8}'
PEFT = '{"peft_type": "LORA", "base_model_name_or_path": "x", "r": 16}'
FILES = [
    ("ds.json", DEEPSPEED, "a DeepSpeed configuration", "--framework deepspeed --global-batch 16 --zero 3"),
    ("axolotl.yml", AXOLOTL, "an axolotl configuration", "--framework axolotl --quantize int8 --seq 2048"),
    ("titan.toml", TORCHTITAN, "a torchtitan configuration", "--framework torchtitan --seq 8192 --tp 2"),
    ("nemo.yaml", NEMO, "a Megatron configuration", "--tp 2 --micro-batch 1 --global-batch 64"),
    ("fsdp.yaml", ACCELERATE, "an accelerate configuration", "--framework fsdp --gpus 8 --zero 3"),
    ("tune.yaml", TORCHTUNE, "a torchtune recipe", "--framework torchtune"),
    ("sft.yaml", FACTORY, "a LLaMA-Factory configuration", "--seq 4096"),
    ("trainer.json", TRAINER, "a configuration of transformers' Trainer", "--micro-batch 4"),
    ("adapter_config.json", PEFT, "an adapter's configuration of peft", "--framework huggingface"),
    ("plain.yaml", "hello: 1\n", "is YAML, which is not read", "config.json"),
]


@pytest.mark.parametrize(("name", "text", "called", "hint"), FILES, ids=[one[0] for one in FILES])
@pytest.mark.parametrize("given", ["model", "path", "job"])
def test_a_file_of_another_tool_is_recognised(
    name: str, text: str, called: str, hint: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A missing model_type, fifteen missing fields or broken TOML were told of them."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text, encoding="utf-8")
    words = {"model": [name], "path": [str(tmp_path / name)], "job": ["--job", name]}[given]
    assert run(["memory", *words]) == 2
    told = capsys.readouterr().err
    assert called in told and hint in told and "model_type" not in told and "not valid TOML" not in told


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [("config.json", '{"layers": 2}', "names no model_type"), ("mine.toml", "layers = 2", "field 'family' is missing"),
     ("broken.toml", "layers: 2\nseq", "not valid TOML")],
)  # fmt: skip
def test_other_mistakes_are_told_as_before(
    name: str, text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert run(["memory", str(tmp_path / name)]) == 2
    assert told in capsys.readouterr().err


def test_a_job_file_with_another_tools_names_stays_a_job_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text('model = "llama-7b"\nper_device_train_batch_size = 4\ngradient_accumulation_steps = 8\n')
    assert run(["memory", "--job", str(file)]) == 2
    told = capsys.readouterr().err
    assert "did you mean micro_batch" in told and "looks like" not in told


@pytest.mark.parametrize("line", ["hidden_size = 4096", "layers = 2", "num_experts = 8"])
def test_a_models_sizes_are_no_options_of_a_job(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hidden size was an image's."""
    file = tmp_path / "job.toml"
    file.write_text(f'model = "llama-7b"\n{line}\n')
    assert run(["memory", "--job", str(file)]) == 2
    told = capsys.readouterr().err
    assert "a model's shape comes from its preset" in told and "did you mean" not in told


QLORA = """base_model: meta-llama/Meta-Llama-3-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_32bit
gradient_checkpointing: true
"""
LISTED = """base_model: nobody/knows-this
adapter: lora
lora_target_modules:
  - q_proj
  - v_proj
sequence_len: 2048
fp16: true
"""
SFT = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
finetuning_type: lora
lora_target: all
cutoff_len: 2048
gradient_accumulation_steps: 8
quantization_bit: 4
enable_liger_kernel: true
disable_gradient_checkpointing: true
"""
SHARDED = """{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "fp16": {"enabled": true},
"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 3,
"offload_optimizer": {"device": "nvme", "nvme_path": "x"}, "offload_param": {"device": "cpu"}}}"""
LAUNCHED = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: 16
deepspeed_config:
  zero_stage: 2
  offload_optimizer_device: cpu
  offload_param_device: none
  gradient_accumulation_steps: 4
"""
PADDLE = """{"model_name_or_path": "meta-llama/Meta-Llama-3-8B", "per_device_train_batch_size": 1,
"gradient_accumulation_steps": 16, "tensor_parallel_degree": 2, "pipeline_parallel_degree": 1, "sharding": "stage2",
"virtual_pp_degree": 1, "sequence_parallel": 0, "use_fused_rms_norm": true, "max_seq_length": 4096, "bf16": true,
"fp16_opt_level": "O2", "recompute": false, "recompute_granularity": "full"}"""
LAUNCH_PADDLE = (
    "python -m paddle.distributed.launch run_pretrain.py --model_name_or_path facebook/llama-7b "
    "--tensor_parallel_degree 2 --pipeline_parallel_degree 2 --sharding stage1 --virtual_pp_degree 2 --recompute 1 "
    "--sequence_parallel 1 --recompute_granularity core_attn --fp16 --per_device_train_batch_size 2 "
    "--gradient_accumulation_steps 8"
)
PER_RANK = "\n  to be stated besides: --global-batch, {} times the data parallel ranks"
SUGGESTED = [
    ("ax.yml", QLORA, "llama-3-8b --framework axolotl --quantize nf4 --lora-rank 32 --lora-targets all-linear "
     "--seq 4096 --micro-batch 2 --optimizer paged_adamw_32bit --recompute full" + PER_RANK.format(8)),
    ("listed.yml", LISTED, "MODEL --framework axolotl --lora-targets q_proj,v_proj --seq 2048 --precision amp-fp16 "
     "--lora-rank 8 --recompute none"),
    ("one-line.yml", LISTED.replace("\n  - q_proj\n  - v_proj", " [q_proj, 'v_proj']"), "MODEL --framework axolotl "
     "--lora-targets q_proj,v_proj --seq 2048 --precision amp-fp16 --lora-rank 8 --recompute none"),
    ("sft.yaml", SFT, "qwen2.5-7b --framework llama-factory --lora-targets all-linear --seq 2048 --quantize nf4 "
     "--loss liger --recompute none --lora-rank 8" + PER_RANK.format(8)),
    ("ds.json", SHARDED, "MODEL --framework deepspeed --micro-batch 4 --precision fp16 --optimizer AdamW --zero 3 "
     "--offload optimizer,parameters --offload-to nvme" + PER_RANK.format(8)),
    ("launch.yaml", LAUNCHED, "MODEL --framework huggingface --gpus 16 --zero 2 --offload optimizer --global-batch 64"),
    ("titan.toml", TORCHTITAN, "llama-3-8b --framework torchtitan --seq 8192 --tp 2"),
    ("tune.yaml", TORCHTUNE, "llama-3-8b --framework torchtune --micro-batch 2"),
    ("paddle.json", PADDLE, "llama-3-8b --framework paddlenlp --micro-batch 1 --tp 2 --seq 4096 --zero 2"
     + PER_RANK.format(16)),
    ("paddle.sh", LAUNCH_PADDLE, "llama-7b --framework paddlenlp --tp 2 --pp 2 --precision fp16 --micro-batch 2 "
     "--zero 1 --vpp 2 --sequence-parallel --recompute selective" + PER_RANK.format(16)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "typed"), SUGGESTED, ids=[one[0] for one in SUGGESTED])
def test_what_is_suggested_is_the_files_own_job(
    name: str, text: str, typed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It named another model and left out checkpoints, optimizers, offloading and accumulated batches."""
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert run(["memory", str(file)]) == 2
    told = capsys.readouterr().err.split("e.g. ")[1].strip()
    assert told == typed
    words = told.splitlines()[0].replace("MODEL", "llama-3-8b").split()
    gpus = [] if "--gpus" in words else ["--gpus", "8"]
    if batch := re.search(r"--global-batch, (\d+) times", told):
        words += ["--global-batch", f"{int(batch[1]) * 8}"]
    assert run(["memory", *words, "--gpu", "h200-sxm", *gpus]) in (0, 1)


@pytest.mark.parametrize(
    ("text", "typed", "told"),
    [("stage: dpo", "", "; dpo is --reference (copy, or base under adapters; a pair is two sequences)"),
     ("stage: rm", "", "not understood: stage (rm)"), ("flash_attn: disabled", "--attention eager", ""),
     ("flash_attn: fa2", "", ""), ("use_badam: true", "", "not understood: use_badam")],
)  # fmt: skip
def test_what_a_tune_is_for_is_told(
    text: str, typed: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Preferences, rewards and what trains some layers at a time were plain fine-tuning."""
    file = tmp_path / "sft.yaml"
    file.write_text(f"{SFT}{text}\n", encoding="utf-8")
    assert run(["memory", str(file)]) == 2
    err = capsys.readouterr().err
    assert typed in err and told in err and ("not understood" in err) is ("not understood" in told)


@pytest.mark.parametrize(
    ("name", "text"),
    [("dpo.sh", "trl dpo --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x --per_device_train_batch_size 2\n"),
     ("dpo.py", "from trl import DPOConfig\nmodel = AutoModel.from_pretrained('Qwen/Qwen2.5-7B')\n"
      "args = DPOConfig(output_dir='x', per_device_train_batch_size=2)\n"),
     ("rlhf.sh", "swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --per_device_train_batch_size 2\n")],
)  # fmt: skip
def test_preferences_lead_to_a_reference(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert run(["memory", str(tmp_path / name)]) == 2
    err = capsys.readouterr().err
    assert "to be stated besides: dpo is --reference (copy, or base under adapters" in err
    assert "--framework ms-swift" in err if name == "rlhf.sh" else "--framework trl" in err


def test_a_model_that_is_typed_beside_a_file_is_the_one_that_is_suggested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ax.yml"
    file.write_text(QLORA, encoding="utf-8")
    assert run(["memory", "qwen3-8b", "--job", str(file)]) == 2
    assert "e.g. qwen3-8b --framework axolotl" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a/" + "b" * 5000, "a\0b", "job.json"])
def test_a_models_name_that_is_none_is_left_open(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name too long for the file system, none at all, or the file itself."""
    monkeypatch.chdir(tmp_path)
    stated = {"per_device_train_batch_size": 1, "output_dir": "x", "model_name_or_path": name, "optim": name}
    Path("job.json").write_text(json.dumps(stated), encoding="utf-8")
    assert run(["memory", "job.json"]) == 2
    model = "job.json" if name == "job.json" else "MODEL"
    assert f"e.g. {model} --framework huggingface --micro-batch 1\n" in capsys.readouterr().err
