"""Embeddings of n-grams: large tables of hashed sequences of words, read in single layers."""

from typing import Self

from pydantic import model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, Natural


class NGrams(Spec):
    """Tables that a token looks its own and the last few words up in, in single layers: what they give is projected,
    gated by each residual stream and convolved (the per-layer embeddings of Qwen4-Exp)."""

    layers: tuple[Natural, ...]
    """Layers (from 0) with a table, which none of attention can have."""
    rows: tuple[Count, ...]
    """Rows of the table of each of those layers."""
    width: Count
    """Elements that a token reads of a table, of all its lookups together."""
    lookups: Count
    """Rows that a token reads, each of a part of the table of its own: several hashes for each length of n-gram."""
    taps: Count
    """Taps of the convolution behind the gate."""
    spacing: Count
    """Tokens from one tap to the next."""

    def table(self, layer: int) -> int | None:
        """Which of the tables this layer (from 0) has; None for none."""
        return self.layers.index(layer) if layer in self.layers else None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.layers or len(set(self.layers)) != len(self.layers) or len(self.rows) != len(self.layers):
            raise ValueError("ngrams.layers must name layers once each, and ngrams.rows the rows of each one's table")
        if self.width % self.lookups:
            raise ValueError(f"ngrams.lookups {self.lookups} does not divide ngrams.width {self.width}")
        return self
