"""What a search takes from the job as it is: every option works for all layouts at once, with the numbers of step."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.step import step_of
from distsim.report.search import command
from distsim.specs.job import Job

OPTIONS: list[dict[str, Any]] = [
    {"attention": "eager"},
    {"attention": "eager", "framework": "torch-ddp"},
    {"attention": "eager", "model": "gpt2-large", "framework": "megatron-lm"},
    {"attention": "eager", "model": "gpt2-large", "framework": "deepspeed", "dropout": False},
    {"attention": "eager", "model": "bert-large", "framework": "huggingface", "seq": 512},
    {"compile": True, "framework": "torchtitan"},
    {"lora_rank": 8, "quantize": "nf4", "framework": "huggingface"},
    {"no_sync": True, "clip": True},
    {"no_sync": False, "clip": False, "framework": "deepspeed"},
    {"clip": True, "model": "electra-small", "framework": "torchtitan", "seq": 512},
    {"loss_parallel": False, "precision": "fp8", "framework": "megatron-bridge"},
    {"loss": "liger", "framework": "huggingface"},
    {"loss": "cut", "lora_rank": 8, "framework": "fsdp"},
    {"loss": "chunked", "framework": "torchtitan", "compile": True},
    {"cuda_graphs": "iteration"},
    {"expert_overlap": True, "cuda_graphs": "modules", "model": "qwen3-30b-a3b"},
    {"optimizer": "muon"},
    {"optimizer": "adafactor", "precision": "fp32"},
    {"mtp": 1, "model": "deepseek-v2-lite"},
    {"offload": "optimizer", "framework": "deepspeed"},
    {"capacity_factor": 1.5, "model": "deepseek-v2-lite"},
    {"expert_imbalance": 1.6, "model": "deepseek-v2-lite"},
    {"cp_mode": "all_to_all", "seq": 65536},
    {"cp_mode": "all_gather", "seq": 65536},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: ",".join(f"{name}={one[name]}" for name in one))
def test_the_best_layout_takes_the_time_that_step_tells(options: dict[str, Any]) -> None:
    job = Job(**{"model": "llama-3.2-1b", "gpu": "h100-sxm", "global_batch": 32, "seq": 1024, **options})
    bounds = parse_bounds({"micro_batch": "1,2", "recompute": "none,selective"}, [])
    report = search(Request(job, (8,), bounds, top=3))
    assert report.best
    for choice in report.best:
        again = step_of(choice.report.setup)
        assert choice.found.seconds == pytest.approx(again.seconds, rel=1e-9)
        assert again.memory.peak <= report.limit


def test_an_imbalance_counts_where_experts_are_spread() -> None:
    """One rank with all experts has no busiest one; its layouts are as fast as without, and their commands run."""
    seconds = {}
    for imbalance in (1.0, 2.0):
        job = Job(model="deepseek-v2-lite", gpu="h100-sxm", global_batch=64, seq=4096, expert_imbalance=imbalance)
        for ep in ("1", "8"):
            bounds = parse_bounds(
                {"micro_batch": "1", "recompute": "none,full", "ep": ep, "zero": "1,3", "pp": "1", "cp": "1"}, []
            )
            report = search(Request(job, (8,), bounds, top=1))
            best = report.best[0]
            assert any("--expert-imbalance has no effect" in note for note in report.notes) == (ep == "1")
            seconds[imbalance, ep] = best.found.seconds
            assert (best.report.setup.job.expert_imbalance is None) == (ep == "1")
            assert ("--expert-imbalance" in command(best)) == (ep == "8")
    assert seconds[1.0, "1"] == seconds[2.0, "1"]
    assert seconds[2.0, "8"] > 1.05 * seconds[1.0, "8"]


def test_experts_that_are_cut_gather_tokens_without_expert_parallelism() -> None:
    """Shown layouts, and their commands, had lost the dispatcher that the search timed."""
    job = Job(model="olmoe-1b-7b", gpu="b200-sxm", global_batch=16, seq=4096, expert_dispatcher="allgather")
    fixed = {"tp": "2", "pp": "1", "cp": "1", "ep": "1", "zero": "1", "micro_batch": "1", "recompute": "none"}
    for etp in ("1", "2"):
        report = search(Request(job, (4,), parse_bounds({**fixed, "etp": etp}, []), top=1))
        best = report.best[0]
        assert best.seconds == pytest.approx(best.found.seconds, rel=1e-9)
        assert ("--expert-dispatcher allgather" in command(best)) == (etp == "2")
        assert any("--expert-dispatcher has no effect" in note for note in report.notes) == (etp == "1")


def test_ranks_that_cannot_trade_heads_are_left_out() -> None:
    """12 heads: all-to-alls go to 4 ranks, or to 2 beside 2 tensor parallel ones; gathers to any."""
    for mode, degrees in (("all_to_all", {(1, 2), (1, 4), (2, 2)}), ("all_gather", {(1, 2), (1, 8), (2, 2), (2, 4)})):
        job = Job(model="gpt2", gpu="h100-sxm", global_batch=8, cp_mode=mode)
        bounds = parse_bounds({"cp": "2..8", "tp": "1,2", "pp": "1,2", "recompute": "none", "micro_batch": "1"}, [])
        report = search(Request(job, (8,), bounds, top=200, all_ranks=True))
        assert degrees <= {(one.report.setup.layout.tp, one.report.setup.layout.cp) for one in report.best}
        if mode == "all_to_all":
            assert all(12 // one.report.setup.layout.tp % one.report.setup.layout.cp == 0 for one in report.best)
