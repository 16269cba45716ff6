"""Logits of a loss that a compiled module takes itself."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formulas.loss import compiled_logit_kept, compiled_logit_transit
from distsim.layers.ledger import Context
from distsim.units import FP32_BYTES


def compiled(ctx: Context) -> bool:
    """Whether a compiled module takes its loss of whole logits, and what it gives beside it is known."""
    return ctx.kernels.loss == "fused" and ctx.kernels.loss_gives is not None and ctx.kernels.loss_chunks == 1


def kept_of_each(ctx: Context) -> Number:
    """Bytes of each logit that live until backward."""
    return compiled_logit_kept(ctx.activation, _given(ctx), ctx.model.caps_logits)


def moved_of_each(ctx: Context) -> Number:
    """Bytes of each logit in transit beside these."""
    return compiled_logit_transit(ctx.activation, _given(ctx))


def _given(ctx: Context) -> Number:
    """Bytes of each logit that the module returns beside its loss."""
    return {"nothing": 0, "narrow": ctx.activation, "wide": FP32_BYTES}[ctx.kernels.loss_gives or "nothing"]
