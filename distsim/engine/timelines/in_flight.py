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


Held = tuple[tuple[int, ...], tuple[int, ...]]
"""By place of a chunk on its stage: passes whose input gradient is not done, and passes that wait for their weight
gradient."""


def passes_of(order: Sequence[Action], chunks: Sequence[int]) -> tuple[set[Held], set[Held]]:
    """What a stage of these ``chunks`` holds at each moment at which a forward has ended or a backward begins, and at
    those of them at which an input gradient does."""
    place = {chunk: index for index, chunk in enumerate(chunks)}
    before, waiting = [0] * len(chunks), [0] * len(chunks)
    found: set[Held] = set()
    split: set[Held] = set()
    for action in order:
        kind, here = action[0], place[action[1]]
        if kind in ("F", "FB"):
            before[here] += 1
        if kind != "W":
            found.add((tuple(before), tuple(waiting)))
        if kind == "I":
            split.add((tuple(before), tuple(waiting)))
        if kind == "W":
            waiting[here] -= 1
        elif kind != "F":
            back = place[action[3]] if kind == "FB" else here
            before[back] -= 1
            waiting[back] += kind == "I"
    return found, split


def flights_of(order: Sequence[Action]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """The same of all chunks together."""
    found, split = passes_of(order, sorted({chunk for action in order for chunk in action[1::2]}))
    return {(sum(b), sum(w)) for b, w in found}, {(sum(b), sum(w)) for b, w in split}
