"""What a schedule is made of: actions in turn for every stage, the stage of each chunk, and the chains of chunks.

An action is a plain tuple, because a schedule may hold millions: ``(kind, chunk, micro)`` with kind ``F`` (forward),
``B`` (full backward), ``I`` (input gradient) or ``W`` (weight gradient), or ``("FB", chunk, micro, backward_chunk,
backward_micro)`` for a forward and a backward fused into one block. Chunks are counted in model order from 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

Action = tuple[Any, ...]
Orders = list[list[Action]]

INPUT_GRADIENT, WEIGHT_GRADIENT = "I", "W"


class Schedule(NamedTuple):
    """Orders of actions per stage and what they refer to.

    ``placement[c]`` is the stage of chunk c; ``chains`` lists chunks in the order a micro-batch visits them (two chains
    in bidirectional schedules, micro-batches counted from 0 in each); ``chunks`` is the number of chunks that make one
    whole stage; ``weight_versions`` what each stage keeps of its weights.
    """

    name: str
    orders: Sequence[Sequence[Action]]
    placement: list[int]
    chains: list[list[int]]
    chunks: int
    weight_versions: list[int]


def looped(stages: int, chunks: int) -> list[int]:
    """Stage of each chunk when the model is dealt round robin: chunk c sits on stage c mod p."""
    return [chunk % stages for chunk in range(stages * chunks)]


def wave(stages: int, chunks: int) -> list[int]:
    """Stage of each chunk when the model runs down the stages and back again (a V for two chunks)."""
    down = list(range(stages))
    up = down[::-1]
    return [stage for turn in range(chunks) for stage in (up if turn % 2 else down)]


def bidirectional(stages: int, chunks: int = 1) -> list[int]:
    """Stage of each chunk when two copies of the model run through the stages in opposite directions."""
    return [*range(stages), *reversed(range(stages))]


def looped_chunk(turn: int, stage: int, stages: int) -> int:
    """The chunk of a stage at a turn of the loop."""
    return turn * stages + stage


def wave_chunk(turn: int, stage: int, stages: int) -> int:
    """The chunk of a stage at a turn of the wave (turn 0 runs down)."""
    return turn * stages + (stages - 1 - stage if turn % 2 else stage)


def mirrored(stage: int, direction: int, stages: int) -> int:
    """The chunk of a stage in a bidirectional schedule: chunk p+k is model stage k of the reverse pipe."""
    return stage if direction == 0 else 2 * stages - 1 - stage


def weight_pairs(micro: int, chunk: int) -> list[Action]:
    """Input and weight gradient of one micro-batch, one after the other."""
    return [(INPUT_GRADIENT, chunk, micro), (WEIGHT_GRADIENT, chunk, micro)]
