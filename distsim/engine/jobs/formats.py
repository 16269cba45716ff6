"""Recipes of part of a network: in one format throughout, without narrow copies, of embeddings in 16 bits."""

from __future__ import annotations

import functools

from distsim.specs.model import Model
from distsim.specs.precision import Precision


def plain(precision: Precision, each: float) -> Precision:
    """Parameter, gradient and states in one format, no master copy."""
    return without_copies(precision).model_copy(
        update={"parameter_bytes": each, "gradient_bytes": each, "state_bytes": each, "master_bytes": 0.0}
    )


def without_copies(precision: Precision) -> Precision:
    """The recipe for adapters: their products are not in 8 bits, so neither are they."""
    wide = max(precision.parameter_bytes, precision.activation_bytes)
    return precision.model_copy(update={"parameter_bytes": wide, "weight_copy_bytes": 0.0, "transpose_bytes": 0.0})


@functools.lru_cache(maxsize=64)
def of_narrow_embeddings(precision: Precision) -> Precision:
    """That of embeddings in 16 bits: gradients and states are as wide as they are (karpathy/nanochat gpt.py, adamw.py:
    states are zeros like the parameter)."""
    return plain(precision, precision.activation_bytes)


def with_narrow_stream(precision: Precision, model: Model) -> Precision:
    """The recipe with the residual stream that such embeddings begin: autocast's products give 16 bits, and adding them
    to as many gives no more."""
    narrow = model.narrow_embeddings and precision.autocast
    return precision.model_copy(update={"residual_bytes": None}) if narrow else precision
