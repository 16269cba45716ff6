"""How context parallel ranks may exchange what a model attends to."""

from typing import TYPE_CHECKING

from distsim.arrays import Number
from distsim.specs.cuts import common_kv_heads
from distsim.specs.model import Model

if TYPE_CHECKING:
    from distsim.specs.support import Supports

RING, GATHERED, TRADED = "ring", "all_gather", "all_to_all"


def context_modes(supports: "Supports", model: Model) -> tuple[str, ...]:
    """How context parallel ranks of a framework may exchange what a model attends to, the usual way first."""
    if model.compressed_attention:  # of few keys, which ranks gather
        return (GATHERED, RING, TRADED) if supports.windowed_ring else (GATHERED,)
    sinks = has_sinks(model)
    if supports.windowed_ring or (model.window is None and not sinks):
        return (RING, GATHERED, TRADED)
    return (TRADED,) if sinks else (GATHERED, TRADED)


def has_sinks(model: Model) -> bool:
    """Whether tokens attend to learned sinks, too."""
    return model.attention_sinks or bool(model.windowed and model.windowed.attention_sinks)


def whole_kv_heads(model: Model, tp: Number, cp: Number) -> Number:
    """Whether context parallel ranks divide the key-value heads of a tensor parallel rank. Latent attention makes keys
    for every head, of compressed attention ranks share out keys, not heads, and without attention there are none."""
    if model.latent_attention or model.compressed_attention or not model.attention_layers:
        return cp >= 1
    return common_kv_heads(model) // tp % cp == 0
