"""Multi-head latent attention, and what chooses its keys."""

from typing import Self

from pydantic import Field, model_validator

from distsim.specs.base import Spec


class LatentAttention(Spec):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): low-rank queries and a shared low-rank key-value."""

    q_rank: int = Field(default=0, ge=0)
    """Rank of the query projection; 0 means a full query projection (DeepSeek-V2-Lite)."""
    kv_rank: int = Field(ge=1)
    nope_dim: int = Field(ge=1)
    """Width per head without rotary positions."""
    rope_dim: int = Field(ge=1)
    """Width per head with rotary positions (shared by all heads on the key side)."""
    value_dim: int = Field(ge=1)
    """Width of a value head."""
    index_heads: int = Field(default=0, ge=0)
    """Heads of an indexer that chooses the keys each query attends to (DeepSeek-V3.2); 0 means none."""
    index_dim: int = Field(default=0, ge=0)
    """Width of an indexer's head; its keys have one head for all queries'."""
    index_keys: int = Field(default=0, ge=0)
    """Keys that it chooses for each query."""

    @property
    def width(self) -> int:
        """Width of a query or key head."""
        return self.nope_dim + self.rope_dim

    @model_validator(mode="after")
    def _indexed(self) -> Self:
        if self.index_heads and not (self.index_dim and self.index_keys and self.q_rank):
            raise ValueError("index_heads goes with index_dim, index_keys and a q_rank")
        return self
