"""How many keys attention meets where it does not meet all."""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.formula import formula


@formula(unit="tokens", source="DeepSeek-V3.2-Exp's report, section 2.1: a query attends to at most k keys before it")
def chosen_keys(seen: Number, chosen: Number) -> Number:
    """Keys that a mean query of a causal sequence of ``seen`` tokens attends to, where the first ones have fewer before
    them than may be ``chosen``."""
    most = minimum(chosen, seen)
    return most - most * most / (2 * seen)
