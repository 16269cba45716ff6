"""What a search takes from the job as it is: every option works for all layouts at once, with the numbers of step."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.search import Request, search
from distsim.engine.step import step_of
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
