"""Attention to a window of tokens and to compressed keys (DeepSeek-V4): one head of keys, which are values too, read by
all heads of low-rank queries; a sink for each head; outputs turned back, projected group by group and then together.

Layers without compressed keys see the window alone. Where an indexer chooses, kernels read the chosen keys alone, and
elsewhere (and in plain torch) all of them: no flash kernel takes heads so wide with sinks (transformers 5.23,
models/deepseek_v4; NVIDIA/Megatron-LM core/transformer/experimental_attention_variant, dsv4_hybrid).
"""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, minimum
from distsim.formulas.attention import attention_flops, chosen_keys, gathered_bytes
from distsim.layers.attention import residual
from distsim.layers.attention_kernel import reads_window
from distsim.layers.compressor import OVERLAPPING, compressor
from distsim.layers.context_parallel import context_exchange, gathered_beside, traded
from distsim.layers.core_attention import FLASH_BACKWARD, LSE_BYTES
from distsim.layers.indexer import fixed, target_scores
from distsim.layers.ledger import Collective, Context, Operation, Tensor
from distsim.layers.linear import Weights, linear
from distsim.layers.names import PROBABILITIES
from distsim.layers.norm import norm
from distsim.layers.sparse_attention import padded_heads
from distsim.layers.tensor_parallel import column_collectives, row_collectives, sequence_gathers
from distsim.specs.compressed import CompressedAttention
from distsim.units import FP32_BYTES, INDEX_BYTES

ROTATIONS = 3
"""Queries, keys and outputs are rotated, each by sines and cosines of its own in plain torch."""
TABLES = 2 * ROTATIONS
"""Tables that plain torch keeps for them."""


class Seen(NamedTuple):
    """Keys that a mean query of one layer attends to, in a causal sequence."""

    window: Number
    compressed: Number


def keys_seen(table: CompressedAttention, layer: int, tokens: Number) -> Seen:
    """Keys of a mean query among ``tokens``: its window's, and those compressed ones that come before it and are chosen
    where any are."""
    ratio = table.ratio(layer)
    there = tokens / ratio if ratio else 0.0
    return Seen(
        chosen_keys(tokens, table.window),
        chosen_keys(there, table.index_keys) if table.chooses(layer) else there / 2,
    )


def most_keys(table: CompressedAttention, layer: int, tokens: Number) -> Seen:
    """Keys that the last query sees, which has all others before it."""
    ratio = table.ratio(layer)
    there = tokens / ratio if ratio else 0.0
    return Seen(minimum(tokens, table.window), minimum(there, table.index_keys) if table.chooses(layer) else there)


def compressed_attention(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one layer's attention; ``source`` is the normalised input."""
    model, layout, table = ctx.model, ctx.layout, ctx.model.compressed_attention
    assert table is not None
    tokens, width, act = layout.tokens, model.head_dim, ctx.activation
    own, heads = tokens / layout.sequence_shard, model.heads / layout.tp
    ratio = table.ratio(ctx.layer)
    latent = Tensor("attention.query_latent", own * table.q_rank, ctx.precision.kept_input_bytes, "s b q")
    raw = Tensor("attention.query_raw", tokens * heads * width, act, "s b a d/t")
    key = Tensor("attention.key", tokens * width, act, "s b d")
    query = raw._replace(name="attention.query")
    rows = [
        *_queries(ctx, table, source, latent, raw),
        linear(ctx, "attention.key", own, model.hidden, width, source, sharded=False, cast_input=True,
               collectives=_gathered(ctx, width)),
        norm(ctx, "attention.key_norm", own, width, key._replace(name="attention.key_raw", elements=own * width),
             per_head=True, role="head norm"),
    ]  # fmt: skip
    if ratio:
        rows += compressor(ctx, "attention.compressed", source, ratio, width, table.chooses(ctx.layer))
    if table.chooses(ctx.layer):
        rows += _indexer(ctx, table, source, latent)
    further = key._replace(name="attention.compressed_key", elements=tokens / ratio * width if ratio else 0)
    whole, beside = traded(ctx, key, 1), _whole(ctx, further)
    if layout.cp_mode == "all_gather":
        rows += gathered_beside(ctx, query, *_exchanged(ctx, table, further))
    else:
        rows += context_exchange(ctx, query, whole, beside, width)
    sparse = reads_window(model, layout, ctx.kernels)
    core = _sparse(ctx, table, query, whole, beside) if sparse else _composed(ctx, query, key, further)
    return [*rows, _turned(ctx, query, key, further), *core, *_output(ctx, table)]


def _whole(ctx: Context, further: Tensor) -> Tensor:
    """Compressed keys as a context parallel rank attends to them."""
    if ctx.layout.cp_mode == "all_gather":
        return further._replace(elements=further.elements * ctx.layout.cp)
    return traded(ctx, further, 1)


def _exchanged(ctx: Context, table: CompressedAttention, further: Tensor) -> tuple[Number, Tensor, Number]:
    """What context parallel ranks exchange where they gather compressed keys: hidden states of as many tokens as a
    window or a compressed key is of, these keys, and those of the indexer."""
    ratio, chooses = table.ratio(ctx.layer), table.chooses(ctx.layer)
    before = max(table.window, (OVERLAPPING if chooses else 1) * ratio)
    index = ctx.layout.tokens / table.index_ratio * table.index_dim if chooses else 0
    return ctx.layout.micro_batch * before * ctx.model.hidden, further, index


def _gathered(ctx: Context, width: Number) -> tuple[Collective, ...]:
    return sequence_gathers(ctx, width) if ctx.kernels.regather_input else column_collectives(ctx)


def _queries(ctx: Context, table: CompressedAttention, source: Tensor, latent: Tensor, raw: Tensor) -> list[Operation]:
    """Queries by way of a narrow layer, each head's with a norm without weights."""
    own, rank, width = ctx.layout.tokens / ctx.layout.sequence_shard, table.q_rank, ctx.model.head_dim
    before = latent._replace(name="attention.query_latent_raw", bytes_each=ctx.activation)
    entered = column_collectives(ctx, width=rank) if ctx.kernels.regather_input else ()
    return [
        linear(ctx, "attention.query_down", own, ctx.model.hidden, rank, source, sharded=False, cast_input=True),
        norm(ctx, "attention.query_latent_norm", own, rank, before, per_head=True, role="latent norm"),
        linear(ctx, "attention.query_up", ctx.layout.tokens, rank, raw.elements / ctx.layout.tokens, latent,
               collectives=entered),
        norm(ctx, "attention.query_norm", raw.elements / width, width, raw, per_head=True, affine=False,
             role="head norm"),
    ]  # fmt: skip


def _turned(ctx: Context, query: Tensor, key: Tensor, further: Tensor) -> Operation:
    """Rotation of queries and keys, which attention keeps; plain torch keeps what a norm without weights read, too, and
    sines and cosines of each rotation."""
    moved, rotated = query.size_bytes + key.size_bytes, ctx.model.rotary_width
    saved: tuple[Tensor, ...] = (query, traded(ctx, key, 1), _whole(ctx, further))
    if ctx.kernels.norm == "eager":
        angles = TABLES * ctx.layout.tokens + TABLES / ROTATIONS * further.elements / ctx.model.head_dim
        tables = Tensor("attention.rope_tables", angles * rotated, ctx.activation, "s b d")
        saved = (query, query._replace(name="attention.query_raw"), tables)
    return Operation(
        "attention.heads", "elementwise", bytes_read=moved, bytes_written=moved,
        shape=(query.elements + key.elements,), saved=saved, role="heads",
    )  # fmt: skip


def _indexer(ctx: Context, table: CompressedAttention, source: Tensor, latent: Tensor) -> list[Operation]:
    """What chooses compressed keys: queries of its own, keys compressed like the others, and their scores."""
    layout, tokens, act = ctx.layout, ctx.layout.tokens, ctx.activation
    heads, width = table.index_heads, table.index_dim
    seen = layout.together
    samples, rows, there = layout.micro_batch * layout.seq / seen, seen / layout.cp, seen / table.index_ratio
    queries = Tensor("attention.index.queries", tokens * heads * width, act, "s b i d")
    weights = Tensor("attention.index.weights", tokens * heads, FP32_BYTES, "s b i")
    chosen = Tensor("attention.index.chosen", tokens * table.index_keys, INDEX_BYTES, "s b k")
    scores = samples * rows * there / 2  # of keys that come before
    kept = samples * rows * chosen_keys(there, table.index_keys)
    operations = [
        linear(ctx, "attention.index.query", tokens, table.q_rank, heads * width, latent, sharded=False),
        *compressor(ctx, "attention.index.compressed", source, table.index_ratio, width, True),
        linear(ctx, "attention.index.weight", tokens, ctx.model.hidden, heads, None, sharded=False),
        Operation(
            "attention.index.core", "attention", attention_flops(scores * heads, width),
            2 * attention_flops(kept * heads, width), queries.size_bytes + scores * FP32_BYTES, scores * FP32_BYTES,
            (samples, heads, rows, there / 2, width, width), saved=(queries, weights, chosen),
            transient_backward=(chosen._replace(name="attention.index.scores", bytes_each=FP32_BYTES),), causal=False,
            role="core",
        ),
    ]  # fmt: skip
    return operations if ctx.kernels.indexer == "trained" else [fixed(one) for one in operations]


def _sparse(ctx: Context, table: CompressedAttention, query: Tensor, key: Tensor, further: Tensor) -> list[Operation]:
    """One kernel that reads each query's own keys, and what an indexer learns to agree with: the same scores again."""
    layout, width = ctx.layout, ctx.model.head_dim
    heads, tokens = ctx.model.heads / layout.tp, layout.tokens
    padded = padded_heads(ctx)
    seen = sum(keys_seen(table, ctx.layer, layout.together))
    flops = attention_flops(tokens * padded * seen, width, width)
    output = Tensor("attention.core_output", query.elements, ctx.activation, "s b a d/t")
    shape = (tokens, 1, padded, seen, width, width)
    keys = key.size_bytes + further.size_bytes
    moved = query.size_bytes + keys + gathered_bytes(tokens, seen, width * ctx.activation)
    rows = [
        Operation(
            "attention.core", "attention", flops, FLASH_BACKWARD * flops, moved, output.size_bytes, shape,
            (output, Tensor("attention.lse", tokens * heads, LSE_BYTES, "s b a/t")), output,
            transient_backward=(output, query, key, further), recompute_class="core_attention", causal=False,
            role="core",
        )
    ]  # fmt: skip
    if table.chooses(ctx.layer):
        target = attention_flops(tokens * padded * keys_seen(table, ctx.layer, layout.together).compressed, width)
        rows.append(target_scores(target, moved, shape))
    return rows


def _composed(ctx: Context, query: Tensor, key: Tensor, further: Tensor) -> list[Operation]:
    """Scores of all tokens and all compressed keys as products, with copies of the keys for every head."""
    layout, width, act = ctx.layout, ctx.model.head_dim, ctx.activation
    heads, samples, rows = ctx.model.heads / layout.tp, layout.micro_batch, layout.seq / layout.cp
    columns = (key.elements + further.elements) / key.elements * layout.seq
    elements = samples * heads * rows * columns
    flops = attention_flops(elements, width)
    copies = Tensor("attention.key_copies", (key.elements + further.elements) * heads, act, "s b a d/t")
    again = copies._replace(name="attention.value_copies")
    scores = Tensor("attention.scores", elements, act, "b a s s/t")
    weights = Tensor(f"attention{PROBABILITIES}", elements + samples * heads * rows, act, "b a s s/t")
    largest = Tensor("attention.row_maximum", samples * heads * rows, INDEX_BYTES, "b a s/t index")
    output = Tensor("attention.core_output", query.elements, act, "s b a d/t")
    shape = (samples, heads, rows, columns, width, width)
    again_class = "core_attention"
    return [
        Operation(
            "attention.scores", "attention", flops, 2 * flops, query.size_bytes + copies.size_bytes, scores.size_bytes,
            shape, (copies,), transient_forward=(scores,), transient_backward=(scores, query, copies),
            recompute_class=again_class, role="scores",
        ),
        Operation(
            "attention.softmax", "elementwise", 0, 0, scores.size_bytes, weights.size_bytes, (elements,),
            (weights, largest), transient_backward=(scores, scores), recompute_class=again_class,
            role="softmax",
        ),
        Operation(
            "attention.weighted_sum", "attention", flops, 2 * flops, weights.size_bytes + again.size_bytes,
            output.size_bytes, shape, (again,), output, transient_backward=(weights, output, again),
            recompute_class=again_class,
        ),
    ]  # fmt: skip


def _output(ctx: Context, table: CompressedAttention) -> list[Operation]:
    """The output turned back, projected in groups of heads to a narrow layer, and from there to the hidden width."""
    model, layout, tokens = ctx.model, ctx.layout, ctx.layout.tokens
    inner, groups = model.heads / layout.tp * model.head_dim, table.output_groups / layout.tp
    kept = ctx.precision.kept_input_bytes
    turned = Tensor("attention.output", tokens * inner, kept, "s b a d/t")
    narrow = Tensor("attention.output_narrow", tokens * groups * table.output_rank, kept, "s b g r/t")
    size = tokens * inner * ctx.activation
    return [
        Operation("attention.turned_back", "elementwise", bytes_read=size, bytes_written=size, shape=(tokens * inner,)),
        _batched(linear(ctx, "attention.output_down", tokens * groups, inner / groups, table.output_rank, turned,
                        weights=Weights(copies=groups))),
        linear(ctx, "attention.projection", tokens, groups * table.output_rank, model.hidden, narrow,
               collectives=row_collectives(ctx)),
        *residual(ctx, "attention.residual"),
    ]  # fmt: skip


def _batched(row: Operation) -> Operation:
    """One call over groups of heads, whose weights are one tensor: below each other (transformers,
    DeepseekV4GroupedLinear)."""
    weight, *others = row.parameters
    whole = weight._replace(columns=weight.columns * weight.copies, copies=1)
    return row._replace(role="batched", parameters=(whole, *others))
