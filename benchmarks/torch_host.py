"""CPU seconds of a module's forward and backward: what its host costs where tensors are tiny."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn


def least_seconds(module: nn.Module, given: Callable[[], torch.Tensor], calls: int, warm: int) -> tuple[float, float]:
    """Forward and backward of one call: the least of ``calls`` after ``warm`` more. ``given`` makes an input."""
    forward, backward = [], []
    for _ in range(warm + calls):
        values = given()
        start = time.process_time()
        out = module(values)
        forward.append(time.process_time() - start)
        total = (out.to_local() if hasattr(out, "to_local") else out).sum()
        start = time.process_time()
        total.backward()
        backward.append(time.process_time() - start)
    return min(forward[warm:]), min(backward[warm:])
