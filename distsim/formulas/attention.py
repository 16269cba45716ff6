"""Products of attention, and how many keys sparse attention reads."""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.formula import formula
from distsim.formulas.caches import CACHE_RATE


@formula(unit="FLOP", source="Dao 2023, FlashAttention-2 (arXiv:2307.08691), section 4.1: 4 S^2 d of a head's forward")
def attention_flops(pairs: Number, width: Number, value_width: Number = 0) -> Number:
    """Products of ``pairs`` of a query and a key: a score over ``width``, and of ``value_width`` what it multiplies."""
    return 2 * pairs * (width + value_width)


@formula(
    unit="1", source="Dao 2023, FlashAttention-2 (arXiv:2307.08691), section 3: work beside products that holds them up"
)
def waiting_share(share: Number, measured_per_clock: Number, per_clock: Number) -> Number:
    """Rate of a kernel whose products wait for other work, over one whose products do not, on a unit that does
    ``per_clock`` FLOP of products a clock: what they wait for takes as many clocks as where ``share`` was measured, on
    a unit that does ``measured_per_clock``."""
    return 1 / (1 + (1 / share - 1) * per_clock / measured_per_clock)


@formula(unit="tokens", source="DeepSeek-V3.2-Exp's report, section 2.1: a query attends to at most k keys before it")
def chosen_keys(seen: Number, chosen: Number) -> Number:
    """Keys that the average query of a causal sequence of ``seen`` tokens attends to; the first queries have fewer keys
    before them than may be ``chosen``."""
    most = minimum(chosen, seen)
    return most - most * most / (2 * seen)


@formula(
    unit="B",
    source="every query reads its own keys, which other queries read too, so that the last-level cache has them",
)
def gathered_bytes(queries: Number, keys: Number, width_bytes: Number) -> Number:
    """Bytes of memory that take as long to read as each query's chosen ``keys`` from the last-level cache."""
    return queries * keys * width_bytes / CACHE_RATE
