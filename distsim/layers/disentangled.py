"""What disentangled attention does beside comparing words with words (He et al. 2020, arXiv:2006.03654, section 3.1).

Projected distances are multiplied with queries or keys, and the score of each pair is picked by its distance. No fused
kernel does so; rows and tensors are those of transformers' DeBERTa-v2.
"""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.formulas.compute import product_flops
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import Weights, linear
from distsim.layers.norm import norm
from distsim.units import FP32_BYTES, INDEX_BYTES, MASK_BYTES

TERMS = ("content_position", "position_content")


def distance_table(ctx: Context) -> list[Operation]:
    """The table of distances with its norm, and the convolution beside the first layer, once for all layers."""
    model, kind = ctx.model, ctx.model.disentangled
    assert kind is not None
    table = Parameter(
        "embedding.distance_weight", kind.rows * model.hidden, "embedding", kind.rows, model.hidden,
        tensor_parallel=False,
    )  # fmt: skip
    rows = [Operation("embedding.distances", "embedding", saved=_given(ctx), parameters=(table,))]
    if kind.norm:
        nothing = Tensor(
            "embedding.distance_rows", 0, ctx.precision.stream_bytes, "table"
        )  # the table itself, no activation
        rows.append(norm(ctx, "embedding.distance_norm", kind.rows, model.hidden, nothing))
    return rows + _convolution(ctx, kind.convolution)


def _given(ctx: Context) -> tuple[Tensor, ...]:
    """The mask of pairs that recomputed layers are given as an argument by position, one for all, in fp32."""
    layout = ctx.layout
    pairs = where(layout.recompute_layers != 0, layout.micro_batch * layout.seq**2, 0)
    return (Tensor("embedding.pair_mask", pairs, FP32_BYTES, "b s s"),)


def given_by_name(ctx: Context) -> tuple[Tensor, ...]:
    """What they are given besides: distances of pairs, and the table as its norm gives it."""
    kind = ctx.model.disentangled
    assert kind is not None
    table = Tensor("layers.distances", kind.rows * ctx.model.hidden, ctx.precision.stream_bytes, "2k h")
    return (Tensor("layers.pair_distances", ctx.layout.seq**2, INDEX_BYTES, "s s index"), table)


def _convolution(ctx: Context, taps: int) -> list[Operation]:
    """Over neighbouring tokens, added to the first layer's output."""
    if not taps:
        return []
    rows, hidden = ctx.sharded_tokens, ctx.model.hidden
    source = Tensor("embedding.convolution.input", rows * hidden, ctx.activation, "s b h")
    output = source._replace(name="embedding.convolution.output")
    return [
        linear(ctx, "embedding.convolution", rows, taps * hidden, hidden, source, bias=True, sharded=False),
        Operation("embedding.convolution.activation", "elementwise", bytes_read=output.size_bytes,
                  bytes_written=output.size_bytes, shape=(rows * hidden,), saved=(output,), role="activation"),
        norm(ctx, "embedding.convolution.norm", rows, hidden, output._replace(name="embedding.convolution.sum")),
    ]  # fmt: skip


def distance_scores(ctx: Context, key: Tensor, heads: Number) -> list[Operation]:
    """Projected distances, their products with queries and keys, and the picking of scores, in one layer."""
    kind = ctx.model.disentangled
    assert kind is not None
    scaled = key._replace(name="attention.key_scaled")
    pairs = ctx.layout.micro_batch * ctx.layout.seq**2
    mask = Tensor("attention.pair_mask", pairs, MASK_BYTES, "b s s mask")
    scale = Operation(
        "attention.key_scale", "elementwise", shape=(key.elements,), saved=(scaled, mask), role="scaled keys"
    )
    found = [_projection(ctx, heads), scale]
    for name in TERMS[: kind.terms]:
        found += _term(ctx, f"attention.{name}", heads)
    return found


def _projection(ctx: Context, heads: Number) -> Operation:
    """Distances through the projections of queries and keys, or their own."""
    model, kind, act = ctx.model, ctx.model.disentangled, ctx.activation
    assert kind is not None
    dropped = bool(ctx.dropout and model.hidden_dropout)
    cast = dropped or ctx.precision.autocast  # each layer casts, or drops, what all layers read
    source = Tensor("attention.distances", kind.rows * model.hidden, act, "2k h") if cast else None
    row = linear(
        ctx, "attention.distance_projection", kind.rows, model.hidden, kind.terms * heads * model.head_dim, source,
        bias=True, weights=Weights(kind.terms), cast_input=True,
    )  # fmt: skip
    saved = row.saved
    if dropped:
        saved += (Tensor("attention.distance_mask", kind.rows * model.hidden, MASK_BYTES, "2k h mask"),)
    if not kind.own_projections:
        return row._replace(parameters=(), saved=tuple(one for one in saved if not one.weight_copy))
    return row._replace(saved=saved)


def _term(ctx: Context, name: str, heads: Number) -> list[Operation]:
    """One comparison: a product with all distances, of which each pair of tokens picks its own."""
    layout, act, width, kind = ctx.layout, ctx.activation, ctx.model.head_dim, ctx.model.disentangled
    assert kind is not None
    batch, seq = layout.micro_batch, layout.seq
    repeated = Tensor(f"{name}.distances", batch * heads * kind.rows * width, act, "b a 2k d/t")
    scores = Tensor(f"{name}.of_distances", batch * heads * seq * kind.rows, act, "b a s 2k/t")
    picked = Tensor(f"{name}.index", seq**2, INDEX_BYTES, "s s index")
    flops = product_flops(seq, kind.rows, width, batch * heads)
    chosen = batch * heads * seq**2 * act
    return [
        Operation(
            f"{name}.scores", "attention", flops, 2 * flops, repeated.size_bytes, scores.size_bytes,
            (batch, heads, seq, kind.rows, width, width), (repeated,), transient_backward=(scores,),
            recompute_class="core_attention", role="scores",
        ),
        Operation(
            f"{name}.gather", "elementwise", bytes_read=scores.size_bytes + chosen, bytes_written=chosen,
            shape=(batch * heads * seq**2, scores.elements, repeated.elements), saved=(scores, picked),
            transient_backward=(scores, scores), recompute_class="core_attention", role="picked scores",
        ),
    ]  # fmt: skip
