"""What some layers of one stack have otherwise than the rest: wider heads, keys that others made, inputs of their own,
sizes layer by layer; and residual streams side by side.

Gemma 4 and 3n (transformers, models/gemma4, models/gemma3n) have them, but for the sizes.
"""

from typing import Self

from pydantic import Field, model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, MaybeCount, Natural


class GlobalAttention(Spec):
    """Attention in the layers without a window, where it has other heads than in those with one."""

    head_dim: Count
    kv_heads: Count
    keys_as_values: bool = False
    """One projection makes both; keys and values differ by their norms and rotation."""


class SharedKeys(Spec):
    """The last ``layers`` make no keys and values: they read those of the last layer of their kind (with a window or
    without) before them. Or the first of ``every`` so many layers makes those of all (Brandon et al. 2024, cross-layer
    attention, arXiv:2405.12981)."""

    layers: MaybeCount = None
    every: MaybeCount = None
    ffn: MaybeCount = None
    """Inner width of their MLP; None means the same as elsewhere."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.layers is None) == (self.every is None):
            raise ValueError("shared_keys needs either layers or every")
        return self

    @property
    def told(self) -> str:
        """Which layers read others' keys and values, in words."""
        return f"all layers but the first of each {self.every}" if self.every else f"the last {self.layers} layers"


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


class LayerSizes(Spec):
    """Heads and inner widths layer by layer (OpenELM, arXiv:2404.14619; Llama-Nemotron's search over blocks,
    arXiv:2505.00949). An empty list: all layers have what the model states."""

    heads: tuple[Count, ...] = ()
    kv_heads: tuple[Natural, ...] = ()
    """0: the layer has no attention."""
    ffn: tuple[Natural, ...] = ()
    """0: the layer has no MLP."""

    def of(self, layer: int) -> dict[str, int]:
        """What this layer (from 0) has of its own, what it lacks left out."""
        lists = {"heads": self.heads, "kv_heads": self.kv_heads, "ffn": self.ffn}
        return {name: sizes[layer] for name, sizes in lists.items() if sizes and sizes[layer]}

    def alone(self, layer: int) -> str:
        """What this layer (from 0) consists of where it has one of attention and MLP only; empty where it has both."""
        if self.kv_heads and not self.kv_heads[layer]:
            return "mlp"
        return "attention" if self.ffn and not self.ffn[layer] else ""
