"""How context parallel ranks of measured runs exchange: the column, other cells, notes, and what is usual."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.interop.runs import Run

ROW = {"id": "a", "model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": 32, "seq_len": 65536, "tp": 1, "pp": 1, "cp": 8,
       "micro_batch": 1, "global_batch": 4, "framework": "megatron-core", "recompute": "full",
       "attention": "flash"}  # fmt: skip


def _replay(**cells: Any) -> Replay:
    found = replay(Run({name: str(value) for name, value in {**ROW, **cells}.items()}, 2))
    assert found.setup is not None, found.reason
    return found


def _mode(**cells: Any) -> str:
    setup = _replay(**cells).setup
    assert setup is not None
    return setup.layout.cp_mode


@pytest.mark.parametrize(
    ("cells", "mode"),
    [
        ({}, "ring"), ({"cp_mode": "Ulysses"}, "all_to_all"), ({"cp_mode": "a2a"}, "all_to_all"),
        ({"cp_mode": "isp"}, "all_to_all"), ({"cp_mode": "all_to_all"}, "all_to_all"),
        ({"cp_mode": "all-gather"}, "all_gather"), ({"cp_mode": "p2p"}, "ring"),
        ({"attention": "flash, ulysses"}, "all_to_all"), ({"framework": "megatron-core (Ulysses)"}, "all_to_all"),
        ({"notes": "DeepSpeed-Ulysses over 8 GPUs"}, "all_to_all"), ({"notes": "--cp-comm-type a2a"}, "all_to_all"),
        ({"notes": "context parallelism by all-gather"}, "all_gather"),
        ({"notes": "all-to-all dispatcher; CP overlaps all-gather of parameters; warming up"}, "ring"),
        ({"notes": "no Ulysses, all gathers overlapped"}, "ring"), ({"notes": "ring attention and Ulysses"}, "ring"),
        ({"framework": "deepspeed", "zero_stage": 3}, "all_to_all"), ({"framework": "torchtitan"}, "all_gather"),
        ({"framework": "deepspeed", "zero_stage": 3, "notes": "ring attention"}, "ring"),
        ({"framework": "torchtitan", "notes": "ring context parallelism of 4"}, "ring"),
        ({"notes": "all-gather context parallelism"}, "all_gather"), ({"notes": "no ring context parallelism"}, "ring"),
        ({"framework": "megatron-deepspeed", "cp_mode": "ring"}, "ring"),
    ],
    ids=str,
)  # fmt: skip
def test_words_of_context_parallelism(cells: dict[str, Any], mode: str) -> None:
    assert _mode(**cells) == mode


def test_ways_that_cannot_be_are_told() -> None:
    found = _replay(cp_mode="a2a+p2p")
    assert found.assumed == "cp_mode 'a2a+p2p' is not one of ring, all_to_all, all_gather: assumed ring"
    odd = {"model": "gpt2-xl", "seq_len": 1024}  # 25 heads
    assert (
        _replay(**odd, cp_mode="ulysses").assumed == "all_to_all over 8 ranks does not divide the heads: assumed ring"
    )
    assert _mode(**odd, framework="deepspeed", zero_stage=3) == "ring"


def test_nothing_is_exchanged_without_ranks() -> None:
    found = _replay(cp=1, global_batch=32, cp_mode="ulysses", seq_len=4096)
    assert not found.assumed and found.setup is not None and found.setup.job.cp_mode is None
    assert _replay(cp=1, global_batch=32, framework="deepspeed", seq_len=4096).setup is not None


def test_heads_for_tokens_take_another_time() -> None:
    ring, heads = (_replay(cp=8, cp_mode=mode, gpus_per_node=4).predicted_seconds for mode in ("ring", "ulysses"))
    assert ring and heads and ring != heads
