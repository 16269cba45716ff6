"""Token, position and segment embeddings."""

from __future__ import annotations

from distsim.arrays import where
from distsim.layers.given import first_norm, kept_tables
from distsim.layers.ledger import Collective, Context, Held, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.names import DECODER_EMBEDDING, DROPOUT_MASK, EMBEDDING, EMBEDDING_WEIGHT, POSITION_WEIGHT, TEXT
from distsim.layers.norm import norm
from distsim.layers.tensor_parallel import boundary_bytes
from distsim.specs.model import Model
from distsim.units import INDEX_BYTES, MASK_BYTES


def embedding(ctx: Context) -> list[Operation]:
    """The operations that make what each stack reads: the lookup, with positions, norm and dropout."""
    model = ctx.model
    behind = ctx._replace(layer=model.layers - 1).side
    if model.patches:
        from distsim.layers.inputs import patch_rows

        rows = [*patch_rows(ctx), *_dropped(ctx)]
    elif model.frames:
        from distsim.layers.inputs import frame_rows

        rows = [_lookup(behind), *frame_rows(ctx)]
    else:
        rows = [_lookup(ctx), *_second(ctx, behind)]
    if model.embedding_norm:
        rows.append(_norm(ctx, "embedding"))
        rows += [_norm(behind, DECODER_EMBEDDING)] if model.encoder_layers else []
    width = model.embedding_width or model.hidden
    if width != model.hidden:
        tokens, bias = ctx.layout.tokens, bool(model.embedding_norm)
        source = Tensor("embedding.narrow", tokens * width, ctx.precision.kept_input_bytes, "s b w")
        rows.append(linear(ctx, "embedding.project_in", tokens, width, model.hidden, source, bias=bias, sharded=False))
    if model.text:
        rows.append(_lookup(behind)._replace(name=TEXT))
    if model.disentangled:
        from distsim.layers.disentangled import distance_table

        rows += distance_table(ctx)
    return rows


def held_as(ctx: Context) -> Held:
    """How a table of words is held: in 16 bits where the model stores embeddings so beside fp32 matrices."""
    return "narrow" if ctx.model.narrow_embeddings and ctx.precision.autocast else "trained"


def table(name: str, rows: int, width: int, *, trains: bool = True) -> Parameter:
    """A small table that every tensor-parallel rank holds."""
    whole = Parameter(name, rows * width, "embedding", rows, width, tensor_parallel=False)
    return whole if trains else whole._replace(held="frozen")


def table_width(model: Model) -> int:
    """Width of the tables of positions and segments: as that of words where a norm follows them all (ELECTRA)."""
    return model.embedding_width or model.hidden if model.embedding_norm else model.hidden


def _norm(ctx: Context, name: str) -> Operation:
    """The norm after an embedding."""
    rows, width = ctx.sharded_tokens, table_width(ctx.model)
    source = Tensor(f"{name}.output", rows * width, ctx.precision.stream_bytes, "s b h")
    return norm(ctx, f"{name}.norm", rows, width, source, affine=ctx.model.embedding_norm != "unit")


def _lookup(ctx: Context) -> Operation:
    """Looking tokens up (vocabulary-parallel under tp), positions, segments, dropout."""
    model, layout = ctx.model, ctx.layout
    width = model.embedding_width or model.hidden
    rows = (ctx.vocab_padded + model.extra_words) / layout.vocab_ranks
    size, sp = boundary_bytes(ctx, width=width), layout.sequence_parallel
    elements = ctx.sharded_tokens * model.hidden
    saved = [Tensor("embedding.tokens", layout.tokens, INDEX_BYTES, "s b"), *_masks(ctx, "embedding")]
    parameters = [
        Parameter(EMBEDDING_WEIGHT, rows * width, "embedding", rows, width, held=held_as(ctx)),
        *_positions(ctx),
    ]
    if model.positions == "learned":
        saved.append(Tensor("embedding.positions", layout.seq / layout.cp, INDEX_BYTES, "s"))
    saved += _distances(ctx)
    if model.token_types:
        parameters.append(table("embedding.type_weight", model.token_types, table_width(model)))
    saved += [*kept_tables(ctx), *first_norm(ctx)]
    stream = ctx.precision.stream_bytes
    return Operation(
        EMBEDDING,
        "embedding",
        bytes_read=layout.tokens * width * stream,
        bytes_written=elements * stream,
        shape=(layout.tokens, width),
        saved=tuple(saved),
        transient_backward=(Tensor("embedding.output_gradient", elements, stream, "s b h"),),
        parameters=tuple(parameters),
        collectives=(
            Collective("reduce_scatter", "tp", size * sp, "forward"),
            Collective("all_gather", "tp", size * sp, "backward"),
            Collective("all_reduce", "tp", size * (1 - sp), "forward"),
        ),
    )


def _distances(ctx: Context) -> list[Tensor]:
    """Distances of pairs of tokens by which biases are looked up: once in a model, or in the first layer of each stack,
    where that is not computed again (T5)."""
    model, layout = ctx.model, ctx.layout
    if not model.distance_buckets and ctx.kernels.attention_mask != "bias":
        return []
    pairs = layout.seq**2
    if not model.distance_buckets:
        behind = ctx._replace(layer=model.layers - 1).side.layout.seq if model.encoder_layers else 0
        pairs = (pairs + behind**2) * where(layout.recompute_layers == 0, 1, 0)
    return [Tensor("embedding.distances", pairs, INDEX_BYTES, "s s")]


def _positions(ctx: Context) -> list[Parameter]:
    """Tables of positions or distances; an encoder that reads sound has its own beside its convolutions."""
    model, found = ctx.model, []
    if model.positions == "learned":
        own = model.fixed_positions != "both"
        found.append(table(POSITION_WEIGHT, model.position_rows, table_width(model), trains=own))
        if second := 0 if model.frames else model.encoder_position_rows:
            found.append(table("embedding.encoder_position_weight", second, model.hidden, trains=own))
    rows = model.position_rows if model.positions == "relative" else model.distance_buckets
    if rows:
        biases = rows * model.heads / ctx.layout.tp
        stacks = 2 if model.encoder_layers else 1
        found.append(Parameter("embedding.relative_bias", stacks * biases, "embedding", rows))
    if (latent := model.latent_attention) and latent.learned_frequencies:
        found.append(Parameter("embedding.frequencies", latent.rope_dim // 2, "vector", tensor_parallel=False))
    return found


def _masks(ctx: Context, name: str) -> list[Tensor]:
    """The mask of dropout after an embedding."""
    if not (ctx.dropout and ctx.model.embedding_dropout):
        return []
    return [Tensor(f"{name}{DROPOUT_MASK}", ctx.sharded_tokens * table_width(ctx.model), MASK_BYTES, "s b h mask")]


def _dropped(ctx: Context) -> list[Operation]:
    """Dropout by itself, where there is any."""
    masks = _masks(ctx, "embedding")
    each = ctx.precision.stream_bytes
    return [
        Operation("embedding.dropout", "elementwise", bytes_read=mask.elements * each,
                  bytes_written=mask.elements * each, shape=(mask.elements,), saved=(mask,))
        for mask in masks
    ]  # fmt: skip


def _second(ctx: Context, behind: Context) -> list[Operation]:
    """The lookup of a decoder behind an encoder, in the same table."""
    if not ctx.model.encoder_layers:
        return []
    elements, stream = behind.sharded_tokens * ctx.model.hidden, ctx.precision.stream_bytes
    saved = [Tensor("embedding.decoder_tokens", behind.layout.tokens, INDEX_BYTES, "s b"),
             *_masks(behind, DECODER_EMBEDDING)]  # fmt: skip
    return [
        Operation(
            DECODER_EMBEDDING, "embedding", bytes_read=elements * stream, bytes_written=elements * stream,
            shape=(behind.layout.tokens, ctx.model.hidden), saved=tuple(saved),
        )
    ]  # fmt: skip
