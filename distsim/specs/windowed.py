"""What attention within a sliding window has otherwise than attention to all tokens of the same model."""

from distsim.specs.base import Spec
from distsim.specs.latent import LatentAttention
from distsim.specs.quantity import MaybeCount, QueryKeyNorm


class Windowed(Spec):
    """Fields of the model that layers with the window have their own of; None means the model's."""

    heads: MaybeCount = None
    kv_heads: MaybeCount = None
    attention_sinks: bool | None = None
    qk_norm: QueryKeyNorm | None = None
    latent_attention: LatentAttention | None = None
    """Ranks and widths of such layers where the model's attention is latent (dots3)."""
