"""Measure training steps of a decoder written in JAX, in the manner of MaxText: layers in a scan, remat, optax's AdamW.

Run with ``python benchmarks/gpu/jax_steps.py OUT.csv [--gpu PRESET] [--case NUMBER]``; needs jax with a GPU, and optax.
Rows are in the columns that ``distsim validate`` reads (docs/runs.md).
"""

from __future__ import annotations

import argparse
import csv
import datetime
import functools
import subprocess
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

WARM_STEPS, TIMED_STEPS = 3, 10
RECOMPUTE = {"none": "none", "full": "full", "dots": "other:minimal"}
"""What MaxText calls the ways of ``Case.remat``."""
TOLD = ("model", "seq_len", "micro_batch", "recompute", "attention", "step_time_s", "mem_peak_gb_per_gpu")
"""Cells that are printed."""


class Case(NamedTuple):
    """A job: shape, batch, attention's kernel and what the scan keeps of a layer."""

    model: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    batch: int
    attention: str = "cudnn"
    remat: str = "none"


CASES = [
    Case("llama-3.2-1b untied", 16, 2048, 32, 8, 8192, 128256, 2048, 4),
    Case("llama-3.2-1b untied", 16, 2048, 32, 8, 8192, 128256, 2048, 4, remat="full"),
    Case("llama-3.2-1b untied", 16, 2048, 32, 8, 8192, 128256, 2048, 2, attention="xla"),
    Case("llama-2-7b, 8 layers", 8, 4096, 32, 32, 11008, 32000, 4096, 2),
    Case("llama-2-7b, 8 layers", 8, 4096, 32, 32, 11008, 32000, 4096, 4, remat="full"),
    Case("llama-2-7b, 8 layers", 8, 4096, 32, 32, 11008, 32000, 4096, 4, remat="dots"),
    Case("llama-3-8b, 6 layers", 6, 4096, 32, 8, 14336, 128256, 8192, 1),
    Case("llama-2-7b, 8 layers", 8, 4096, 32, 32, 11008, 32000, 1024, 8),
]


def normed(x: jax.Array, weight: jax.Array) -> jax.Array:
    """RMSNorm in fp32."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-5)
    return (y * weight).astype(jnp.bfloat16)


def rotated(x: jax.Array) -> jax.Array:
    """Rotation by halves."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 5e5 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[None, :, None, :], jnp.sin(angles)[None, :, None, :]
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(jnp.bfloat16)


def layer(case: Case, x: jax.Array, p: dict[str, jax.Array]) -> tuple[jax.Array, None]:
    """One layer; weights in fp32, products in bf16."""
    w = {name: value.astype(jnp.bfloat16) for name, value in p.items()}
    batch, seq, _ = x.shape
    y = normed(x, p["first"])
    q = (y @ w["q"]).reshape(batch, seq, case.heads, -1)
    k, v = ((y @ w[name]).reshape(batch, seq, case.kv_heads, -1) for name in ("k", "v"))
    z = jax.nn.dot_product_attention(rotated(q), rotated(k), v, is_causal=True, implementation=case.attention)
    x = x + z.reshape(batch, seq, -1) @ w["o"]
    y = normed(x, p["second"])
    return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], None


def loss_of(case: Case, p: dict[str, Any], tokens: jax.Array) -> jax.Array:
    """Cross entropy of all tokens, logits widened to fp32."""
    keep = {"dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable, "full": None}
    body = functools.partial(layer, case)
    if case.remat != "none":
        body = jax.checkpoint(body, policy=keep[case.remat], prevent_cse=False)
    x = p["tokens"].astype(jnp.bfloat16)[tokens]
    x, _ = jax.lax.scan(body, x, p["layers"])
    logits = (normed(x, p["norm"]) @ p["head"].astype(jnp.bfloat16)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens).mean()


def made(case: Case) -> dict[str, Any]:
    """Random weights."""
    width, one = case.hidden // case.heads, (case.layers, case.hidden)
    shapes = {"q": (*one, case.heads * width), "k": (*one, case.kv_heads * width), "v": (*one, case.kv_heads * width),
              "o": (*one, case.hidden), "gate": (*one, case.ffn), "up": (*one, case.ffn),
              "down": (case.layers, case.ffn, case.hidden), "first": one, "second": one}  # fmt: skip
    new = functools.partial(jax.random.normal, jax.random.key(0), dtype=jnp.float32)
    layers = {name: new(shape) * 0.02 for name, shape in shapes.items()}
    table = (case.vocab, case.hidden)
    return {
        "layers": layers,
        "tokens": new(table) * 0.02,
        "head": new(table[::-1]) * 0.02,
        "norm": jnp.ones(case.hidden),
    }


def measure(case: Case) -> tuple[float, float]:
    """Seconds of a step and peak bytes that XLA's allocator had in use."""
    update = optax.adamw(1e-6)
    weights = made(case)
    states = update.init(weights)
    tokens = jax.random.randint(jax.random.key(1), (case.batch, case.seq), 0, case.vocab)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(weights: Any, states: Any) -> Any:
        gradients = jax.grad(functools.partial(loss_of, case))(weights, tokens)
        changes, states = update.update(gradients, states, weights)
        return optax.apply_updates(weights, changes), states

    for _ in range(WARM_STEPS):
        weights, states = step(weights, states)
    jax.block_until_ready(weights)
    begun = time.perf_counter()
    for _ in range(TIMED_STEPS):
        weights, states = step(weights, states)
    jax.block_until_ready(weights)
    seconds = (time.perf_counter() - begun) / TIMED_STEPS
    return seconds, jax.devices()[0].memory_stats()["peak_bytes_in_use"]


def row_of(place: int, gpu: str, seconds: float, peak: float) -> dict[str, Any]:
    """A row in the columns of docs/runs.md."""
    case, how = CASES[place], "decoder by hand, layers in a scan, optax adamw"
    return {
        "id": f"jax-{place:03}", "source": "distsim/benchmarks gpu/jax_steps.py", "gpu": gpu,
        "year": datetime.date.today().strftime("%Y-%m"), "model": case.model, "family": "llama", "layers": case.layers,
        "hidden": case.hidden, "heads": case.heads, "kv_heads": case.kv_heads, "ffn_hidden": case.ffn, "gated_mlp": 1,
        "vocab": case.vocab, "tied_embeddings": 0, "seq_len": case.seq, "n_gpus": 1, "gpus_per_node": 1,
        "micro_batch": case.batch, "grad_accum": 1, "global_batch": case.batch, "precision": "bf16",
        "recompute": RECOMPUTE[case.remat], "attention": "flash" if case.attention == "cudnn" else "eager",
        "optimizer": "adamw", "framework": "maxtext", "step_time_s": f"{seconds:.5f}",
        "mem_peak_gb_per_gpu": f"{peak / 2**30:.3f}", "mem_kind": "allocated",
        "notes": f"jax {jax.__version__}; {how}; attention by {case.attention}",
    }  # fmt: skip


def all_cases(out: str, gpu: str) -> None:
    """Each in a process of its own: peaks of memory are of a process."""
    for place in range(len(CASES)):
        subprocess.run([sys.executable, __file__, out, "--case", str(place), "--gpu", gpu], check=False)


def main() -> int:
    """Measure one case by its number, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--case", type=int)
    parser.add_argument("--gpu", default="h100-sxm")
    options = parser.parse_args()
    if options.case is None:
        all_cases(options.out, options.gpu)
        return 0
    row = row_of(options.case, options.gpu, *measure(CASES[options.case]))
    print({key: row[key] for key in TOLD}, flush=True)
    with open(options.out, "a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
