"""Matrix products: of linear layers in each format, odd widths, heads, experts, and 8 bits.

Run by ``python benchmarks/gpu/kernels.py OUT.csv --only products`` (or ``formats``, ``aligned``, ``batched``,
``grouped``, ``narrow``); needs torch and a GPU, one that multiplies in FP8 for ``narrow``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from timing import DTYPES, Row, seconds_of

SHAPES = [  # outputs, inputs of a linear layer
    (1024, 1024), (3072, 1024), (4096, 1024), (1024, 4096), (2048, 2048), (8192, 2048), (2048, 8192), (4096, 4096),
    (6144, 4096), (14336, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (128256, 2048), (128256, 4096),
    (50257, 768), (50304, 768), (32000, 4096), (896, 896), (4864, 896), (151936, 896), (1600, 1600), (6400, 1600),
]  # fmt: skip
HEADS = [  # rows, heads, tokens, width of a head
    (16, 12, 1024, 64), (4, 32, 2048, 64), (2, 32, 2048, 128), (16, 16, 512, 64), (64, 16, 128, 64), (64, 16, 197, 64),
]  # fmt: skip
EXPERTS = [  # experts, tokens of all, outputs, inputs
    (8, 16384, 14336, 4096), (8, 16384, 4096, 14336), (64, 65536, 1024, 2048), (64, 65536, 2048, 1024),
    (64, 16384, 1024, 2048), (128, 65536, 768, 2048),
]  # fmt: skip
NARROW = [  # tokens, outputs, inputs
    (8192, 4096, 4096), (8192, 14336, 4096), (8192, 4096, 14336), (8192, 8192, 8192), (16384, 28672, 8192),
]  # fmt: skip


def linear(formats: list[str], tokens: list[int], shapes: list[tuple[int, int]]) -> Iterator[Row]:
    """The three products of a linear layer: ``x w'``, ``g w``, ``g' x``."""
    for name in formats:
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        for rows in tokens:
            for wide, deep in shapes:
                if rows * wide > 2**31:
                    continue
                x, w = (torch.randn(size, deep, device="cuda", dtype=DTYPES[name]) for size in (rows, wide))
                g = torch.randn(rows, wide, device="cuda", dtype=DTYPES[name])
                flops, shape = 2.0 * rows * wide * deep, f"{rows}x{wide}x{deep}"
                ways = {"forward": lambda x=x, w=w: x @ w.t(), "input": lambda g=g, w=w: g @ w}
                ways["weight"] = lambda x=x, g=g: g.t() @ x
                for way, run in ways.items():
                    yield Row("products", "linear", name, shape, way, seconds_of(run), flops)
    torch.backends.cuda.matmul.allow_tf32 = False


def products() -> Iterator[Row]:
    """All shapes in bf16, with few and with many tokens."""
    return linear(["bf16"], [512, 2048, 8192], SHAPES)


def formats() -> Iterator[Row]:
    """The shapes of hidden layers and of GPT-2's vocabulary in the other formats."""
    return linear(["tf32", "fp32", "fp16"], [2048, 8192], [*SHAPES[2:12], (50257, 768), (50304, 768)])


def aligned() -> Iterator[Row]:
    """Products whose rows start at whole 16, 8, 4 or 2 bytes."""
    for wide in (50304, 50264, 50260, 50258, 50257, 30522):
        yield from linear(["bf16", "tf32"], [8192], [(wide, 768), (wide, 4096)])
    for deep in (1032, 1028, 1026, 1025):
        yield from linear(["bf16", "tf32"], [8192], [(4096, deep)])


def batched() -> Iterator[Row]:
    """Products of composed attention, by heads."""
    for name in ("bf16", "tf32", "fp32"):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        for batch, heads, seq, wide in HEADS:
            q, k = (torch.randn(batch, heads, seq, wide, device="cuda", dtype=DTYPES[name]) for _ in range(2))
            p = torch.randn(batch, heads, seq, seq, device="cuda", dtype=DTYPES[name])
            flops, shape = 2.0 * batch * heads * seq * seq * wide, f"{batch}x{heads}x{seq}x{wide}"
            ways = {"scores": lambda q=q, k=k: q @ k.transpose(2, 3), "values": lambda p=p, k=k: p @ k}
            ways["turned"] = lambda p=p, k=k: p.transpose(2, 3) @ k
            for way, run in ways.items():
                yield Row("batched", "heads", name, shape, way, seconds_of(run), flops)
    torch.backends.cuda.matmul.allow_tf32 = False


def grouped() -> Iterator[Row]:
    """Products of experts: torch's grouped kernel, and one plain product after another."""
    for experts, tokens, wide, deep in EXPERTS:
        x = torch.randn(tokens, deep, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(experts, wide, deep, device="cuda", dtype=torch.bfloat16)
        g = torch.randn(tokens, wide, device="cuda", dtype=torch.bfloat16)
        each = tokens // experts
        ends = torch.arange(each, tokens + 1, each, device="cuda", dtype=torch.int32)
        flops, shape = 2.0 * tokens * wide * deep, f"{experts}: {tokens}x{wide}x{deep}"
        ways = {
            "forward": lambda x=x, w=w, e=ends: torch._grouped_mm(x, w.transpose(1, 2), offs=e),
            "input": lambda g=g, w=w, e=ends: torch._grouped_mm(g, w, offs=e),
            "weight": lambda g=g, x=x, e=ends: torch._grouped_mm(g.t(), x, offs=e),
            "loop": lambda x=x, w=w, n=each: [x[i * n : i * n + n] @ w[i].t() for i in range(w.shape[0])],
        }
        for way, run in ways.items():
            try:
                yield Row("grouped", "experts", "bf16", shape, way, seconds_of(run), flops)
            except RuntimeError as error:
                print("grouped", shape, way, str(error)[:100])


def narrow() -> Iterator[Row]:
    """Products in 8 bits: a scale per tensor, with and without exact accumulation, and a scale per row."""
    one, out = torch.ones((), device="cuda"), torch.bfloat16
    for rows, wide, deep in NARROW:
        x = torch.randn(rows, deep, device="cuda").to(torch.float8_e4m3fn)
        w = torch.randn(wide, deep, device="cuda").to(torch.float8_e4m3fn)
        r, c = torch.ones(rows, 1, device="cuda"), torch.ones(1, wide, device="cuda")
        flops, shape = 2.0 * rows * wide * deep, f"{rows}x{wide}x{deep}"
        ways = {
            "tensor fast": lambda x=x, w=w: torch._scaled_mm(x, w.t(), one, one, out_dtype=out, use_fast_accum=True),
            "tensor exact": lambda x=x, w=w: torch._scaled_mm(x, w.t(), one, one, out_dtype=out),
            "row fast": lambda x=x, w=w, r=r, c=c: torch._scaled_mm(x, w.t(), r, c, out_dtype=out, use_fast_accum=True),
        }
        for way, run in ways.items():
            yield Row("narrow", "linear", "fp8", shape, way, seconds_of(run), flops)
