"""Rates of a host by the generation of its PCIe."""

from __future__ import annotations

from collections.abc import Mapping


def of_generation(table: Mapping[int, float], generation: int) -> float:
    """The entry of the last known generation up to this one, and the first one's for hosts before all that are known:
    a later host is taken to be no better than what is known. Whoever asks says what an unstated generation counts
    as."""
    return table[max((one for one in table if one <= generation), default=min(table))]
