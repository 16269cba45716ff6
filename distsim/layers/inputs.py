"""What comes before the first layer where no words are looked up: squares of an image, frames of a spectrogram.

Dosovitskiy et al. 2020 (arXiv:2010.11929), section 3.1; Radford et al. 2022 (arXiv:2212.04356), section 2.2.
"""

from __future__ import annotations

from distsim.layers.embedding import table
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.layers.names import POSITION_WEIGHT, PROJECTIONS
from distsim.layers.pointwise import pointwise


def patch_rows(ctx: Context) -> list[Operation]:
    """Each square by one matrix; learned tokens before them, learned positions on all."""
    model, layout, stream = ctx.model, ctx.layout, ctx.precision.stream_bytes
    patches = model.patches
    assert patches is not None
    squares = layout.micro_batch * (layout.seq - patches.learned_tokens)
    pixels = Tensor("embedding.pixels", squares * patches.values, ctx.activation, "b c h w")
    elements = ctx.sharded_tokens * model.hidden
    parameters = []
    if patches.learned_tokens:
        parameters.append(table("embedding.learned_tokens", patches.learned_tokens, model.hidden))
    if model.positions == "learned":
        parameters.append(table(POSITION_WEIGHT, model.position_rows, model.hidden))
    return [
        linear(ctx, PROJECTIONS[0], squares, patches.values, model.hidden, pixels, bias=patches.bias, sharded=False),
        Operation(
            "embedding.positions", "elementwise", bytes_read=2 * elements * stream, bytes_written=2 * elements * stream,
            shape=(elements,), parameters=tuple(parameters),
            transient_backward=(Tensor("embedding.output_gradient", elements, stream, "s b h"),),
        ),
    ]  # fmt: skip


def frame_rows(ctx: Context) -> list[Operation]:
    """Two convolutions, the second with a stride, each with its activation; positions of the encoder."""
    model, layout, act = ctx.model, ctx.layout, ctx.activation
    frames = model.frames
    assert frames is not None
    heard = layout.tokens * frames.per_token
    sound = Tensor("embedding.sound", heard * frames.bins, act, "s b m")
    first = Tensor("embedding.frames.first_output", heard * model.hidden, act, "s b h")
    middle = first._replace(name="embedding.frames.first_activated")
    second = Tensor("embedding.frames.second_output", layout.tokens * model.hidden, act, "s b h")
    positions = table(
        "embedding.encoder_position_weight", model.encoder_position_rows, model.hidden,
        trains=model.fixed_positions == "none",
    )  # fmt: skip
    return [
        linear(ctx, f"{PROJECTIONS[1]}.first", heard, frames.taps * frames.bins, model.hidden, sound, bias=True,
               sharded=False),
        pointwise(f"{PROJECTIONS[1]}.first_activation", first),
        linear(ctx, f"{PROJECTIONS[1]}.second", layout.tokens, frames.taps * model.hidden, model.hidden, middle,
               bias=True, sharded=False),
        pointwise(f"{PROJECTIONS[1]}.second_activation", second)._replace(parameters=(positions,)),
    ]  # fmt: skip
