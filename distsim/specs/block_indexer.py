"""What chooses blocks of keys for attention with grouped heads."""

from distsim.specs.base import Spec
from distsim.specs.quantity import Count


class BlockIndexer(Spec):
    """A light attention of its own, whose best score in each block of keys decides whether the block is attended to,
    for each of its heads, which stand for a group of the attention's (MiniMax-M3), or all together (``pooled``)."""

    heads: Count
    dim: Count
    """Width of a head; its keys have one head for all queries'."""
    block: Count
    """Tokens of a block of keys."""
    blocks: Count
    """Blocks that are chosen for each query, those next to it among them."""
    pooled: bool = False
    """A block has one key, the mean of its tokens', and all heads of attention share one choice, by the sum of what the
    indexer's give (Qwen4-Exp)."""
    layers: tuple[bool, ...] = ()
    """Which layers have one, repeated over all of them; empty: all. The others attend to all keys."""

    @property
    def keys(self) -> int:
        """Keys that a query attends to at most."""
        return self.block * self.blocks

    def chooses(self, layer: int) -> bool:
        """Whether this layer (from 0) attends to chosen blocks."""
        return self.layers[layer % len(self.layers)] if self.layers else True
