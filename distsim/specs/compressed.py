"""Attention to a window of tokens and to keys that stand for several tokens each."""

from typing import Self

from pydantic import model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, Natural


class CompressedAttention(Spec):
    """Attention of all heads to one head of keys, which are values too: those of a sliding window, and in most layers
    one for every so many tokens (DeepSeek-V4)."""

    q_rank: Count
    """Rank of the query projection."""
    rope_dim: Count
    """Width per head with rotary positions, turned back in the output."""
    window: Count
    """Tokens whose own keys a query attends to."""
    ratios: tuple[Natural, ...]
    """Tokens that one further key stands for, layer by layer, repeated over all of them; 0 where there is none."""
    index_ratio: Natural = 0
    """The ratio at which a key is made of twice as many tokens, and an indexer chooses the keys; 0 means none."""
    index_heads: Natural = 0
    """Heads of that indexer, whose keys have one head for all."""
    index_dim: Natural = 0
    """Width of an indexer's head."""
    index_keys: Natural = 0
    """Keys that it chooses for each query."""
    output_groups: Count
    """Groups of heads whose outputs are each projected to a narrow layer, and these together to the hidden width."""
    output_rank: Count
    """Width of a group's narrow layer."""

    def ratio(self, layer: int) -> int:
        """Tokens that a further key of this layer (from 0) stands for; 0 where it has none."""
        return self.ratios[layer % len(self.ratios)]

    def chooses(self, layer: int) -> bool:
        """Whether this layer (from 0) has an indexer."""
        return self.index_ratio > 0 and self.ratio(layer) == self.index_ratio

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.ratios:
            raise ValueError("ratios must name at least one layer")
        stated = [self.index_heads > 0, self.index_dim > 0, self.index_keys > 0]
        if stated != [self.index_ratio > 0] * len(stated):
            raise ValueError("index_ratio, index_heads, index_dim and index_keys must be given together")
        return self
