"""Files that are no job: told what they are, where they are malformed, and what to type instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_megatron_files import NEMO

from distsim import memory
from distsim.cli.app import run
from distsim.interop.other_structure import yaml_fault

CONFIG = '{"model_type": "llama", "hidden_size": 64}'
WRONG = [
    ("run.sh", "pretrain_gpt.py --num-layers 32 --micro-batch-size 2\n", "looks like arguments of Megatron",
     "--hidden-size, --num-attention-heads are missing"),
    ("bad.yaml", "a: [1,2\n b: {\n", "is malformed YAML", "[ on line 1 is not closed"),
    ("some.yaml", "num_layers: 2\nhidden_size: 64\n", "is YAML, which is not read", "num_attention_heads is missing"),
    ("sizes.yaml", "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 2\n", "is YAML, which is not read",
     "a layout (tensor_model_parallel_size, pipeline_model_parallel_size, micro_batch_size) is missing"),
    ("cut.json", '{"a":', "cut.json:1: not valid JSON", "(column 6)"),
    ("void.toml", "# tp = 2\n", "void.toml: states no option", "e.g. gpu, gpus, tp, zero"),
    ("runs.csv", "model,gpu,n_gpus\n", "is a table", "distsim validate "),
    ("config.json", CONFIG, "is a model, not a job", "give it as MODEL: distsim step "),
    ("job.json", '{"model": "llama-7b", "tp": 2}', "is JSON; a job file is a TOML", 'model = "llama-7b"'),
    ("mine.toml", "layers = 2\nhidden = 64\nheads = 2\n", "is a model, not a job", "give it as MODEL"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "problem", "hint"), WRONG, ids=[one[0] for one in WRONG])
def test_what_is_no_job_is_told(
    name: str, text: str, problem: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them were invalid TOML, YAML that nobody reads, or nothing at all."""
    (tmp_path / name).write_text(text)
    assert run(["memory", "--job", str(tmp_path / name)]) == 2
    told = capsys.readouterr().err
    assert problem in told and hint in told and "not valid TOML" not in told


def test_a_text_that_is_nobodys_is_told_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tune.sh").write_text("tune run lora --config llama3/8B_lora\n")
    assert run(["memory", "--job", str(tmp_path / "tune.sh")]) == 2
    assert "scripts of Megatron and YAML of NeMo or nanotron are read" in capsys.readouterr().err


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("words", [["step"], ["step", "--job"]])
def test_an_answer_is_told_with_the_command_that_it_answers(
    part: bool, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = memory("llama-7b", gpus=8, tp=2, stage_layers="32", sequence_parallel=False).to_dict()
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(answer["job"] if part else answer))
    assert run([*words, str(file)]) == 2
    asked = capsys.readouterr().err.split("the same job is: ")[1].strip()
    assert asked == "distsim step llama-7b --gpus 8 --tp 2 --stage-layers 32 --no-sequence-parallel"


@pytest.mark.parametrize(
    ("text", "fault"),
    [("a:\n\tb: 1\n", "line 2 is indented by a tab"), ("a: 1\n  b: 2\n", "b on line 2 stands inside of a on line 1"),
     ("a:\n- b: 1\n   c: 2\n", "c on line 3 stands inside of b on line 2"), ("a: {b: [1, 2}\n", "[ on line 1"),
     ("a: one\n  two\nb: |\n  c: 1\n    d: [\ne: '['  # {\n", ""), ("- a: 1\n  b:\n    - c: 2\n      d: 3\n", ""),
     ("a: [1,\n  2]\nb: &x\n  c: 1\n", "")],
)  # fmt: skip
def test_faults_of_yaml(text: str, fault: str) -> None:
    assert fault in yaml_fault(text) and bool(fault) is bool(yaml_fault(text))


def test_a_yaml_that_is_read_in_spite_of_a_fault_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NeMo would not take it, and a position embedding went unread."""
    file = tmp_path / "nemo.yaml"
    file.write_text(NEMO.replace("  bias: false\n  activation", "  bias: false\n    activation"))
    assert run(["memory", "--job", str(file)]) in (0, 1)
    assert "malformed YAML, read line by line all the same: activation on line" in capsys.readouterr().err
