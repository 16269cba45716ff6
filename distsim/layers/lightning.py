"""Lightning attention (MiniMax-01, arXiv:2501.08313, section 2.2): linear attention whose heads decay at fixed rates,
computed in blocks of tokens with a state between them.

Fused, its kernel keeps queries, keys and values (Qin et al. 2024, arXiv:2401.04658). Transformers composes it block by
block, which keeps the scores of each block, the state before it and what its products read.
"""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, minimum, where
from distsim.layers.context_parallel import channels_for_tokens
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.layers.mamba import SCAN_BACKWARD
from distsim.layers.norm import norm, shared
from distsim.layers.tensor_parallel import column_collectives, row_collectives
from distsim.specs.mixers import Lightning

QKV = 3
"""Queries, keys and values, which one projection makes."""
BLOCK_READS = 4
"""Copies of them that the products of a block read where a batch of several is no view of them: values twice."""
STATE_PRODUCTS = 2
"""Products with a block's state: what queries read, what is written into it."""


def lightning(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one mixer; ``source`` is the normalised input."""
    model, tokens, act = ctx.model, ctx.layout.tokens, ctx.activation
    mixer = model.lightning
    assert mixer is not None
    width = mixer.heads / ctx.layout.tp * mixer.head_dim
    output = Tensor("lightning.output", tokens * width, act, "s b a d/t")
    gate, normed = output._replace(name="lightning.gate"), output._replace(name="lightning.normed")
    gated = output._replace(name="lightning.gated", bytes_each=ctx.precision.kept_input_bytes)
    return [
        linear(ctx, "lightning.project_in", tokens, model.hidden, QKV * width, source, cast_input=True,
               collectives=column_collectives(ctx, 2)),
        linear(ctx, "lightning.project_gate", tokens, model.hidden, width, source, cast_input=True),
        _scan(ctx, mixer, width, output),
        shared(norm(ctx, "lightning.norm", tokens, width, output)),
        Operation(
            "lightning.gate", "elementwise", bytes_read=2 * gate.size_bytes, bytes_written=gate.size_bytes,
            shape=(gate.elements,), saved=(gate, normed),
            transient_backward=(gate._replace(name="lightning.gate_gradient"),),
        ),
        linear(ctx, "lightning.project_out", tokens, width, model.hidden, gated, collectives=row_collectives(ctx)),
    ]  # fmt: skip


def _scan(ctx: Context, mixer: Lightning, width: Number, output: Tensor) -> Operation:
    """Activation, products within blocks and with the states between them."""
    layout, act = ctx.layout, ctx.activation
    tokens, heads, depth = layout.tokens, width / mixer.head_dim, mixer.head_dim
    composed = ctx.kernels.linear_attention == "composed"
    pairs = _pairs(mixer, layout.seq) / layout.seq / (1 if composed else 2)  # a fused kernel leaves out what is ahead
    flops = tokens * heads * 2 * (2 * pairs * depth + STATE_PRODUCTS * depth**2)
    saved = [Tensor("lightning.projected", QKV * tokens * width, act, "s b 3a d/t")]
    saved += _blocks(ctx, mixer, width) if composed else [_activated(ctx, width, QKV)]
    kept = sum(tensor.size_bytes for tensor in saved)
    states = tokens / mixer.block * heads * depth**2 * act
    return Operation(
        "lightning.scan", "scan", flops, SCAN_BACKWARD * flops,
        bytes_read=kept + states, bytes_written=output.size_bytes + (kept if composed else states),
        shape=(tokens, width, depth), saved=tuple(saved), output=output,
        transient_backward=(output, _activated(ctx, width, QKV)._replace(name="lightning.gradient")),
        collectives=channels_for_tokens(ctx, QKV * tokens * width, tokens * width),
    )  # fmt: skip


def _pairs(mixer: Lightning, seq: Number) -> Number:
    """Pairs of tokens of a sequence that are in one block; the last block is what is left."""
    rest = seq % mixer.block
    return (seq - rest) * mixer.block + rest**2


def _activated(ctx: Context, width: Number, copies: Number) -> Tensor:
    """Queries, keys and values as products read them."""
    return Tensor("lightning.query_key_value", copies * ctx.layout.tokens * width, ctx.activation, "s b 3a d/t")


def _blocks(ctx: Context, mixer: Lightning, width: Number) -> list[Tensor]:
    """What a loop over blocks of plain operations keeps."""
    layout, act, block = ctx.layout, ctx.activation, mixer.block
    seq, batch, heads = layout.seq / layout.cp, layout.micro_batch, width / mixer.head_dim
    blocks = ceil_div(seq, block)
    behind = seq - minimum(seq, block)  # the first block has no state to read
    return [
        _activated(ctx, width, where(batch > 1, BLOCK_READS, QKV)),
        Tensor("lightning.scores", batch * heads * _pairs(mixer, seq), act, "b a s c/t"),
        Tensor("lightning.states", batch * blocks * width * mixer.head_dim, act, "s/c b a d d/t"),
        Tensor("lightning.decayed_query", batch * behind * width, act, "s b a d/t"),
        Tensor("lightning.decayed_key", layout.tokens * width, act, "s b a d/t"),
    ]
