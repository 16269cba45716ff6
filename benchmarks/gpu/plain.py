"""Networks written by hand in plain torch, in the manner of small training scripts: a GPT-2 and a Llama.

Trained by ``python benchmarks/gpu/steps.py FOLDER --only hand``; needs torch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Shape(NamedTuple):
    """Of a decoder; ``gated`` is Llama's kind of layer (RMSNorm, rotation, SwiGLU), else GPT-2's."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    gated: bool
    positions: int = 1024


PLAIN = {
    "gpt2 by hand": Shape(12, 768, 12, 12, 3072, 50304, False),
    "gpt2 by hand, odd vocabulary": Shape(12, 768, 12, 12, 3072, 50257, False),
    "gpt2-medium by hand": Shape(24, 1024, 16, 16, 4096, 50304, False),
    "llama-3-8b by hand, 6 layers": Shape(6, 4096, 32, 8, 14336, 128256, True),
    "llama-2-7b by hand, 8 layers": Shape(8, 4096, 32, 32, 11008, 32000, True),
    "llama-3.2-1b by hand": Shape(16, 2048, 32, 8, 8192, 128256, True),
}


class Layer(nn.Module):
    """Attention and MLP with residuals."""

    def __init__(self, shape: Shape, composed: bool) -> None:
        super().__init__()
        self.shape, self.composed, width = shape, composed, shape.hidden // shape.heads
        bias, norm = not shape.gated, nn.RMSNorm if shape.gated else nn.LayerNorm
        self.first, self.second = norm(shape.hidden), norm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, (shape.heads + 2 * shape.kv_heads) * width, bias=bias)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=bias)
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=bias)
        self.gate = nn.Linear(shape.hidden, shape.ffn, bias=False) if shape.gated else None
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=bias)

    def forward(self, x: Tensor, turn: Tensor | None) -> Tensor:
        """Hidden states after the layer; ``turn`` is Llama's rotation."""
        x = x + self.attend(self.first(x), turn)
        y = self.second(x)
        inner = F.silu(self.gate(y)) * self.up(y) if self.gate is not None else F.gelu(self.up(y))
        return x + self.down(inner)

    def attend(self, x: Tensor, turn: Tensor | None) -> Tensor:
        """Causal attention, by torch's own function or composed of products and a softmax."""
        s, (rows, seq, _) = self.shape, x.shape
        width = s.hidden // s.heads
        q, k, v = self.qkv(x).split([s.heads * width, s.kv_heads * width, s.kv_heads * width], dim=2)
        q, k, v = (one.view(rows, seq, -1, width) for one in (q, k, v))
        if turn is not None:
            q, k = rotated(q, turn), rotated(k, turn)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        if self.composed:
            scores = (q @ k.transpose(2, 3)) * width**-0.5
            mask = torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()
            y = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.kv_heads < s.heads)
        return self.out(y.transpose(1, 2).contiguous().view(rows, seq, -1))


def rotated(x: Tensor, turn: Tensor) -> Tensor:
    """Rotation as a product of complex numbers in fp32."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(3).type_as(x)


class Decoder(nn.Module):
    """Embedding, layers, output layer and loss of all tokens."""

    def __init__(self, shape: Shape, composed: bool) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.places = None if shape.gated else nn.Embedding(shape.positions, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, composed) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden) if shape.gated else nn.LayerNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if not shape.gated:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss."""
        x, turn, seq = self.tokens(tokens), None, tokens.shape[1]
        if self.places is not None:
            x = x + self.places(torch.arange(seq, device=tokens.device))
        else:
            width = self.shape.hidden // self.shape.heads
            angles = torch.outer(
                torch.arange(seq, device=tokens.device),
                5e5 ** (-torch.arange(0, width, 2, device=tokens.device).float() / width),
            )
            turn = torch.polar(torch.ones_like(angles), angles)[None, :, None, :]
        for layer in self.layers:
            x = layer(x, turn)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, self.shape.vocab), labels.view(-1))
