"""Chains of small kernels: what caches give by size of tensor, and what passes between kernels in a queue or a graph.

Run by ``python benchmarks/gpu/kernels.py OUT.csv --only sizes --only gaps``; needs torch and a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from timing import DTYPES, Row, seconds_of

RING, LINKS, GAPS = 8, 64, 400
"""Tensors of a ring; kernels of a chain around it; kernels of a chain that fills the queue."""
WAIT_CYCLES = 60_000_000
"""Cycles that the GPU sleeps while the host issues such a chain."""


def around(ring: list[torch.Tensor]) -> None:
    """Each kernel reads what the one before wrote."""
    for place in range(LINKS):
        torch.mul(ring[place % RING], 0.999, out=ring[(place + 1) % RING])


def sizes() -> Iterator[Row]:
    """A chain of elementwise kernels over eight tensors of a size, in a CUDA graph."""
    for name in ("bf16", "fp32"):
        for elements in (2**17, 2**18, 2**19, 2**20, 2**21, 2**22, 2**23, 2**24, 2**26):
            ring = [torch.randn(elements, device="cuda", dtype=DTYPES[name]) for _ in range(RING)]
            graph = torch.cuda.CUDAGraph()
            around(ring)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                around(ring)
            each = seconds_of(graph.replay) / LINKS
            yield Row("sizes", "scale in a chain", name, str(elements), "forward", each, elements)


def repeatedly(x: torch.Tensor, y: torch.Tensor) -> None:
    """The same kernel again and again."""
    for _ in range(GAPS):
        torch.mul(x, 0.999, out=y)


def queued_seconds(x: torch.Tensor, y: torch.Tensor) -> float:
    """Of one kernel among those that wait in the queue, so that the host does not count."""
    repeatedly(x, y)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(WAIT_CYCLES)
    start.record()
    repeatedly(x, y)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / GAPS


def gaps() -> Iterator[Row]:
    """Kernels that wait in the queue: each alone, and in a CUDA graph."""
    for elements in (2**10, 2**20, 2**22, 2**24):
        x = torch.randn(elements, device="cuda", dtype=torch.bfloat16)
        y = torch.empty_like(x)
        yield Row("gaps", "queued", "bf16", str(elements), "forward", queued_seconds(x, y), elements)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            repeatedly(x, y)
        yield Row("gaps", "graph", "bf16", str(elements), "forward", seconds_of(graph.replay) / GAPS, elements)
