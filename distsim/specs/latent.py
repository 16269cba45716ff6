"""Multi-head latent attention, and what chooses its keys."""

from typing import Self

from pydantic import model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, Natural


class LatentAttention(Spec):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): low-rank queries and a shared low-rank key-value."""

    q_rank: Natural = 0
    """Rank of the query projection; 0 means a full query projection (DeepSeek-V2-Lite)."""
    kv_rank: Count
    nope_dim: Count
    """Width per head without rotary positions."""
    rope_dim: Natural
    """Width per head with rotary positions (shared by all heads on the key side); 0: nothing rotates (GLM-5.3)."""
    value_dim: Count
    """Width of a value head."""
    rope_norm: bool = False
    """The rotated part of the keys has a norm of its own (dots3)."""
    fused_gate: bool = False
    """Queries and the gate of attention's output come from one projection, of the narrow queries before and after their
    norm together (A.X K2)."""
    unrotated_layers: tuple[bool, ...] = ()
    """Which layers, repeated over all of them, rotate nothing: ``nope_dim`` is as wide as both there (Mistral Large
    4)."""
    query_scale: bool = False
    """Queries are scaled by a learned line over the logarithm of their position, one a head (Mistral Large 4)."""
    learned_frequencies: bool = False
    """Each rotary frequency is scaled by a learned number, the same in all layers (Mistral Large 4)."""
    index_heads: Natural = 0
    """Heads of an indexer that chooses the keys each query attends to (DeepSeek-V3.2); 0 means none."""
    index_dim: Natural = 0
    """Width of an indexer's head; its keys have one head for all queries'."""
    index_keys: Natural = 0
    """Keys that it chooses for each query."""
    index_pool: Count = 1
    """Neighbouring tokens that share one of the indexer's keys, a weighted mean of theirs (GLM-5.3)."""
    index_layers: tuple[bool, ...] = ()
    """Which layers, repeated over all of them, have an indexer of their own; the others attend to what the last one
    chose. Empty: all."""

    def chooses(self, layer: int) -> bool:
        """Whether this layer (from 0) has an indexer of its own."""
        return self.index_heads > 0 and (not self.index_layers or self.index_layers[layer % len(self.index_layers)])

    def rotates(self, layer: int) -> bool:
        """Whether this layer (from 0) rotates queries and keys."""
        return not (self.unrotated_layers and self.unrotated_layers[layer % len(self.unrotated_layers)])

    @property
    def width(self) -> int:
        """Width of a query or key head."""
        return self.nope_dim + self.rope_dim

    @model_validator(mode="after")
    def _indexed(self) -> Self:
        if self.index_heads and not (self.index_dim and self.index_keys):
            raise ValueError("index_heads, index_dim and index_keys must be given together")
        if self.index_layers and not (self.index_heads and self.index_layers[0]):
            raise ValueError("index_layers needs index_heads, and an indexer in the first layer")
        if self.fused_gate and not self.q_rank:
            raise ValueError("fused_gate needs a q_rank")
        return self
