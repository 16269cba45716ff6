"""What some layers of one stack have otherwise than the rest: wider heads, keys that others made, inputs of their own;
and residual streams side by side.

Gemma 4 and 3n (transformers, models/gemma4, models/gemma3n) have them.
"""

from pydantic import Field

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, MaybeCount, Natural


class GlobalAttention(Spec):
    """Attention in the layers without a window, where it has other heads than in those with one."""

    head_dim: Count
    kv_heads: Count
    keys_as_values: bool = False
    """One projection makes both; keys and values differ by their norms and rotation."""


class SharedKeys(Spec):
    """The last layers make no keys and values: they read those of the last layer of their kind (with a window or
    without) before them."""

    layers: Count
    ffn: MaybeCount = None
    """Inner width of their MLP; None means the same as elsewhere."""


class LayerInputs(Spec):
    """Per-layer embeddings: a second table gives each token a narrow vector for every layer, to which a projection of
    the token's embedding is added; each layer multiplies its own into a narrow branch behind its MLP."""

    width: Count
    """Elements for one layer."""
    rows: Natural
    """Rows of the table, which has ``width`` columns per layer; 0: there is the projection alone (EmbeddingGemma 2)."""


class Streams(Spec):
    """Several residual streams, one of which passes attention and MLP: each layer predicts all of them from all, and
    corrects them by what became of that one (Baykal et al. 2023, alternating updates, arXiv:2301.13310)."""

    count: int = Field(ge=2)
    bypass_rank: Count
    """Rank of the projection around attention (Menghani et al. 2024, LAuReL, arXiv:2411.07501)."""
    cutoff_layers: tuple[int, ...] = ()
    """Layers (from 0) whose MLPs set to zero what is below a cutoff of their gate, by its mean and deviation."""
