"""A decoder in JAX in the manner of MaxText, of which only shapes are traced: what its layers save, and its step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks


class Case(NamedTuple):
    """A job: shape, batch, and how its layers run and are differentiated."""

    name: str
    family: str = "llama"
    layers: int = 4
    hidden: int = 1024
    heads: int = 8
    kv_heads: int = 4
    ffn: int = 4096
    vocab: int = 8192
    seq: int = 2048
    batch: int = 4
    attention: str = "splash"
    remat: str = "none"
    scan: bool = True
    accumulate: int = 1
    optimizer: str = "adamw"


QKV = ("query_proj", "key_proj", "value_proj")
POLICIES = {
    "save_qkv_proj": QKV,
    "save_out_proj": ("out_proj",),
    "save_dot_except_mlp": (*QKV, "out_proj"),
    "save_dot_with_context_except_mlp": (*QKV, "context", "out_proj"),
    "minimal_with_context": (*QKV, "context", "out_proj", "mlpwi", "mlpwo"),
}
"""Names that a policy saves, beside a layer's inputs."""
wide, narrow = jnp.float32, jnp.bfloat16


def rms_norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    """RMSNorm in fp32, cast before its weight multiplies it."""
    y = x.astype(wide)
    y = (y * jax.lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-5)).astype(narrow)
    return y * weight.astype(narrow)


def layer_norm(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    """Layernorm in the activations' format."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    y = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), -1, keepdims=True) + 1e-5)
    return y * (weight.astype(narrow) + 1) + bias.astype(narrow)


def rotated(x: jax.Array) -> jax.Array:
    """Rotation by halves."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 5e5 ** (-jnp.arange(half) / half)
    cos, sin = (f(angles)[None, :, None, :].astype(narrow) for f in (jnp.cos, jnp.sin))
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def composed(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention of two products with an fp32 softmax between them."""
    batch, seq, heads, width = q.shape
    q = q.reshape(batch, seq, k.shape[2], -1, width)
    scores = jnp.einsum("btkgd,bskd->bkgts", q, k).astype(wide)
    seen = jnp.arange(seq)[:, None] >= jnp.arange(seq)[None, :]
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1).astype(narrow)
    return jnp.einsum("bkgts,bskd->btkgd", weights, v).reshape(batch, seq, heads, width)


def flash(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Splash attention, heads first."""
    seq, heads = q.shape[1], q.shape[2]
    mask = masks.MultiHeadMask([masks.CausalMask((seq, seq))] * heads)
    kernel = splash.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, residual_checkpoint_name="context")
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return jax.vmap(kernel)(q, k, v).swapaxes(1, 2)


def layer(case: Case, x: jax.Array, p: dict[str, jax.Array]) -> tuple[jax.Array, None]:
    """One layer; weights in fp32, products in 16 bits."""
    w = {name: value.astype(narrow) for name, value in p.items()}
    gpt = case.family == "gpt"
    norm = functools.partial(layer_norm, bias=p["first_bias"]) if gpt else rms_norm
    y = norm(x, p["first"])
    q, k, v = (jnp.einsum("bsh,had->bsad", y, w[name]) for name in "qkv")
    if gpt:
        q, k, v = (one + w[f"{name}_bias"] for one, name in zip((q, k, v), "qkv", strict=True))
    else:
        q, k = rotated(q), rotated(k)
    q, k, v = (checkpoint_name(one, name) for one, name in zip((q / 16, k, v), QKV, strict=True))
    z = jnp.einsum("bsad,adh->bsh", (flash if case.attention == "splash" else composed)(q, k, v), w["o"])
    x = x + checkpoint_name(z + w["o_bias"] if gpt else z, "out_proj")
    norm = functools.partial(layer_norm, bias=p["second_bias"]) if gpt else rms_norm
    y = norm(x, p["second"])
    if gpt:
        y = jax.nn.gelu(checkpoint_name(y @ w["up"] + w["up_bias"], "mlpwi"))
        return x + checkpoint_name(y @ w["down"] + w["down_bias"], "mlpwo"), None
    y = jax.nn.silu(checkpoint_name(y @ w["gate"], "mlpwi")) * checkpoint_name(y @ w["up"], "mlpwi")
    return x + checkpoint_name(y @ w["down"], "mlpwo"), None


def shapes(case: Case) -> dict[str, Any]:
    """Weights by name, layers stacked, as shapes."""
    width = case.hidden // case.heads
    inner = {"q": (case.hidden, case.heads, width), "k": (case.hidden, case.kv_heads, width),
             "v": (case.hidden, case.kv_heads, width), "o": (case.heads, width, case.hidden), "first": (case.hidden,),
             "second": (case.hidden,), "up": (case.hidden, case.ffn), "down": (case.ffn, case.hidden)}  # fmt: skip
    if case.family == "gpt":
        inner |= {f"{name}_bias": shape[1:] for name, shape in inner.items() if name in "qkv" or name == "up"}
        inner |= {f"{name}_bias": (case.hidden,) for name in ("o", "down", "first", "second")}
    else:
        inner["gate"] = inner["up"]
    new = functools.partial(jax.ShapeDtypeStruct, dtype=wide)
    table = (case.vocab, case.hidden)
    return {
        "layers": {name: new((case.layers, *shape)) for name, shape in inner.items()},
        "tokens": new(table), "head": new(table[::-1]), "norm": new((case.hidden,)),
    }  # fmt: skip


def wrapped(case: Case) -> Callable[..., Any]:
    """The layer under its policy."""
    body = functools.partial(layer, case)
    if case.remat == "none":
        return body
    found = jax.checkpoint_policies
    policy: Any = {
        "full": None,
        "minimal": found.dots_with_no_batch_dims_saveable,
        "dots_saveable": found.dots_saveable,
    }
    named = POLICIES.get(case.remat)
    chosen = found.save_only_these_names(*named) if named else policy[case.remat]
    return jax.checkpoint(body, policy=chosen, prevent_cse=not case.scan)


def loss_of(case: Case, p: dict[str, Any], tokens: jax.Array) -> jax.Array:
    """Cross entropy of all tokens, of 16-bit logits widened to fp32."""
    body = wrapped(case)
    x = p["tokens"].astype(narrow)[tokens]
    if case.scan:
        x, _ = jax.lax.scan(body, x, p["layers"])
    else:
        for place in range(case.layers):
            x, _ = body(x, jax.tree.map(lambda value, place=place: value[place], p["layers"]))
    logits = (rms_norm(x, p["norm"]) @ p["head"].astype(narrow)).astype(wide)
    picked = jnp.sum(logits * jax.nn.one_hot(tokens, case.vocab), -1)
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def step_of(case: Case) -> tuple[Callable[..., Any], tuple[Any, Any, Any]]:
    """A training step with the shapes of weights, states and tokens."""
    update = optax.adamw(1e-6)
    weights = shapes(case)
    states = jax.eval_shape(update.init, weights)
    tokens = jax.ShapeDtypeStruct((case.accumulate, case.batch, case.seq), jnp.int32)
    gradient = jax.grad(functools.partial(loss_of, case))

    def step(weights: Any, states: Any, tokens: Any) -> Any:
        if case.accumulate == 1:
            gradients = gradient(weights, tokens[0])
        else:

            def add(total: Any, some: Any) -> Any:
                return jax.tree.map(jnp.add, total, gradient(weights, some)), None

            gradients, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), tokens)
        changes, states = update.update(gradients, states, weights)
        return optax.apply_updates(weights, changes), states

    return step, (weights, states, tokens)
