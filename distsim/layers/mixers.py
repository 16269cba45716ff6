"""What a layer consists of: attention or what stands in its place, and an MLP or experts. Only the files of what a
model has are loaded (start-up)."""

from __future__ import annotations

from collections.abc import Callable

from distsim.layers.attention import attention, residual
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.mlp import mlp
from distsim.specs.model import Model

Mixer = Callable[[Context, Tensor], list[Operation]]


def attend(model: Model, layer: int) -> Mixer:
    """The function that makes the operations before a layer's MLP: of attention, or of what stands in its place."""
    if model.is_recurrent(layer):
        return _recurrent
    if model.compressed_attention:
        from distsim.layers.compressed_attention import compressed_attention

        return compressed_attention
    if model.latent_attention:
        from distsim.layers.mla import latent_attention

        return latent_attention
    return attention


def feed(model: Model, layer: int) -> Mixer:
    """A layer's MLP, its experts, or both side by side."""
    if not model.is_moe_layer(layer):
        return mlp
    if model.experts is not None and model.experts.beside_mlp:
        from distsim.layers.moe_beside import experts_beside_attention, experts_beside_mlp

        return experts_beside_attention if model.experts.beside_mlp == "attention" else experts_beside_mlp
    from distsim.layers.moe import moe

    return moe


def single(kind: str) -> Mixer:
    """The one mixer of a layer of a hybrid, by its name."""
    if kind == "mamba":
        return _mamba
    if kind == "moe":
        from distsim.layers.moe import moe

        return moe
    return attention if kind == "attention" else mlp


def _recurrent(ctx: Context, source: Tensor) -> list[Operation]:
    """A mixer that is no attention, and the addition to the residual stream; attention too where it stands beside."""
    kind = ctx.model.recurrent_mixer
    if ctx.model.mixer_beside:  # each reads a copy of the input, scaled by a factor of its own
        return [*_mamba(ctx, source._replace(name="mamba.input")), *attention(ctx, source)]
    if kind == "mamba":
        return _mamba(ctx, source)
    return [*_in_place(kind)(ctx, source), *residual(ctx, f"{kind}.residual")]


def _in_place(kind: str) -> Mixer:
    """The mixer of that name in attention's place, one of ``RECURRENT``."""
    if kind == "delta":
        from distsim.layers.delta import delta

        return delta
    if kind == "convolution":
        from distsim.layers.short_convolution import short_convolution

        return short_convolution
    if kind == "lightning":
        from distsim.layers.lightning import lightning

        return lightning
    from distsim.layers.linear_recurrence import linear_recurrence

    return linear_recurrence


def _mamba(ctx: Context, source: Tensor) -> list[Operation]:
    """Mamba-1 or Mamba-2, and the addition to the residual stream."""
    if ctx.model.mamba is not None and ctx.model.mamba.step_rank:
        from distsim.layers.selective_scan import selective_scan as mixer
    else:
        from distsim.layers.mamba import mamba as mixer
    return [*mixer(ctx, source), *residual(ctx, "mamba.residual")]
