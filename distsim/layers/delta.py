"""The gated delta rule (Yang et al. 2024, arXiv:2412.06464) and Kimi Delta Attention (arXiv:2510.26692) as mixers.

Rows are those of the fused kernels that training uses (``chunk_gated_delta_rule`` and ``chunk_kda`` of
flash-linear-attention, a convolution that activates): queries and keys of unit length, values, decays and the matrices
of each chunk are kept, states between chunks are computed again in backward.
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formulas.chunk_rule import chunk_rule_kept_bytes
from distsim.layers.context_parallel import channels_for_tokens
from distsim.layers.ledger import RATE_GRADIENT_ONLY, Context, Operation, Parameter, Tensor
from distsim.layers.linear import Weights, linear
from distsim.layers.mamba import SCAN_BACKWARD
from distsim.layers.tensor_parallel import column_collectives, row_collectives
from distsim.specs.mixers import DeltaNet
from distsim.units import FP32_BYTES, MASK_BYTES

CHUNK = 64
"""Tokens of one chunk of the scan (flash-linear-attention, ``chunk_size``)."""
CHANNEL_MATRICES = 2
"""Chunk-wide matrices a token keeps where channels decay by themselves: of queries with keys and of keys with keys;
where a head has one decay, the latter alone (flash-linear-attention, what ChunkKDAFunction and
ChunkGatedDeltaRuleFunction save)."""
KEY_PRODUCTS, VALUE_PRODUCTS = 3, 2
"""Products within a chunk: keys with keys, the inverse with keys, queries with keys; the inverse with values, and the
scores with values (arXiv:2412.06464, section 3.3)."""
STATE_PRODUCTS = 3
"""Products with a chunk's state: what it holds of the keys, what queries read, what is written into it."""
SCAN_READS = 2
"""Kernels that read what the scan is given: one makes the states, one the output (flash-linear-attention, chunk_fwd_h
and chunk_fwd_o)."""


def delta(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one mixer; ``source`` is the normalised input."""
    model, tokens, act = ctx.model, ctx.layout.tokens, ctx.activation
    mixer = model.delta
    assert mixer is not None
    heads, keys, values = _widths(ctx, mixer)
    mixed = 2 * keys + values  # channels of the convolution
    wide = mixed + (0 if mixer.gate_rank else values)  # and the gate
    apart = _apart(ctx, mixer, keys, values, wide)
    matrices = len(apart)
    project_in = linear(
        ctx, "delta.project_in", tokens, model.hidden, wide, source, cast_input=True, weights=Weights(matrices, apart),
        collectives=column_collectives(ctx, matrices),
    )  # fmt: skip
    project_out = linear(
        ctx, "delta.project_out", tokens, values, model.hidden,
        Tensor("delta.gated", tokens * values, ctx.precision.kept_input_bytes, "s b v/t"),
        collectives=row_collectives(ctx),
    )  # fmt: skip
    output = Tensor("delta.scan_output", tokens * values, act, "s b v/t")
    return [
        project_in,
        *_decays(ctx, mixer, heads, keys, values, source),
        _convolution(ctx, mixer, mixed),
        *([] if in_torch(ctx) else [_normalised(ctx, mixer, keys)]),
        _scan(ctx, mixer, heads, keys, values, output),
        _gated_norm(ctx, mixer, heads, output),
        project_out,
    ]  # fmt: skip


def in_torch(ctx: Context) -> bool:
    """Whether plain torch computes the rule, and the lengths of queries and keys in it."""
    return ctx.kernels.delta_rule == "torch" and ctx.model.delta is not None and not ctx.model.delta.by_channel


def _widths(ctx: Context, mixer: DeltaNet) -> tuple[Number, Number, Number]:
    """On one rank: heads of values, width of all keys, width of all values."""
    heads = mixer.value_heads / ctx.layout.tp
    return heads, mixer.key_heads * mixer.key_dim / ctx.layout.tp, heads * mixer.value_dim


def _apart(ctx: Context, mixer: DeltaNet, keys: Number, values: Number, wide: Number) -> tuple[Number, ...]:
    """Output widths of the separate modules that make queries, keys, values and gate."""
    if ctx.kernels.qkv_matrices == 1 or mixer.modules == "fused":
        return (wide,)
    if mixer.modules == "split":
        return (2 * keys + values, values)
    return (keys, keys, values, values)[: len(mixer.inputs)]


def _decays(
    ctx: Context, mixer: DeltaNet, heads: Number, keys: Number, values: Number, source: Tensor
) -> list[Operation]:
    """Projections to how much a token writes and how much it forgets, and those through a narrow layer: to the decay
    of each channel, to the gate."""
    tokens, hidden = ctx.layout.tokens, ctx.model.hidden
    scalars = heads * (1 if mixer.by_channel else 2)
    modules = 1 if ctx.kernels.qkv_matrices == 1 else len(mixer.scalars)
    found = [
        linear(ctx, "delta.project_scalars", tokens, hidden, scalars, source, weights=Weights(modules), cast_input=True)
    ]
    if mixer.channel_decay:
        found.append(linear(ctx, "delta.decays", tokens, hidden, keys, source, cast_input=True))
    for what, rank, width in (("decays", mixer.channel_rank, keys), ("gate", mixer.gate_rank, values)):
        if rank:
            narrow = Tensor(f"delta.{what}_narrow", tokens * rank, ctx.activation, "s b r")
            down = linear(ctx, f"delta.{what}_down", tokens, hidden, rank, source, sharded=False, cast_input=True)
            found += [down, linear(ctx, f"delta.{what}_up", tokens, rank, width, narrow)]
    return found


def _gated_norm(ctx: Context, mixer: DeltaNet, heads: Number, output: Tensor) -> Operation:
    """The norm of each head's output and its gate; composed, both are widened to fp32 and every factor is kept."""
    rows = ctx.layout.tokens * heads
    kept = [Tensor("delta.norm.statistics", rows, FP32_BYTES, "s b a")]
    wide, narrow = output._replace(bytes_each=FP32_BYTES), output
    if ctx.kernels.norm == "eager":
        sigmoid = mixer.by_channel or mixer.sigmoid_gate  # which keeps no input
        own = ("input", "activated") if sigmoid else ("input", "gate", "activated")
        kept += [wide._replace(name=f"delta.norm.{what}_fp32") for what in own]
        late = mixer.by_channel or ctx.kernels.gated_norm_fp32
        kept.append((wide if late else narrow)._replace(name="delta.norm.normalised"))
        scaled = wide if late or ctx.precision.autocast else narrow  # weights are fp32
        kept.append(scaled._replace(name="delta.norm.scaled"))
    else:
        kept += [output, narrow._replace(name="delta.gate")]
    return Operation(
        "delta.norm", "norm", bytes_read=2 * output.size_bytes, bytes_written=output.size_bytes,
        shape=(rows, mixer.value_dim), saved=tuple(kept), transient_backward=(output, output), recompute_class="norm",
        parameters=(Parameter("delta.norm.weight", mixer.value_dim, "vector", tensor_parallel=False),),
    )  # fmt: skip


def _convolution(ctx: Context, mixer: DeltaNet, mixed: Number) -> Operation:
    """The activated convolution over queries, keys and values; backward computes its output again."""
    tokens, act = ctx.layout.tokens, ctx.activation
    moved = tokens * mixed * act
    return Operation(
        "delta.convolution", "elementwise", bytes_read=moved, bytes_written=moved, shape=(tokens * mixed,),
        saved=(Tensor("delta.projected", tokens * mixed, act, "s b 2k+v/t"),),
        transient_backward=(Tensor("delta.convolution_gradient", 2 * tokens * mixed, act, "s b 2k+v/t"),),
        parameters=(Parameter("delta.convolution.weight", mixed * mixer.convolution, "vector"),),
    )  # fmt: skip


def _normalised(ctx: Context, mixer: DeltaNet, keys: Number) -> Operation:
    """Queries and keys of unit length; the kept ones are those that the scan reads."""
    tokens, act = ctx.layout.tokens, ctx.activation
    elements = 2 * tokens * keys
    rows = elements / mixer.key_dim
    return Operation(
        "delta.normalise", "norm", bytes_read=elements * act, bytes_written=elements * act,
        shape=(rows, mixer.key_dim),
        saved=(
            Tensor("delta.query_key", elements, act, "s b 2k/t"),
            Tensor("delta.lengths", rows, FP32_BYTES, "s b 2a"),
        ),
        transient_backward=(Tensor("delta.query_key_gradient", elements, act, "s b 2k/t"),),
    )  # fmt: skip


def _scan(ctx: Context, mixer: DeltaNet, heads: Number, keys: Number, values: Number, output: Tensor) -> Operation:
    """Products within chunks and with the states between them."""
    tokens, act = ctx.layout.tokens, ctx.activation
    key, value, by_channel = mixer.key_dim, mixer.value_dim, mixer.by_channel
    within = 2 * CHUNK * (KEY_PRODUCTS * key + VALUE_PRODUCTS * value) / 2  # half of the pairs of a chunk are ahead
    flops = tokens * heads * (within + 2 * STATE_PRODUCTS * key * value)
    states = tokens / CHUNK * heads * key * value * act
    decays = keys if by_channel else heads
    kept = _scan_kept(ctx, mixer, heads, decays, values)
    pairs = 2 * tokens * keys * act
    if ctx.kernels.delta_copies and mixer.value_heads > mixer.key_heads:
        copies = Tensor("delta.query_key_copies", 2 * tokens * heads * key, act, "s b 2a d/t")
        kept, pairs = (copies, *kept), copies.size_bytes
    passing = Tensor("delta.states", states / act, act, "s/c b a d v")
    if in_torch(ctx):
        whole = tokens * heads * (KEY_PRODUCTS * key + VALUE_PRODUCTS * value + CHUNK)
        passing = Tensor("delta.chunk_gradients", whole, FP32_BYTES, "s b a ...")
    return Operation(
        "delta.scan", "scan", flops, SCAN_BACKWARD * flops,
        bytes_read=SCAN_READS * (pairs + tokens * values * act) + 2 * states,
        bytes_written=output.size_bytes + 2 * states,
        shape=(tokens, values, key),
        saved=kept,
        output=output,
        transient_backward=(output, passing),
        role="chunk rule" if in_torch(ctx) else "",
        parameters=(
            Parameter("delta.scan.decays", heads, "vector"),
            Parameter("delta.scan.steps", decays, "vector"),
        ),
        collectives=channels_for_tokens(
            ctx, *(tokens * width for width in (keys, keys, values, values, heads, decays)), tokens * values
        ),  # queries, keys, values, gate, what is written and forgotten; the output
    )  # fmt: skip


def _scan_kept(ctx: Context, mixer: DeltaNet, heads: Number, decays: Number, values: Number) -> tuple[Tensor, ...]:
    """What it keeps beside copies of queries and keys; in plain torch all that a chunk's rule makes in fp32 instead of
    an inverse."""
    tokens, act, by_channel = ctx.layout.tokens, ctx.activation, mixer.by_channel
    if in_torch(ctx):
        size = chunk_rule_kept_bytes(tokens * heads, mixer.key_dim, mixer.value_dim)
        last = Tensor("delta.chunked", size / FP32_BYTES, FP32_BYTES, "s b a ...")
    else:
        matrices = CHANNEL_MATRICES if by_channel else 1
        last = Tensor("delta.inverse", tokens * heads * CHUNK * matrices, act, "s b a c/t")
    return (
        Tensor("delta.value", tokens * values, act, "s b v/t"),
        *_logits(ctx, mixer, tokens * decays),
        Tensor("delta.decays", tokens * decays, FP32_BYTES, "s b k/t fp32" if by_channel else "s b a/t fp32"),
        Tensor("delta.writes", tokens * heads, act, "s b a/t"),
        last,
    )


def _logits(ctx: Context, mixer: DeltaNet, elements: Number) -> list[Tensor]:
    """What making the decays keeps: the logits, and what the gradient of their rate alone reads. Kimi Linear composes
    its softplus in transformers: an exponential, one more than it, and where neither is needed; a sigmoid is enough."""
    shape = "s b k/t fp32" if mixer.by_channel else "s b a/t fp32"
    logits = Tensor("delta.decay_logits", elements, FP32_BYTES, shape)
    kept = [logits, logits._replace(name=f"delta.decay{RATE_GRADIENT_ONLY}")]
    if mixer.channel_rank and not mixer.bounded_decay and ctx.kernels.norm == "eager":
        kept += [logits._replace(name="delta.decay_exponentials"),
                 logits._replace(name="delta.decay_choices", bytes_each=MASK_BYTES)]  # fmt: skip
    return kept
