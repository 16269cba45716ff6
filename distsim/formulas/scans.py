"""Products of scans that work through a sequence in chunks."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formula import formula


@formula(unit="FLOP", source="Dao and Gu 2024, Mamba-2 (arXiv:2405.21060), section 6: products within chunks, of pairs "
         "of tokens, and of chunks' states; the kernels skip the half of the pairs that is ahead")  # fmt: skip
def chunked_scan_flops(tokens: Number, inner: Number, groups: Number, state: Number, chunk: Number) -> Number:
    """Forward of Mamba-2's scan over ``tokens``: C B of each pair within a chunk and its product with x, ``inner``
    wide, and products into each state and out of it."""
    within = 2 * chunk * (groups * state + inner)
    between = 2 * 2 * inner * state
    return tokens * (within / 2 + between)
