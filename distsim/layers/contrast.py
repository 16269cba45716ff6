"""The end of two stacks that are held against each other: projections to one width, and a loss over all pairs.

Radford et al. 2021 (arXiv:2103.00020), section 2.3 and figure 3. Pairs are those of one rank's micro-batch, as in
transformers; implementations that gather the features of all ranks exchange and keep more.
"""

from __future__ import annotations

from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.names import LOSS, UPCAST
from distsim.layers.norm import norm
from distsim.units import FP32_BYTES


def contrast(ctx: Context) -> list[Operation]:
    """Norms at the end of both stacks, projections of one token of each, similarities, loss."""
    behind = ctx._replace(layer=ctx.model.layers - 1).side
    assert ctx.model.text is not None
    width = ctx.model.text.projection
    return [*_end(ctx, "image", width), *_end(behind, "text", width), _loss(ctx)]


def _end(ctx: Context, name: str, width: int) -> list[Operation]:
    """The class token of an image, a view of all its tokens; all tokens of a text, of which the last is taken."""
    model, batch, act = ctx.model, ctx.layout.micro_batch, ctx.activation
    rows = batch if model.patches else ctx.sharded_tokens
    whole = Tensor(f"head.{name}", ctx.sharded_tokens * model.hidden, ctx.precision.stream_bytes, "s b h")
    taken = Tensor(f"head.{name}.taken", batch * model.hidden, act, "b h")
    return [
        norm(ctx, f"head.{name}_norm", rows, model.hidden, whole),
        linear(ctx, f"head.{name}_projection", batch, model.hidden, width, taken, sharded=False),
    ]


def _loss(ctx: Context) -> Operation:
    """Similarities of all pairs, by rows and by columns."""
    batch, act = ctx.layout.micro_batch, ctx.activation
    text = ctx.model.text
    assert text is not None
    wide = FP32_BYTES if ctx.precision.autocast else act
    features = Tensor("loss.features", 4 * batch * text.projection, act, "b p")
    logits = batch * batch
    saved = [
        features, Tensor("loss.similarities", logits, act, "b b"), Tensor("loss.log_softmax", 2 * logits, act, "b b"),
    ]  # fmt: skip
    if wide != act:
        saved.append(Tensor("loss.log_softmax_fp32", 2 * logits, wide, "b b fp32"))
    return Operation(
        LOSS, "loss", bytes_read=logits * act, bytes_written=logits * wide, shape=(batch, batch), saved=tuple(saved),
        transient_backward=(Tensor(UPCAST, logits, wide, "b b fp32"),),
        parameters=(Parameter("loss.temperature", 1, "vector", tensor_parallel=False),),
    )  # fmt: skip
