"""What encoders have between their last layer and their output: masked language models' transform, BERT's pooler.

Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A; Shoeybi et al. 2019 (arXiv:1909.08053) for the same
under tensor parallelism, where every rank holds these small matrices.
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.layers.mlp import composed_activation, intermediates
from distsim.layers.names import PREACTIVATION, TRANSFORM
from distsim.layers.norm import norm
from distsim.layers.pointwise import pointwise
from distsim.specs.model import Model


def positions(ctx: Context) -> Number:
    """Positions on this rank whose logits are computed: all tokens, those that are masked, or one per sequence."""
    model, layout = ctx.model, ctx.layout
    if model.output.predicts == "sequence-classes":
        return layout.micro_batch
    masked = not model.causal and model.output.over_vocabulary
    return layout.tokens * ctx.kernels.predicted_share if masked else layout.tokens


def own_positions(ctx: Context) -> Number:
    """Predicted positions that this rank holds between tensor-parallel regions."""
    shards = 1 if ctx.model.output.predicts == "sequence-classes" else ctx.layout.sequence_shard
    return positions(ctx) / shards


def told_width(model: Model) -> int:
    """Width of what the output layer reads."""
    return model.embedding_width or model.hidden if model.output.over_vocabulary else model.hidden


def transform(ctx: Context) -> list[Operation]:
    """Dense layer, activation, norm; empty where the model has none."""
    model, out = ctx.model, ctx.model.output
    if not out.transform:
        return []
    rows, hidden, width, act = own_positions(ctx), model.hidden, told_width(model), ctx.activation
    bias = model.mlp_bias if out.transform_bias is None else out.transform_bias
    source = Tensor("head.transform.input", rows * hidden, act, "s b h")
    before = Tensor(f"{TRANSFORM}{PREACTIVATION}", rows * width, act, "s b h")
    if out.predicts == "sequence-classes" and not ctx.precision.autocast:
        source = source._replace(elements=ctx.sharded_tokens * hidden)  # the first token, a view of all
    kind, normed = out.transform_activation or model.activation, before._replace(name="head.transform.activated")
    composed, kept = composed_activation(ctx, kind), [normed] if kind == "relu" else [before]
    if composed is not None:
        kept = intermediates(ctx, TRANSFORM, composed, before)
    found = [
        linear(ctx, "head.transform", rows, hidden, width, source, bias=bias, sharded=False, cast_input=True),
        pointwise("head.transform.activation", kept[0], "activation", tuple(kept)),
    ]
    if out.transform_norm:
        found.append(norm(ctx, "head.transform.norm", rows, width, normed))
    return found


def pooler(ctx: Context) -> list[Operation]:
    """Dense layer and tanh on the first token of each sequence, with the second output where there is one."""
    out = ctx.model.output
    if not out.pooler:
        return []
    rows, hidden, act = ctx.layout.micro_batch, ctx.model.hidden, ctx.activation
    first = Tensor("head.pooler.input", rows * hidden, act, "b h")
    dropped = out.pooler_dropped and ctx.dropout and ctx.model.hidden_dropout
    if not (out.transform or ctx.precision.autocast or dropped):
        first = first._replace(elements=ctx.sharded_tokens * hidden)  # a view of all tokens, which nothing else keeps
    pooled = Tensor("head.pooler.output", rows * hidden, act, "b h")
    found = [
        linear(ctx, "head.pooler", rows, hidden, hidden, first, bias=True, sharded=False, cast_input=True),
        pointwise("head.pooler.activation", pooled, "activation"),
    ]
    if out.sentence_classes:
        found.append(linear(ctx, "head.sentence", rows, hidden, out.sentence_classes, pooled, bias=True, sharded=False))
    return found


def trains_head(ctx: Context) -> bool:
    """Whether the output layer's weight has a gradient."""
    tuning = ctx.tuning
    tied = ctx.model.tied_embeddings and tuning is not None and tuning.trains("embedding")
    return tuning is None or tuning.trains("head") or tied
