"""A vision tower before a decoder: patches of images, encoder layers, and the projector that makes tokens of patches.

Dosovitskiy et al. 2020 (arXiv:2010.11929), section 3.1; Liu et al. 2023 (LLaVA, arXiv:2304.08485), section 4.1. Each
tensor parallel rank has its heads of the tower; context parallel ranks each see all images of a micro-batch, since a
sequence is cut behind the tower.
"""

from __future__ import annotations

from collections.abc import Iterable

from distsim.arrays import Number, some
from distsim.layers.attention_kernel import MASK
from distsim.layers.embedding import table
from distsim.layers.layer_scale import scaled
from distsim.layers.ledger import Block, Context, Operation, Parameter, Tensor
from distsim.layers.linear import Weights, linear
from distsim.layers.mlp import activation, product
from distsim.layers.names import TOWER_KIND, VISION
from distsim.layers.network import layer_block
from distsim.layers.norm import norm
from distsim.layers.pointwise import pointwise
from distsim.layers.silent import silent, silent_start
from distsim.specs.tower import Tower
from distsim.specs.vision import ADAPTERS
from distsim.units import MASK_BYTES

WINDOWED = f"{TOWER_KIND}+window"


def tower_kinds(tower: Tower) -> tuple[str, ...]:
    """The kind of each layer: those in windows apart."""
    if tower.window is None:
        return (TOWER_KIND,) * tower.layers
    marks = tower.window_pattern or (True,)
    return tuple(WINDOWED if marks[layer % len(marks)] else TOWER_KIND for layer in range(tower.layers))


def tower_context(ctx: Context, tower: Tower, tokens: int) -> Context:
    """What a layer over ``tokens`` patches that see each other reads, of all images of a micro-batch."""
    model, layout = tower.encoder, ctx.layout
    groups = layout.micro_batch * tower.images * (tower.seen + tower.learned_tokens) / tokens
    own = layout.with_(seq=tokens, micro_batch=groups, cp=1, sequence_parallel=0, sample_tokens=0)
    kernels = ctx.kernels if ctx.tower_kernels is None else ctx.tower_kernels
    precision = ctx.precision
    if precision.autocast and not (tower.position_rows or tower.learned_tokens or tower.first_norm):
        # what autocast multiplies is all that there is on the stream: nothing in fp32 was added to it
        precision = precision.model_copy(update={"residual_bytes": precision.activation_bytes})
    return ctx._replace(
        model=model,
        layout=own,
        kernels=kernels,
        precision=precision,
        layer=0,
        vocab_padded=0,
        keys=None,
        mlp_tiles=None,
    )


def tower_block(ctx: Context, tower: Tower, kind: str) -> Block:
    """The block of a layer of one kind."""
    together = tower.seen + tower.learned_tokens
    if kind == WINDOWED and tower.window is not None:
        together = min(tower.window, together)
    inner = tower_context(ctx, tower, together)
    if tower.trains == ADAPTERS:
        block = layer_block(inner)
        return Block(kind, _finished(inner, tower, block.operations), block.boundary)
    block = layer_block(inner._replace(tuning=None))
    rows = _finished(inner, tower, block.operations)
    if tower.trains == "trained":
        return Block(kind, rows, block.boundary)
    frozen = _frozen(inner, rows)
    if runs_backward(ctx):
        return Block(kind, frozen, block.boundary)
    assert block.boundary is not None
    return Block(kind, tuple(map(silent, frozen)), block.boundary._replace(elements=0))


def _finished(ctx: Context, tower: Tower, rows: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The rows of a layer with its scales, and without a mask that all layers share; autocast makes a copy for each."""
    rows = scaled(ctx, rows) if tower.layer_scale else rows
    if ctx.precision.autocast:
        return rows
    return tuple(one._replace(saved=tuple(t for t in one.saved if t.name != MASK)) for one in rows)


def _frozen(ctx: Context, rows: Iterable[Operation]) -> tuple[Operation, ...]:
    """Rows whose weights are frozen, and beside a quantised decoder quantised as its are."""
    from distsim.layers.adapters import frozen_row, tuned

    if ctx.tuning is None or ctx.tuning.quantization is None:
        return tuple(frozen_row(ctx, one) for one in rows)
    return tuned(ctx, ctx.tuning.bare, rows)


def runs_backward(ctx: Context) -> bool:
    """Whether backward goes through a frozen tower, of layouts that agree in whether whole layers are computed again
    (engine/layouts/space.py)."""
    kernels = ctx.tower_kernels or ctx.kernels
    return kernels.recompute_reaches_inputs and bool(some(ctx.layout.recompute_layers != 0))


def tower_rows(ctx: Context, tower: Tower) -> list[Operation]:
    """What is before and behind the layers: patches by one matrix, positions, norms, projectors, tokens in place."""
    inner = tower_context(ctx, tower, tower.seen + tower.learned_tokens)
    before: Iterable[Operation] = _patches(inner, tower)
    behind: Iterable[Operation] = _projectors(inner, tower, ctx.model.hidden)
    if tower.trains != "trained":
        before = map(silent, _frozen(inner, before))
    if tower.trains == ADAPTERS:
        behind = _frozen(inner, behind)
    elif tower.trains == "frozen":
        behind = map(silent, _frozen(inner, behind))
    elif tower.trains != "trained":
        behind = silent_start(tuple(behind), 0)
    return [*before, *behind, _placed(ctx, tower)]


def _stream(ctx: Context, name: str) -> Tensor:
    return Tensor(name, ctx.layout.tokens * ctx.model.hidden, ctx.precision.stream_bytes, "s b h")


def _patches(ctx: Context, tower: Tower) -> list[Operation]:
    """Each patch by one matrix, learned positions on it, the norm before the first layer."""
    layout, stream = ctx.layout, ctx.precision.stream_bytes
    squares = layout.tokens * tower.seen / (tower.seen + tower.learned_tokens)
    values = tower.channels * tower.frames * tower.patch**2
    pixels = Tensor(f"{VISION}pixels", squares * values, ctx.activation, "b c h w")
    rows = [linear(ctx, f"{VISION}patches", squares, values, tower.hidden, pixels, bias=tower.patch_bias,
                   sharded=False)]  # fmt: skip
    rows = _with_extra(rows, f"{VISION}unread", tower.extra)
    tables = []
    if tower.learned_tokens:
        tables.append(table(f"{VISION}learned_tokens", tower.learned_tokens, tower.hidden))
    if tower.position_rows:
        tables.append(table(f"{VISION}position_weight", tower.position_rows, tower.hidden))
    if tables:
        moved = 2 * layout.tokens * tower.hidden * stream
        rows.append(Operation(f"{VISION}positions", "elementwise", bytes_read=moved, bytes_written=moved,
                              shape=(layout.tokens * tower.hidden,), parameters=tuple(tables)))  # fmt: skip
    if tower.first_norm:
        rows.append(norm(ctx, f"{VISION}first_norm", layout.tokens, tower.hidden, _stream(ctx, f"{VISION}embedded")))
    return rows


def _projectors(ctx: Context, tower: Tower, width: int) -> list[Operation]:
    """The norm behind the last layer, the projector, and those of layers whose output goes to the decoder too."""
    rows = []
    if tower.final_norm:
        rows.append(norm(ctx, f"{VISION}final_norm", ctx.layout.tokens, tower.hidden, _stream(ctx, f"{VISION}output")))
    rows += _projector(ctx, tower, width, f"{VISION}projector", merged=tower.projector.norm_merged)
    for layer in range(tower.deepstack):
        rows += _projector(ctx, tower, width, f"{VISION}deepstack.{layer}", merged=True)
    return rows


def _projector(ctx: Context, tower: Tower, width: int, name: str, *, merged: bool) -> list[Operation]:
    own = tower.projector
    tokens = ctx.layout.micro_batch * tower.tokens_of(tower.seen)
    inner = tower.hidden * (1 if own.pooled else own.patches)
    rows: list[Operation] = []
    if own.norm != "none":
        normed = ctx._replace(model=ctx.model.model_copy(update={"norm": own.norm}))
        patches = tokens * (1 if own.pooled else own.patches)
        size = (tokens, inner) if merged else (patches, tower.hidden)
        source = Tensor(f"{name}.entered", tokens * inner, ctx.precision.stream_bytes, "s b h")
        rows.append(norm(normed, f"{name}.norm", *size, source, affine=own.norm_affine))
    if own.merged is not None:
        rows.append(_product(ctx, f"{name}.merged", tokens, inner, own.merged, bias=own.merged_bias))
        inner = own.merged
    for place, outer in enumerate((*own.widths, width)):
        rows.append(_product(ctx, f"{name}.{place}", tokens, inner, outer, bias=own.bias))
        if place < len(own.widths):
            rows.append(pointwise(f"{name}.activation.{place}", Tensor(
                f"{name}.raw.{place}", tokens * outer, ctx.activation, "s b h")))  # fmt: skip
        inner = outer
    if own.gated_ffn is not None:
        rows += _gated(ctx, own.gated_ffn, tokens, width, f"{name}.mlp")
    return _with_extra(rows, f"{name}.rows", own.extra)


def _product(ctx: Context, name: str, tokens: Number, inner: Number, outer: Number, *, bias: bool) -> Operation:
    kept = Tensor(f"{name}.input", tokens * inner, ctx.precision.kept_input_bytes, "s b h")
    return linear(ctx, name, tokens, inner, outer, kept, bias=bias, sharded=False)


def _gated(ctx: Context, ffn: int, tokens: Number, width: int, name: str) -> list[Operation]:
    """A layernorm and an activation, then a gated MLP that every tensor parallel rank holds whole."""
    plain = ctx._replace(model=ctx.model.model_copy(update={"norm": "layernorm", "gated": True}))
    entered = Tensor(f"{name}.entered", tokens * width, ctx.precision.stream_bytes, "s b h")
    raw = Tensor(f"{name}.raw", tokens * width, ctx.activation, "s b h")
    kept = Tensor(f"{name}.input", tokens * width, ctx.precision.kept_input_bytes, "s b h")
    return [
        norm(plain, f"{name}.norm", tokens, width, entered),
        pointwise(f"{name}.before", raw),
        linear(ctx, f"{name}.up", tokens, width, 2 * ffn, kept, weights=Weights(2), sharded=False),
        activation(plain, name, tokens, ffn)._replace(recompute_class=""),
        linear(ctx, f"{name}.down", tokens, ffn, width, product(ctx, name, tokens, ffn), sharded=False),
    ]


def _with_extra(rows: list[Operation], name: str, elements: int) -> list[Operation]:
    """The rows, the last of which holds further parameters that cost no time."""
    if not elements:
        return rows
    extra = Parameter(name, elements, "vector", tensor_parallel=False)
    return [*rows[:-1], rows[-1]._replace(parameters=(*rows[-1].parameters, extra))]


def _placed(ctx: Context, tower: Tower) -> Operation:
    """Images' tokens put where the text has places for them: all of the sequence is copied by a mask, which is kept."""
    elements, stream = ctx.layout.tokens * ctx.model.hidden, ctx.precision.stream_bytes
    mask = Tensor(f"{VISION}mask", ctx.layout.tokens, MASK_BYTES, "s b mask")
    trains = tower.trains != "frozen" or ctx.tuning is None
    return Operation(
        f"{VISION}placed", "elementwise", bytes_read=elements * (stream + MASK_BYTES), bytes_written=elements * stream,
        shape=(elements,), saved=(mask,) if trains else (), backward=trains,
    )  # fmt: skip
