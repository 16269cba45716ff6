"""What a user is told where an answer would else mislead: what was assumed, left out, or asked for in vain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.campaigns.batch import ADAPTED_SEQUENCES, StepBatch
from distsim.formulas.collectives import all_reduce_wire_bytes, nvls_link_bytes

NARROW = "--precision not given: using bf16, with 2-byte gradients; megatron-core usually accumulates them in 4 bytes"


pytestmark = pytest.mark.usefixtures("plain_terminal")


def told(capsys: pytest.CaptureFixture[str], line: str, code: int) -> str:
    assert run(line.split()) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("search llama-7b --gpu h100-sxm --gpus 8 --global-batch 64 --tp 1 --top 1", True),
        ("search llama-7b --gpu h100-sxm --gpus 8 --global-batch 64 --tp 1 --top 1 --precision bf16", False),
        ("search llama-7b --gpu h100-sxm --gpus 8 --global-batch 64 --framework torchtitan --top 1", False),
        ("plan llama-7b --gpu h100-sxm --gpus 8 --tokens 1B --global-batch 512", True),
        ("memory llama-7b --gpus 8 --zero 1", False),
    ],
)
def test_who_chooses_layouts_is_told_of_narrow_gradients(
    line: str, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A layout that fits with gradients of two bytes may not fit Megatron's own recipe (83 of 79 GiB for 70B)."""
    assert (NARROW in told(capsys, line, 0)) is said


def test_rents_of_less_than_a_node_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight MI300X cost four times as much an hour as one, and nothing said why."""
    line = "plan llama-2-7b --tokens 10B --gpu mi300x --gpus {} --global-batch 1024"
    found = re.search(r"lower rents? of mi300x left out, from \$(\d+\.\d\d)", told(capsys, line.format(8), 0))
    assert found is not None and float(found[1]) < 6
    assert "left out, from" not in told(capsys, line.format(1), 0)
    both = told(capsys, line.format("1,8"), 0)
    assert re.search(r"of mi300x left out, from \$\d+\.\d\d \([^)]+\), for 8 of them: ", both)


@pytest.mark.parametrize(("fixed", "held"), [("--tp 1 --pp 1 --zero 0", "--tp 1, --pp 1, --zero 0"), ("", "")])
def test_a_plan_that_the_user_made_impossible_says_so(
    fixed: str, held: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = 4096 if fixed else 8
    err = told(capsys, f"plan llama-3.1-405b --tokens 2T --gpu h100-sxm --gpus {gpus} {fixed}", 1)
    assert ("every layout that was tried has" in err) is bool(held)
    assert held in err


def test_a_list_leads_to_a_search_of_the_same_job(capsys: pytest.CaptureFixture[str]) -> None:
    """It was of llama-7b on the default GPU whatever had been typed; options of the command alone go."""
    err = told(capsys, "step mixtral-8x7b --gpu h100-sxm --ep 1,2,4 --trace t.json --zero=1", 2)
    assert "for several: distsim search mixtral-8x7b --gpu h100-sxm --ep 1,2,4 --zero=1\n" in err


def test_links_under_nvls_carry_less_than_a_ring(capsys: pytest.CaptureFixture[str]) -> None:
    """The switch adds up: 1.75 times a tensor in eight would have been 108% of the link."""
    line = "comm llama-2-70b --gpu h100-sxm --gpus 8 --tp 8 --no-sequence-parallel --micro-batch 16 --seq 8192"
    assert run(line.split()) == 0
    shares = re.findall(r"nvlink-4 .* (\d+)%", capsys.readouterr().out)
    assert shares and all(50 < int(one) < 100 for one in shares)
    assert nvls_link_bytes(8.0, 8) == 9 < all_reduce_wire_bytes(8.0, 8)
    assert nvls_link_bytes(8.0, 2) > all_reduce_wire_bytes(8.0, 2)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("comm llama-7b --gpus 8 --compress powersgd-r99999", "compresses nothing: llama-7b has a hidden size of 4096"),
        ("comm --collective all_reduce --gpus 10000001 --bytes 8", "gpus 10,000,001 is out of range"),
        ("search llama-7b --gpus 8 --tp 1,,2", "'--tp 1,,2' names an empty value"),
        ("search llama-7b --gpus 8 --top 1001", "--top 1001 is too large\n  it must be at most 1000\n"),
        ("plan llama-7b --tokens 1B --cluster nebius-h100 --provider AWS", "whole nodes of nebius-h100 from AWS\n"),
        ("pipeline --stages 4 --micro 8 --sync", "--sync has no effect without an optimizer step"),
        ("pipeline --stages 4 --micro 8 --no-sync", "--no-sync has no effect without an optimizer step"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(line: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert problem in told(capsys, line, 2)


def test_a_list_changes_the_option_that_it_was_given_to_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for tp in ("--tp 1-2", "--tp=1-2"):
        line = f"step llama-7b --framework my-1-2 {tp}"
        assert f"distsim search llama-7b --framework my-1-2 {tp.replace('1-2', '1..2')}\n" in told(capsys, line, 2)


def test_rows_of_a_test_that_was_cut_off_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ("1048576 262144 float sum -1 60", "8388608 2097152 float sum -1 0.0", "67108864 16777216 float sum -1 400")
    lines = ["# all_reduce_perf", "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong"]
    log = tmp_path / "log.txt"
    log.write_text("\n".join([*lines, *(f"{row} 1 1 0 1 1 1 0" for row in rows)]) + "\n")
    err = told(capsys, f"calibrate --nccl-tests {log} --gpu h100-sxm --ranks 8", 0)
    assert "1 row is left out: no size or no time above zero; 2 are fitted" in err


@pytest.mark.parametrize(("seq", "cp", "said"), [(1048576, 16, True), (8192, 1, False)])
def test_an_mfu_that_no_hardware_has_is_explained(seq: int, cp: int, said: bool) -> None:
    report = distsim.step("llama-3.1-8b", gpu="h100-sxm", gpus=64, cp=cp, seq=seq)
    assert any(note.startswith("MFU is ") for note in report.notes) is said


def test_adapters_are_tuned_in_small_steps() -> None:
    """Four million tokens, as models are pretrained with, is not a step of LoRA; ranks divide what is taken."""
    grows = StepBatch(4096, adapted=True)
    assert [grows.sequences(gpus) for gpus in (1, 8, 64, 1024)] == [64, 64, 64, 1024]
    assert StepBatch(131_072, adapted=True).sequences(8) == 32  # never more than pretraining takes
    assert all(grows.sequences(gpus) % gpus == 0 for gpus in (6, 24, 100, 3000))
    searched = distsim.search("llama-3.1-8b", gpu="h100-sxm", gpus=8, lora_rank=16, seq=4096, top=1)
    assert searched.global_batch == ADAPTED_SEQUENCES
    planned = distsim.plan("llama-3.1-8b", gpu="h100-sxm", gpus=8, lora_rank=16, tokens=1e8)
    assert any(f"using {ADAPTED_SEQUENCES} sequences" in note for note in planned.notes)


@pytest.mark.parametrize(
    ("model", "attends"), [("mamba2-2.7b", False), ("falcon-mamba-7b", False), ("jamba-v0.1", True)]
)
def test_kernels_of_attention_are_told_of_models_that_attend(model: str, attends: bool) -> None:
    """A network of scans alone was told to have heads of its whole width."""
    for gpu in ("h100-sxm", "v100-sxm2-32gb"):
        notes = " ".join(distsim.step(model, gpu=gpu, gpus=8, zero=1, seq=2048).notes)
        assert "heads of width" not in notes
        assert ("today's flash attention" in notes) is (attends and gpu.startswith("v100"))
