"""Optimizers: AdamW and SGD over a gigaparameter in fp32 and in bf16, and the clipping of its gradients.

Run by ``python benchmarks/gpu/kernels.py OUT.csv --only optimizers``; needs torch and a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from timing import DTYPES, Row, seconds_of

COUNT, SIDE = 60, 4096
"""Tensors, and rows and columns of each."""


def optimizers() -> Iterator[Row]:
    """Updates of a gigaparameter in tensors of 16.8 million, and what stands around them."""
    for name in ("fp32", "bf16"):
        tensors = [torch.randn(SIDE, SIDE, device="cuda", dtype=DTYPES[name], requires_grad=True) for _ in range(COUNT)]
        for tensor in tensors:
            tensor.grad = torch.randn_like(tensor)
        count = float(sum(tensor.numel() for tensor in tensors))
        makers: dict[str, Callable[[], Any]] = {
            "adamw foreach": torch.optim.AdamW(tensors, foreach=True).step,
            "adamw fused": torch.optim.AdamW(tensors, fused=True).step,
            "sgd foreach": torch.optim.SGD(tensors, lr=1e-6).step,
            "clip_grad_norm": lambda t=tensors: torch.nn.utils.clip_grad_norm_(t, 1.0),
        }
        for what, run in makers.items():
            yield Row("optimizers", what, name, f"{COUNT}x{SIDE * SIDE}", "step", seconds_of(run, 0.2), count)
        del tensors, makers
        torch.cuda.empty_cache()
