"""What Megatron FSDP exchanges in one step, recorded as benchmarks/megatron_core.py records all else.

Run: python benchmarks/megatron_fsdp.py tests/oracles/megatron_fsdp.json
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import megatron_core as recorded
import torch
from megatron.core.distributed.fsdp import mcore_fsdp_adapter as adapter
from megatron.core.distributed.fsdp.src.megatron_fsdp import megatron_fsdp, param_and_grad_buffer
from torch.distributed.device_mesh import DeviceMesh

STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
FULL = {"recompute": "full"}
CASES: list[dict[str, Any]] = [
    {"model": "dense", "job": {"gpus": 4, "zero": 2}},
    {"model": "dense", "job": {"gpus": 4, "zero": 2, "global_batch": 8}},
    {"model": "dense", "job": {"gpus": 4, "zero": 3}},
    {"model": "dense", "job": {"gpus": 4, "zero": 3, "global_batch": 12}},
    {"model": "dense", "job": {"gpus": 4, "zero": 3, "global_batch": 8, **FULL}},
    {"model": "dense", "job": {"gpus": 4, "zero": 3, "global_batch": 8, "precision": "bf16-fp32-grads"}},
    {"model": "tied", "job": {"gpus": 4, "zero": 3, "global_batch": 8}},
    {"model": "experts", "job": {"gpus": 4, "zero": 2, "ep": 2, "etp": 1}},
    {"model": "experts", "job": {"gpus": 4, "zero": 3, "ep": 2, "etp": 1, "global_batch": 8}},
    {"model": "experts", "job": {"gpus": 4, "zero": 3, "ep": 4, "etp": 1, "global_batch": 8}},
]


class OnCpu:
    """torch, of which every device is the CPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def device(*asked: Any) -> torch.device:
        """The CPU, whatever was asked for."""
        return torch.device("cpu")


def pretend() -> None:
    """Let Megatron FSDP build its meshes, of whose other ranks nothing is known, on the CPU."""
    plain = DeviceMesh.from_group
    DeviceMesh.from_group = staticmethod(lambda group, **kw: plain(group, **{**kw, "device_type": "cpu"}))
    for module in (adapter, megatron_fsdp, param_and_grad_buffer):
        module.torch = OnCpu()
    param_and_grad_buffer.validate_uneven_dtensor = lambda tensor: None
    adapter.TELinear = type("TELinear", (), {})


def calls_of(case: dict[str, Any]) -> list[list[Any]]:
    """The gathers and reductions of the second step, as operation, ranks, bytes and number."""
    run, calls = recorded.Run(case), recorded.Calls()
    rules = recorded.DistributedDataParallelConfig(
        use_megatron_fsdp=True, data_parallel_sharding_strategy=STRATEGIES[run.job["zero"]], overlap_grad_reduce=True,
        overlap_param_gather=True, use_distributed_optimizer=True,
        grad_reduce_in_fp32=run.job.get("precision") == "bf16-fp32-grads",
    )  # fmt: skip
    sharded = adapter.FullyShardedDataParallel(run.config, rules, run.chunks[0], device=torch.device("cpu"))
    with calls:
        for _ in range(2):
            calls.found.clear()
            sharded.zero_grad_buffer()
            for place in range(run.micro):
                sharded.module.is_last_microbatch = place == run.micro - 1
                run.forward(sharded).float().mean().backward()
            sharded.finish_grad_sync()
    kinds: dict[tuple[str, int, int], int] = {}
    for (op, _, ranks, size), times in calls.found.items():
        if op in ("all_gather", "reduce_scatter") and size > 10_000:
            kinds[op, ranks, size] = kinds.get((op, ranks, size), 0) + times
    return [[*key, times] for key, times in sorted(kinds.items())]


def main() -> None:
    """Write all recordings."""
    logging.disable(logging.WARNING)
    pretend()
    lines = [json.dumps({**case, "calls": calls_of(case)}) for case in CASES]
    with open(sys.argv[1], "w") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
