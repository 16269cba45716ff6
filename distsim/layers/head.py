"""The final norm, the output layer and the loss."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, ceil_div, maximum, some, where
from distsim.layers.compiled_loss import compiled, kept_of_each, moved_of_each
from distsim.layers.hyper_connections import collected
from distsim.layers.ledger import Block, Collective, Context, Operation, Parameter, Tensor, saved_bytes
from distsim.layers.linear import linear
from distsim.layers.mtp import SHARED_EMBEDDING, after_modules, again, own_rows, predictions
from distsim.layers.names import DROPOUT_MASK, HEAD, HEAD_WEIGHT, LOSS, SOFTCAP, UNUSED, UPCAST
from distsim.layers.norm import norm
from distsim.layers.prediction import own_positions, pooler, positions, told_width, trains_head, transform
from distsim.layers.tensor_parallel import column_collectives
from distsim.units import FP32_BYTES, INDEX_BYTES, MASK_BYTES

GIVEN = "encoder.given"
TOGETHER = ("with-head", "cut")
"""Losses that make the product of an output layer over the vocabulary themselves."""


def head(ctx: Context) -> list[Operation]:
    """Operations after the last layer, those of multi-token prediction last. A tied output layer lists its matrix here
    too, marked by its name."""
    rows = _head(ctx)
    return rows + predictions(ctx, rows)


def losses(ctx: Context) -> list[Operation]:
    """Those where modules of multi-token prediction are on a stage before it: output layers and losses alone."""
    rows = _head(ctx)
    start = _entering(rows)
    return [*rows[start:], *(row for more in after_modules(ctx, rows[start:]) for row in more)]


def module(ctx: Context, depth: int) -> tuple[list[Operation], list[Operation]]:
    """A module's rows before its layer and behind it, on a stage without the loss: the first has the model's last norm
    before it."""
    rows = _head(ctx)
    before, behind = rows[: _entering(rows)], rows[: _entering(rows)]
    return [*(before if depth == 0 else []), *own_rows(ctx, depth)], again(behind, depth)


def _entering(rows: list[Operation]) -> int:
    """Where the output layer begins among the rows of a head."""
    return next(place for place, row in enumerate(rows) if row.role == "head")


def _head(ctx: Context) -> list[Operation]:
    if ctx.model.text:
        from distsim.layers.contrast import contrast

        return contrast(ctx)
    before, ctx = _encoder_end(ctx), ctx._replace(layer=ctx.model.layers - 1).side
    model, layout = ctx.model, ctx.layout
    stream = Tensor("head.input", ctx.sharded_tokens * model.hidden, ctx.stream_bytes, "s b h")
    operations = [*before, *collected(ctx)]
    if model.final_norm:
        bias = model.final_norm_bias
        operations.append(norm(ctx, "final_norm", ctx.sharded_tokens, model.hidden, stream, bias=bias))
        operations += _end_dropout(ctx, "final_norm")
    width = told_width(model)
    if width != model.hidden and not model.output.transform:
        source = Tensor("head.wide", layout.tokens * model.hidden, ctx.activation, "s b h")
        operations.append(linear(ctx, "head.project_out", layout.tokens, model.hidden, width, source, sharded=False))
    operations += [*pooler(ctx), *transform(ctx), *_output(ctx, width), _loss(ctx)]
    if ctx.kernels.loss in TOGETHER and model.output.over_vocabulary:
        from distsim.layers.fused_loss import together

        operations[-2:] = together(ctx, *operations[-2:])
    return _with_unused(operations, model.output.unused)


def _encoder_end(ctx: Context) -> list[Operation]:
    """The norm after an encoder's last layer where it has one, whose output all layers of a decoder read."""
    model = ctx.model
    if not model.encoder_layers:
        return []
    stream = Tensor("encoder.output", ctx.sharded_tokens * model.hidden, ctx.precision.stream_bytes, "s b h")
    given = stream._replace(name=GIVEN, bytes_each=ctx.precision.kept_input_bytes)
    kept = () if ctx.precision.autocast else (given,)
    if not model.final_norm:  # the last layer ends in a norm (BART)
        return [Operation("encoder.end", "copy", saved=kept)]
    last = norm(ctx, "encoder.norm", ctx.sharded_tokens, model.hidden, stream)
    return [last._replace(saved=(*last.saved, *kept)), *_end_dropout(ctx, "encoder")]


def encoder_end_bytes(head: Block) -> Number:
    """What the end of an encoder keeps until its own backward, beside what its decoder reads."""
    rows = (row for row in head.operations if row.name.startswith("encoder."))
    return saved_bytes(row._replace(saved=tuple(t for t in row.saved if t.name != GIVEN)) for row in rows)


def _end_dropout(ctx: Context, name: str) -> list[Operation]:
    """Dropout after the last norm of a stack where positions are relative (T5)."""
    if not (ctx.model.positions == "relative" and ctx.dropout and ctx.model.hidden_dropout):
        return []
    elements, each = ctx.sharded_tokens * ctx.model.hidden, ctx.precision.stream_bytes
    mask = Tensor(f"{name}{DROPOUT_MASK}", elements, MASK_BYTES, "s b h mask")
    return [
        Operation(
            f"{name}.dropout", "elementwise", bytes_read=elements * each, bytes_written=elements * each,
            shape=(elements,), saved=(mask,),
        )
    ]  # fmt: skip


def _output(ctx: Context, width: int) -> list[Operation]:
    """The output layer: over the vocabulary, or over the classes of a task, which no rank shares out."""
    model, rows = ctx.model, own_positions(ctx)
    out = model.output
    pooled = out.pooler and out.predicts == "sequence-classes"
    source = Tensor("head.normalised", rows * width, ctx.activation, "s b h")
    if pooled:
        source = source._replace(name="head.pooler.output")
    elif out.predicts == "sequence-classes" and not (out.transform or ctx.precision.autocast):
        source = source._replace(elements=ctx.sharded_tokens * width)  # the first token is a view of all
    if out.over_vocabulary:
        shard = ctx.vocab_padded / ctx.layout.vocab_ranks
        collectives = column_collectives(ctx, narrow=False, width=width)
        return [
            linear(ctx, HEAD, positions(ctx), width, shard, source, bias=model.head_bias, cast_input=True,
                   collectives=collectives)._replace(role="head")
        ]  # fmt: skip
    if out.projection:
        return [linear(ctx, "head.projection", rows, width, out.projection, source, cast_input=True, sharded=False)]
    if not out.classes:
        return []
    row = linear(ctx, HEAD, rows, width, out.classes, source, bias=True, cast_input=True, sharded=False)
    return [row._replace(role="head")]


def _with_unused(operations: list[Operation], unused: int) -> list[Operation]:
    """The rows, the first of which holds what no loss reads."""
    if not unused:
        return operations
    first = operations[0]
    held = Parameter(UNUSED, unused, "vector", tensor_parallel=False)
    return [first._replace(parameters=(*first.parameters, held)), *operations[1:]]


def _logits(ctx: Context) -> tuple[Number, Number, Number]:
    """Positions, their logits each, and the ranks that share these out."""
    out, layout = ctx.model.output, ctx.layout
    if out.over_vocabulary:
        shards = (1 + (layout.tp - 1) * layout.loss_parallel) * (layout.vocab_ranks / layout.tp)
        return positions(ctx), ctx.vocab_padded, shards
    return own_positions(ctx), out.classes, 1


class _Logits(NamedTuple):
    """The logits of a loss: their numbers, and the tensors that are made of them."""

    whole: Number
    """Of all positions on this rank, or of one chunk where the loss keeps no more."""
    chunk: Number
    words: Number
    """Of one position on this rank."""
    wide: Number
    """Bytes of one in the loss's own arithmetic."""
    half: Tensor
    given: Tensor
    """As the output layer gave them: all chunks', where each is a product of its own."""
    upcast: Tensor
    recast: bool
    """Log-softmax in the logits' own type, which autocast then casts for the loss proper."""


def _loss(ctx: Context) -> Operation:
    """Cross entropy. The fp32 logits (or their log-softmax) are the largest single tensor of many jobs."""
    everywhere, each, shards = _logits(ctx)
    of = _tensors_of(ctx, everywhere, each / shards)
    forward, backward = _loss_forward(ctx, of), _loss_backward(ctx, of)
    if ctx.kernels.loss == "eager" and some(_shared_out(ctx)):
        shifted = Tensor("loss.shifted", of.chunk * _shared_out(ctx), of.wide, "s b v/t fp32")
        forward, backward = (*forward, shifted), (*backward, shifted)
    return Operation(
        LOSS,
        "loss",
        bytes_read=of.chunk * ctx.activation,
        bytes_written=of.chunk * of.wide,
        shape=(everywhere, of.words),
        saved=_loss_saved(ctx, of, everywhere),
        transient_forward=forward,
        transient_backward=backward,
        collectives=_loss_collectives(ctx) if ctx.model.output.over_vocabulary else (),
    )


def _tensors_of(ctx: Context, everywhere: Number, words: Number) -> _Logits:
    """The tensors of logits of ``everywhere`` positions, ``words`` each."""
    kernels, act, chunks = ctx.kernels, ctx.activation, ctx.kernels.loss_chunks
    eager = kernels.loss == "eager"
    chunk = (everywhere if chunks == 1 else ceil_div(everywhere, chunks)) * words
    whole = everywhere * words if kernels.loss_keeps_chunks else chunk
    wide = FP32_BYTES if kernels.loss_upcast is True or ctx.precision.autocast else act
    half = Tensor("loss.logits", chunk, act, "s b v/t")
    if compiled(ctx):
        half = half._replace(bytes_each=moved_of_each(ctx))
    elif not eager and kernels.loss_transit_bytes is not None:
        half = half._replace(bytes_each=kernels.loss_transit_bytes)
    return _Logits(
        whole, chunk, words, wide, half, half._replace(elements=whole) if eager else half,
        Tensor(UPCAST, chunk, wide, "s b v/t fp32"),
        eager and ctx.precision.autocast and not kernels.loss_upcast,
    )  # fmt: skip


def _loss_saved(ctx: Context, of: _Logits, everywhere: Number) -> tuple[Tensor, ...]:
    """What the loss keeps for backward."""
    kernels, act, eager = ctx.kernels, ctx.activation, ctx.kernels.loss == "eager"
    saved = [Tensor("loss.log_softmax", of.whole, of.wide, "s b v/t fp32")]
    if not eager:
        each = kept_of_each(ctx) if compiled(ctx) else max(kernels.loss_kept_bytes, act)
        saved = [Tensor("loss.logits_kept", of.whole, each, "s b v/t")]
    if of.recast:
        saved.append(Tensor("loss.narrow_log_softmax", of.whole, act, "s b v/t"))
    if eager:
        saved += [Tensor("loss.targets", everywhere, INDEX_BYTES, "s b"), Tensor("loss.weight", 1, of.wide, "1")]
    if ctx.model.caps_logits and (eager or kernels.compiler == "none"):
        saved.append(Tensor(f"{LOSS}{SOFTCAP}", of.chunk, act, "s b v/t"))
    return tuple(saved)


def _loss_forward(ctx: Context, of: _Logits) -> tuple[Tensor, ...]:
    """What is alive when the log-softmax is made: the logits, with their fp32 upcast where a loss is eager."""
    kernels, eager = ctx.kernels, ctx.kernels.loss == "eager"
    found: tuple[Tensor, ...] = (of.given,)
    if eager and not of.recast and ctx.activation != of.wide:
        found = (of.upcast,) if kernels.loss_frees_narrow else (of.given, of.upcast)
    if kernels.loss_shifted and eager and ctx.model.output.over_vocabulary:
        several = where(ctx.layout.micro_batch > 1, of.chunk, 0)
        found = (*found, Tensor("loss.shift_copy", several, of.wide, "s b v/t"))
    return found


def _loss_backward(ctx: Context, of: _Logits) -> tuple[Tensor, ...]:
    """The gradients of the log-softmax and of its input, which is 16 bits wide where nothing was upcast, and logits
    that something still refers to."""
    kernels = ctx.kernels
    if kernels.loss != "eager":
        return (of.half,)
    widened = kernels.loss_upcast is True or (kernels.loss_upcast == "autocast" and ctx.precision.autocast)
    found: tuple[Tensor, ...] = (of.upcast, of.upcast if widened else of.half)
    if kernels.loss_gathered:
        found = (of.upcast, of.upcast, of.upcast)
    elif of.recast:
        found = (of.upcast,)
    elif kernels.loss_sliced:
        found = (of.half,)
    if kernels.loss_keeps_chunks and kernels.loss_chunks > 1 and trains_head(ctx):
        found = (*found, _weight_gradients(ctx, of))
    if kernels.loss_holds_logits:
        narrow = kernels.loss_holds_logits == "narrow" and not kernels.loss_frees_narrow
        found = (*found, of.half if narrow else of.upcast)
    return found


def _weight_gradients(ctx: Context, of: _Logits) -> Tensor:
    """What the products of a chunked loss's output layer add to the moment when the first chunk's loss is
    differentiated. Autograd takes the latest nodes first: the losses of all chunks, which leaves the gradients of all
    logits, then each chunk's product, whose weight's gradient is added to those before it."""
    each = ctx.activation  # of what the products read, whatever weights are stored in
    rows = ctx.vocab_padded / ctx.layout.vocab_ranks if ctx.model.output.over_vocabulary else of.words
    more = 2 * rows * told_width(ctx.model) + (of.whole * (each - of.wide) - 2 * of.chunk * of.wide) / each
    return Tensor("loss.weight_gradients", maximum(more, 0), each, "h v/t")


def _shared_out(ctx: Context) -> Number:
    """Whether ranks share out a loss in plain torch, whose log-softmax is then composed: the logits less their maximum
    are one more tensor forward, the exponentials backward (torch/distributed/tensor/parallel/loss.py)."""
    return where(ctx.layout.tp > 1, ctx.layout.loss_parallel, 0) * ctx.model.output.over_vocabulary


def _loss_collectives(ctx: Context) -> tuple[Collective, ...]:
    """Maximum, sum and target over the ranks that share the vocabulary, or its logits gathered."""
    layout, tokens = ctx.layout, positions(ctx)
    sharded = where(layout.tp > 1, layout.loss_parallel, 0)
    gathered = tokens * ctx.vocab_padded * ctx.activation * where(layout.tp > 1, 1 - layout.loss_parallel, 0)
    number = tokens * FP32_BYTES * sharded
    one = Collective("all_reduce", "tp", number, "forward", bytes_each=FP32_BYTES)
    exchanged = {
        "sums": (one._replace(calls=3),), "joined": (one, one._replace(bytes_logical=2 * number)),
        "gathered": (one._replace(op="all_gather", bytes_logical=4 * number * layout.tp),),
    }  # fmt: skip
    return (*exchanged[ctx.kernels.loss_exchange], Collective("all_gather", "tp", gathered, "forward"))


def tied_parameter(parameter: Parameter, ctx: Context) -> bool:
    """Whether this parameter is a view of the embedding: the output layer's, or that of multi-token prediction."""
    return parameter.name == SHARED_EMBEDDING or (ctx.model.tied_embeddings and parameter.name == HEAD_WEIGHT)
