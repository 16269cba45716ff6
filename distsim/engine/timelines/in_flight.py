"""How many activations a stage holds at once; it follows from the order alone, not from times."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.schedules.action import Action


def peaks(order: Sequence[Action]) -> tuple[int, int]:
    """Most chunks in flight on one stage, freed by the input gradient, and freed by the weight gradient.

    A fused block's forward counts before its backward frees.
    """
    held = until_weight = most = most_until_weight = 0
    for action in order:
        kind = action[0]
        if kind in ("F", "FB"):
            held += 1
            until_weight += 1
            most = max(most, held)
            most_until_weight = max(most_until_weight, until_weight)
        if kind == "I":
            held -= 1
        elif kind == "W":
            until_weight -= 1
        elif kind != "F":
            held -= 1
            until_weight -= 1
    return most, most_until_weight


def flights_of(order: Sequence[Action]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Chunks whose input gradient is not done and chunks that wait for their weight gradient: at each moment of a stage
    at which a forward has ended or a backward begins, and those of them at which an input gradient does."""
    before = waiting = 0
    found: set[tuple[int, int]] = set()
    split: set[tuple[int, int]] = set()
    for action in order:
        kind = action[0]
        if kind in ("F", "FB"):
            before += 1
        if kind != "W":
            found.add((before, waiting))
        if kind == "I":
            split.add((before, waiting))
        if kind == "W":
            waiting -= 1
        elif kind != "F":
            before -= 1
            waiting += kind == "I"
    return found, split
