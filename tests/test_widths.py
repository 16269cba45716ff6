"""No line of any command is wider than a terminal of 80 columns, but for commands that are told to be copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import piped

WIDTH = 80
COPIED = ("Best: distsim ", "the step ")
"""Opens a line that is one command line, which would not paste if it were cut."""
MEMORY = (
    "llama-2-13b --gpus 8 --pp 8 --global-batch 8 --recompute full",  # temporaries of the optimizer at the peak
    "llama-7b --gpus 8 --zero 2 --micro-batch 16",
    "deepseek-v3 --gpus 64 --gpu h100-sxm --ep 8 --seq 4096",
    "llama-2-70b --gpu h100-sxm --gpus 24 --framework huggingface --offload optimizer --seq 8192",
    "llama-3-8b --gpus 8 --framework unsloth --lora-rank 16 --quantize nf4",
    "deepseek-v4-flash --gpus 64 --framework megatron-deepspeed",  # millions of GiB
)
STEP = (
    "llama-7b --gpu h100-sxm --gpus 16 --zero 3 --framework torchtitan --global-batch 32",
    "llama-2-70b --gpu h100-sxm --gpus 32 --tp 8 --pp 4 --global-batch 16",
    "bert-large --gpu a100-sxm4-80gb --gpus 8 --micro-batch 8 --framework mlperf-bert",
    "mixtral-8x7b --gpu h100-sxm --gpus 64 --ep 8 --tp 2 --pp 2 --vpp 4 --global-batch 256",
    "deepseek-v4-flash --gpus 8 --cp 2 --global-batch 1024",  # hundreds of days
    "recurrentgemma-9b --gpus 8 --lora-rank 16",  # 32 products side by side, a dozen targets
)
OTHERS = (
    "--help", "pipeline --stages 4 --micro 8 --schedule zb-v", "pipeline --model llama-7b --stages 8 --micro 16",
    "comm mixtral-8x7b --gpus 64 --ep 8 --explain", "comm llama-7b --gpus 16 --zero 3",
    "comm llama-7b --gpu h200-nvl --gpus 128",
    "comm --collective all_reduce --gpus 16 --bytes 1GiB", "search llama-7b --gpu h100-sxm --gpus 8 --tp 1 --pp 1",
    "show losses", "show gpu h100-sxm", "show framework huggingface", "show model llama-7b",
)  # fmt: skip
COMMANDS = [
    *(f"memory {job}{more}" for job in MEMORY for more in ("", " --explain", " --show-config")),
    *(f"step {job}{more}" for job in STEP for more in ("", " --explain", " --gantt")),
    *(f"{name} --help" for name in ("memory", "comm", "step", "search", "plan", "show", "validate", "calibrate")),
    *OTHERS,
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(command: str, tmp_path: Path) -> None:
    done = piped(*command.split(), folder=tmp_path, COLUMNS=str(WIDTH))
    assert done.returncode in (0, 1), done.stderr
    wide = [line for line in done.stdout.splitlines() if len(line) > WIDTH and not line.startswith(COPIED)]
    assert not wide


@pytest.mark.parametrize("width", [50, 64, 80])
def test_an_option_that_follows_from_others_says_so_below_itself(width: int, tmp_path: Path) -> None:
    done = piped("step", "bert-large", "--gpus", "8", "--show-config", folder=tmp_path, COLUMNS=str(width))
    told = " ".join(done.stdout.split())
    assert "expert_imbalance none 1.2 for step time with ep > 1, else 1" in told
    assert max(map(len, done.stdout.splitlines())) <= width
