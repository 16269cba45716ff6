"""Activation memory of pipeline stages."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formula import formula


@formula(unit="B", source="Qi et al. 2023, arXiv:2401.10241, section 2.3 and table 1")
def split_backward_bytes(before: Number, kept_bytes: Number, waiting: Number, read_bytes: Number) -> Number:
    """What a stage keeps for micro-batches before their input gradient, and for those waiting for their weight
    gradient, which needs less."""
    return before * kept_bytes + waiting * read_bytes
