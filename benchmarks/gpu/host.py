"""What issuing an operation costs the host: additions, linear layers, norms, autocast, and backward.

Run by ``python benchmarks/gpu/kernels.py OUT.csv --only host``; needs torch and a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from timing import Row

DEPTH = 100
"""Linear layers in a chain."""


def issue_seconds(run: Callable[[], Any], times: int = 300) -> float:
    """Mean seconds until a call returns, with nothing waited for."""
    run()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        run()
    seconds = (time.perf_counter() - begun) / times
    torch.cuda.synchronize()
    return seconds


def autocast(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """One module under autocast, its weight cast anew."""
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return module(x)


def host() -> Iterator[Row]:
    """Operations on tensors that cost the GPU nothing; means of many."""
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    plain = x.detach()
    linear, norm = torch.nn.Linear(64, 64, device="cuda"), torch.nn.LayerNorm(64, device="cuda")

    def chain() -> torch.Tensor:
        y = x
        for _ in range(DEPTH):
            y = linear(y)
        return y.sum()

    def row(what: str, way: str, seconds: float) -> Row:
        return Row("host", what, "fp32", "8x64", way, seconds, 1)

    yield row("add without gradient", "forward", issue_seconds(lambda: plain + plain))
    yield row("add", "forward", issue_seconds(lambda: x + x))
    yield row("linear", "forward", issue_seconds(lambda: linear(x)))
    yield row("layer_norm", "forward", issue_seconds(lambda: norm(x)))
    yield row("matmul under autocast", "forward", issue_seconds(lambda: autocast(linear, x)))
    forward, whole = issue_seconds(chain, 10), issue_seconds(lambda: chain().backward(), 10)
    yield row("linear in a chain", "forward", forward / DEPTH)
    yield row("linear in a chain", "backward", (whole - forward) / DEPTH)
