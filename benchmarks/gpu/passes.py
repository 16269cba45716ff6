"""What moves bytes: norms, activations, dropout, casts, rotation, embeddings, softmax and losses, eager and compiled.

Run by ``python benchmarks/gpu/kernels.py OUT.csv --only passes --only compiled``; needs torch and a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from timing import DTYPES, Row, both_rows, both_ways

WORDS = 128256
"""Rows of the embedding's table."""
SCORES = ((4, 32, 2048), (16, 16, 512), (64, 16, 128), (64, 16, 197))
LOGITS = ((8192, 32000), (8192, 50257), (8192, 128256), (4096, 151936))
COMPILED = {
    "rms_norm composed", "layer_norm", "silu x up", "gelu new", "rotation", "cross_entropy widened", "softmax fp32",
}  # fmt: skip


class Pass(NamedTuple):
    """A function of inputs that want gradients, and of others that do not."""

    what: str
    shape: str
    function: Callable[..., torch.Tensor]
    inputs: list[torch.Tensor]
    others: tuple[torch.Tensor, ...] = ()

    def seconds(self, function: Callable[..., torch.Tensor]) -> tuple[float, float]:
        """Of the kernels of forward and of backward, by ``function``."""
        return both_ways(lambda: function(*self.inputs, *self.others), self.inputs)

    @property
    def elements(self) -> float:
        """Of the first input; of an embedding, those that are looked up."""
        if self.what == "embedding":
            return float(self.inputs[0].shape[1] * self.others[0].numel())
        return float(self.inputs[0].numel())


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """As transformers has it."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return w * y.to(x.dtype)


def gelu_new(x: torch.Tensor) -> torch.Tensor:
    """GPT-2's, composed as transformers has it."""
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotation by halves, as transformers has it."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def repeated(kv: torch.Tensor) -> torch.Tensor:
    """Keys or values four times, for four heads of queries each."""
    rows, heads, seq, wide = kv.shape
    return kv[:, :, None].expand(rows, heads, 4, seq, wide).reshape(rows, 4 * heads, seq, wide)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As transformers has it: logits widened, one loss over all tokens."""
    return F.cross_entropy(logits.float(), labels)


def hidden_cases(rows: int, wide: int, dtype: torch.dtype) -> Iterator[Pass]:
    """What reads hidden states, ``wide`` of each of ``rows`` tokens."""

    def new(*shape: int, grad: bool = True) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)

    x, y, w, b = new(rows, wide), new(rows, wide), new(wide), new(wide)
    shape, heads, seq = f"{rows}x{wide}", wide // 64, rows // 4
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32
    yield Pass("rms_norm composed", shape, rms_norm, [x, w])
    yield Pass("rms_norm torch", shape, lambda x, w: F.rms_norm(x, (wide,), w, 1e-6), [x, w])
    yield Pass("layer_norm", shape, lambda x, w, b: F.layer_norm(x, (wide,), w, b), [x, w, b])
    yield Pass("silu x up", shape, lambda x, y: F.silu(x) * y, [x, y])
    yield Pass("gelu erf", shape, F.gelu, [x])
    yield Pass("gelu tanh", shape, lambda x: F.gelu(x, approximate="tanh"), [x])
    yield Pass("gelu new", shape, gelu_new, [x])
    yield Pass("dropout", shape, lambda x: F.dropout(x, 0.1), [x])
    yield Pass("add", shape, lambda x, y: x + y, [x, y])
    yield Pass("bias", shape, lambda x, b: x + b, [x, b])
    yield Pass("cast", shape, lambda x: x.to(other), [x])
    yield Pass("transpose", shape, lambda x: x.view(rows // 1024, 1024, heads, 64).transpose(1, 2).contiguous(), [x])
    q, turn = new(4, heads, seq, 64), (new(4, 1, seq, 64, grad=False), new(4, 1, seq, 64, grad=False))
    yield Pass("rotation", f"4x{heads}x{seq}x64", rotated, [q], turn)
    yield Pass("repeat_kv x4", f"4x8x{seq}x64", repeated, [new(4, 8, seq, 64)])
    table, tokens = new(WORDS, wide), torch.randint(WORDS, (rows,), device="cuda")
    yield Pass("embedding", shape, lambda table, tokens: F.embedding(tokens, table), [table], (tokens,))


def score_cases(dtype: torch.dtype) -> Iterator[Pass]:
    """What reads scores of attention, and logits."""
    for batch, heads, seq in SCORES:
        shape = f"{batch}x{heads}x{seq}x{seq}"
        p = torch.randn(batch, heads, seq, seq, device="cuda", dtype=dtype, requires_grad=True)
        mask = torch.zeros(batch, 1, seq, seq, device="cuda", dtype=dtype)
        yield Pass("softmax", shape, lambda p: torch.softmax(p, -1), [p])
        yield Pass("softmax fp32", shape, lambda p: torch.softmax(p, -1, dtype=torch.float32).to(dtype), [p])
        yield Pass("scores masked", shape, lambda p, mask: p + mask, [p], (mask,))
        yield Pass("scores scaled", shape, lambda p: p * 0.125, [p])
        yield Pass("scores dropout", shape, lambda p: F.dropout(p, 0.1), [p])
        del p, mask
    for tokens, words in LOGITS:
        shape = f"{tokens}x{words}"
        logits = torch.randn(tokens, words, device="cuda", dtype=dtype, requires_grad=True)
        labels = torch.randint(words, (tokens,), device="cuda")
        yield Pass("cross_entropy widened", shape, cross_entropy, [logits], (labels,))
        yield Pass(
            "cross_entropy as is", shape, lambda logits, labels: F.cross_entropy(logits, labels), [logits], (labels,)
        )
        del logits


def passes() -> Iterator[Row]:
    """All of them, eager."""
    for name in ("bf16", "fp32"):
        dtype = DTYPES[name]
        for cases in (hidden_cases(16384, 4096, dtype), hidden_cases(8192, 1024, dtype), score_cases(dtype)):
            for one in cases:
                cells = ("passes", one.what, name, one.shape)
                yield from both_rows(cells, one.seconds(one.function), one.elements, 1.0)


def compiled() -> Iterator[Row]:
    """Those of which torch.compile makes one kernel instead of several."""
    for cases in (hidden_cases(16384, 4096, torch.bfloat16), score_cases(torch.bfloat16)):
        for one in cases:
            if one.what not in COMPILED or one.shape.startswith(("16x", "64x")):
                continue
            torch._dynamo.reset()
            cells = ("compiled", one.what, "bf16", one.shape)
            yield from both_rows(cells, one.seconds(torch.compile(one.function)), one.elements, 1.0)
