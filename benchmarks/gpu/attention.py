"""Attention by each kernel of ``scaled_dot_product_attention``: causal, dense, grouped heads, and beside a mask.

Run by ``python benchmarks/gpu/kernels.py OUT.csv --only attention --only masked``; needs torch and a GPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from timing import Row, both_rows, both_ways
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKWARD = 2.5
"""FLOPs of backward over those of forward: five products, one of them computed again, beside two."""
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
SHAPES = [  # rows, heads, heads of keys and values, tokens, width of a head
    *((16384 // seq, 32, 32, seq, 128) for seq in (512, 1024, 2048, 4096, 8192, 16384)),
    *((16384 // seq, 32, 32, seq, 64) for seq in (128, 512, 1024, 2048, 4096, 16384)),
    (4, 32, 8, 4096, 128), (64, 16, 16, 197, 64), (2, 8, 8, 4096, 256),
]  # fmt: skip
MASKED = ((4, 32, 2048, 64), (2, 32, 4096, 128), (16, 12, 1024, 64), (1, 32, 8192, 128))


def heads_of(batch: int, heads: int, seq: int, wide: int) -> torch.Tensor:
    """Random queries, keys or values that want a gradient."""
    return torch.randn(batch, heads, seq, wide, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def by_kernel(
    kernel: SDPBackend | None, attend: Callable[..., torch.Tensor], inputs: list[torch.Tensor], *words: object
) -> tuple[float, float] | None:
    """Seconds of both ways by one kernel, or by that which torch takes; a line with ``words`` where it refuses."""
    try:
        with sdpa_kernel(kernel) if kernel else contextlib.nullcontext():
            return both_ways(lambda: attend(*inputs), inputs)
    except RuntimeError as error:
        print(*words, str(error)[:80])
        return None


def attention() -> Iterator[Row]:
    """Each kernel without a mask; FLOPs of dense attention, half of them where causal."""
    for batch, heads, groups, seq, wide in SHAPES:
        for causal in (True, False):
            q, k, v = (heads_of(batch, count, seq, wide) for count in (heads, groups, groups))
            flops = 4.0 * batch * heads * seq * seq * wide * (0.5 if causal else 1.0)
            shape = f"{batch}x{heads}/{groups}x{seq}x{wide}{' causal' if causal else ''}"
            attend = functools.partial(F.scaled_dot_product_attention, is_causal=causal, enable_gqa=heads != groups)
            for name, kernel in KERNELS.items():
                seconds = by_kernel(kernel, attend, [q, k, v], name, batch, heads, seq, wide)
                if seconds:
                    yield from both_rows(("attention", name, "bf16", shape), seconds, flops, BACKWARD)


def masked() -> Iterator[Row]:
    """Beside a dense mask, by the kernel that torch takes and by the others; FLOPs of dense attention."""
    for batch, heads, seq, wide in MASKED:
        q, k, v = (heads_of(batch, heads, seq, wide) for _ in range(3))
        mask = torch.ones(seq, seq, dtype=torch.bool, device="cuda").tril()[None, None].expand(batch, 1, seq, seq)
        flops, shape = 4.0 * batch * heads * seq * seq * wide, f"{batch}x{heads}x{seq}x{wide}"
        attend = functools.partial(F.scaled_dot_product_attention, attn_mask=mask)
        for name, kernel in {"taken": None, "cudnn": KERNELS["cudnn"], "efficient": KERNELS["efficient"]}.items():
            seconds = by_kernel(kernel, attend, [q, k, v], "masked", name)
            if seconds:
                yield from both_rows(("masked", name, "bf16", shape), seconds, flops, BACKWARD)
