"""Configurations of other tools, given as a model or as a job: told what they are, and what to type for them."""

from __future__ import annotations

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
    ("axolotl.yml", AXOLOTL, "an axolotl configuration", "--framework huggingface --quantize int8 --seq 2048"),
    ("titan.toml", TORCHTITAN, "a torchtitan configuration", "--framework torchtitan --seq 8192 --tp 2"),
    ("nemo.yaml", NEMO, "a Megatron configuration", "--tp 2 --micro-batch 1 --global-batch 64"),
    ("fsdp.yaml", ACCELERATE, "an accelerate configuration", "--framework huggingface --gpus 8"),
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
