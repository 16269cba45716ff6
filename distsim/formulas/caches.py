"""What a chip's last cache spares memory."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.formula import formula

CACHE_RATE = 2.5
"""Bandwidth of the last cache over that of memory, on an A100 (5.1 against 2.0 TB/s; recalled)."""
CACHE_KEPT, CACHED_SHARE = 0.65, 0.55
"""Part of the last cache that keeps what kernels write, and time of a kernel whose input all lies there. A chain of
kernels over eight tensors in turn on an H100 (50 MiB, in halves) moves 5.6 TB/s with tensors of 4 and 8 MiB, 4.7 with
16, 2.9 with 32 and 3.0 with 128 (tests/oracles/gpu_kernels.csv less 1.15 us a kernel)."""
SOFTMAX_ROWS = 2
"""Rows that each unit of a chip works on at once in torch's log-softmax over a wide row: a block of 1,024 threads each
(pytorch/pytorch aten/src/ATen/native/cuda/SoftMax.cu)."""


@formula(
    unit="1", source="what was written last is found in a cache that holds the rest of it and what is being written"
)
def cached_share(size_bytes: Number, cache_bytes: Number) -> Number:
    """Time of traffic over tensors of a size, half of it read, over what it takes at the bandwidth of memory, where the
    kernel before has just written what is read: all of it is still there while twice its size fits, none of it once it
    fits no more itself."""
    half = maximum(size_bytes / 2, 1.0)
    found = minimum(maximum(CACHE_KEPT * cache_bytes / half - 1, 0.0), 1.0)
    return 1 - found * (1 - CACHED_SHARE)


@formula(
    unit="1",
    source="rows in flight against the last cache; pytorch/pytorch aten/src/ATen/native/cuda/SoftMax.cu reads a row "
    "for its largest, for its sum and for its result",
)
def reread_share(row_bytes: Number, units: Number, cache_bytes: Number) -> Number:
    """Time of reading a row again soon after, over that of reading it from memory: what of the rows in flight fits the
    last cache is found there."""
    found = minimum(1.0, cache_bytes / maximum(SOFTMAX_ROWS * units * row_bytes, 1.0))
    return 1 - found * (1 - 1 / CACHE_RATE)
