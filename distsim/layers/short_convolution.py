"""Gated short convolutions (LFM2, arXiv:2511.23404, section 2.1): one product in, two gates around a convolution of few
tokens, one product out."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import Bias, linear
from distsim.layers.tensor_parallel import column_collectives, row_collectives


def short_convolution(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one mixer; ``source`` is the normalised input."""
    model, tokens, act = ctx.model, ctx.layout.tokens, ctx.activation
    mixer = model.convolution
    assert mixer is not None
    width = model.hidden / ctx.layout.tp
    channels = Tensor("convolution.projected", 3 * tokens * width, act, "s b 3h/t")
    gated = Tensor("convolution.gated_input", tokens * width, act, "s b h/t")
    convolved = Tensor("convolution.convolved", tokens * width, act, "s b h/t")
    whole = gated.size_bytes
    parameters = [Parameter("convolution.weight", width * mixer.taps, "vector")]
    if mixer.bias:
        parameters.append(Parameter("convolution.bias", width, "vector"))
    return [
        linear(ctx, "convolution.project_in", tokens, model.hidden, 3 * width, source, bias=mixer.bias,
               cast_input=True, collectives=column_collectives(ctx)),
        _pass("convolution.gate", 2 * whole, whole, channels, ()),
        _pass("convolution.convolve", whole, whole, gated, tuple(parameters)),
        _pass("convolution.gate_output", 2 * whole, whole, convolved, ()),
        linear(ctx, "convolution.project_out", tokens, width, model.hidden,
               Tensor("convolution.gated", tokens * width, ctx.precision.kept_input_bytes, "s b h/t"),
               bias=mixer.bias and Bias(whole=True), collectives=row_collectives(ctx)),
    ]  # fmt: skip


def _pass(name: str, read: Number, written: Number, kept: Tensor, parameters: tuple[Parameter, ...]) -> Operation:
    return Operation(
        name, "elementwise", bytes_read=read, bytes_written=written, shape=(kept.elements,), saved=(kept,),
        transient_backward=(kept._replace(name=f"{name}.gradient"),), parameters=parameters,
    )  # fmt: skip
