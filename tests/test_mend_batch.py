"""What is proposed where a job does not fit: typed as shown it gives the figures shown, with the job's global batch or
with another one that is told."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from tests.shell import piped

JOBS = (
    "deepseek-v3 --gpus 64 --gpu h100-sxm --ep 8 --seq 4096",
    "llama-2-70b --gpus 8 --gpu h100-sxm --zero 3 --seq 4096",
    "llama-2-70b --gpus 1 --gpu h100-sxm",
    "llama-2-70b --gpus 8 --gpu h100-sxm --tp 8 --global-batch 32",
    "llama-2-70b --gpus 16 --tp 4 --pp 2 --micro-batch 4",
    "llama-7b --gpus 8 --zero 2 --micro-batch 16",
    "mixtral-8x7b --gpus 24 --gpu h100-sxm --framework fsdp --seq 8192",
)


@functools.cache
def proposed(words: str) -> Any:
    """What a job's memory is and what would mend it, asked once."""
    return json.loads(piped("memory", *words.split(), "--json").stdout)


OTHER = "where --global-batch says otherwise, the ranks cannot share them equally"


@pytest.mark.parametrize("words", JOBS)
def test_every_remedy_is_what_its_options_give(words: str) -> None:
    told = proposed(words)
    batch = told["job"]["global_batch"]
    assert told["mends"]
    for one in told["mends"]:
        typed = [*words.split(), *one["flags"].split()]
        again = json.loads(piped("memory", *typed, "--json").stdout)
        assert again["peak"] == one["peak"] and again["fits"] and again["job"]["gpus"] == one["gpus"]
        assert again["job"]["global_batch"] == one["global_batch"]
        if one["global_batch"] != batch:  # named, and with the job's own it is no layout
            assert f"--global-batch {one['global_batch']}" in one["flags"]
            assert f"{one['global_batch']:,} instead of {batch:,} sequences per step" in one["words"]
            assert piped("memory", *typed, "--global-batch", str(batch)).returncode == 2


@pytest.mark.parametrize("command", ["memory", "step"])
@pytest.mark.parametrize("width", ["80", "200"])
def test_another_batch_is_told_below_the_table(command: str, width: str) -> None:
    """Columns of words are dropped where they are too wide."""
    changed = piped(command, *JOBS[0].split(), COLUMNS=width).stdout
    assert f"The job has 64 sequences per step; {OTHER}" in " ".join(changed.split())
    kept = piped(command, *JOBS[3].split(), COLUMNS=width).stdout
    assert "What makes it fit" in kept and "sequences per step;" not in kept


def test_more_stages_keep_the_batch_that_fills_them() -> None:
    """32 stages on 256 GPUs had been proposed with the one micro-batch of their eight ranks: 5 to 6 GiB less."""
    told = proposed(JOBS[0])
    piped_ones = [one for one in told["mends"] if "--pp 32" in one["flags"]]
    assert piped_ones and all("--global-batch 64" in one["flags"] for one in piped_ones)
    assert [round(one["peak"] / 2**30, 2) for one in piped_ones] == [75.09]
