"""Measure attention that XLA compiles on a GPU, composed of products and a softmax, and cuDNN's kernel beside it.

Run with ``python benchmarks/gpu/jax_attention.py OUT.csv``; needs jax with a GPU. Seconds of forward, and of forward
with backward, and the bytes that XLA says its kernels move.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

SHAPES = ((2, 2048, 32, 64), (16, 1024, 12, 64), (16, 512, 16, 64), (1, 4096, 32, 128))


def einsum(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Scores in fp32 through a masked softmax, as libraries write it by hand."""
    seq = q.shape[1]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((seq, seq), bool)), scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1).astype(q.dtype), v)


def by(implementation: str) -> Callable[..., jax.Array]:
    """jax's own function."""
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation)


def measured(run: Any, *inputs: jax.Array) -> tuple[float, float]:
    """Seconds, and bytes accessed by XLA's account."""
    compiled = jax.jit(run).lower(*inputs).compile()
    jax.block_until_ready(compiled(*inputs))
    begun = time.perf_counter()
    for _ in range(20):
        out = compiled(*inputs)
    jax.block_until_ready(out)
    return (time.perf_counter() - begun) / 20, float(compiled.cost_analysis()["bytes accessed"])


def measurements() -> Iterator[tuple[Any, ...]]:
    """Rows of all shapes by each way of attending."""
    for batch, seq, heads, width in SHAPES:
        keys = jax.random.split(jax.random.key(0), 3)
        inputs = [jax.random.normal(key, (batch, seq, heads, width), jnp.bfloat16) for key in keys]
        for how, attend in {"einsum": einsum, "xla": by("xla"), "cudnn": by("cudnn")}.items():
            both = jax.grad(lambda q, k, v, f=attend: f(q, k, v).astype(jnp.float32).sum(), argnums=(0, 1, 2))
            for way, run in {"forward": attend, "both": both}.items():
                yield how, batch, seq, heads, width, way, *measured(run, *inputs)


def main(out: str) -> None:
    """Measure all, into one CSV."""
    with open(out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("how", "batch", "seq", "heads", "width", "way", "seconds", "bytes"))
        for *cells, seconds, moved in measurements():
            writer.writerow((*cells, f"{seconds:.4e}", f"{moved:.4e}"))
            print(*cells, f"{seconds * 1e3:.3f} ms, {moved / 1e9:.2f} GB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
