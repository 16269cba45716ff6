"""Seconds of kernels on the GPU, and the row that each measurement becomes: what the groups of ``kernels.py`` share.

Run by ``python benchmarks/gpu/kernels.py OUT.csv``; needs torch and a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}


class Row(NamedTuple):
    """One measurement; ``work`` is FLOPs of products and attention, elements of anything else."""

    group: str
    what: str
    format: str
    shape: str
    way: str
    seconds: float
    work: float


def seconds_of(run: Callable[[], Any], least: float = 0.06) -> float:
    """Mean seconds of one call among many that are issued one after another, after half as many to warm up."""
    run()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    torch.cuda.synchronize()
    once = max(1e-6, time.perf_counter() - begun)
    times = max(3, min(2000, int(least / once)))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(times // 2 + 1):
        run()
    start.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / times


def kernel_seconds(run: Callable[[], Any], times: int = 4) -> float:
    """Seconds of the kernels of one call, by torch's profiler: issuing them may take the host longer."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(times):
            run()
        torch.cuda.synchronize()
    return sum(row.device_time_total for row in found.key_averages()) / 1e6 / times


def both_ways(make: Callable[[], torch.Tensor], inputs: list[torch.Tensor]) -> tuple[float, float]:
    """Seconds of the kernels of forward and of backward."""
    gradient = torch.randn_like(make())
    forward = kernel_seconds(make)
    return forward, kernel_seconds(lambda: torch.autograd.grad(make(), inputs, gradient)) - forward


def both_rows(cells: tuple[str, str, str, str], seconds: tuple[float, float], work: float, factor: float) -> list[Row]:
    """Rows of forward and of backward, which does ``factor`` times the work."""
    forward, backward = seconds
    return [Row(*cells, "forward", forward, work), Row(*cells, "backward", backward, work * factor)]
