"""ZB-V: two chunks per stage in a V, no bubble for F = I = W at 1F1B's memory (Qi et al. 2023, Zero bubble pipeline
parallelism, section 6; the order is the one of torch's ScheduleZBVZeroBubble)."""

from __future__ import annotations

from distsim.schedules.action import Action, Orders, wave_chunk, weight_pairs


def order(stages: int, micro: int, chunks: int = 2) -> Orders:
    """The order for at least 2 stages - 1 micro-batches, from which surplus micro-batches are struck out."""
    full = max(2 * stages - 1, micro)
    return [[action for action in _stage(s, stages, full) if action[2] < micro] for s in range(stages)]


def _stage(stage: int, stages: int, micro: int) -> list[Action]:
    down, up = wave_chunk(0, stage, stages), wave_chunk(1, stage, stages)
    first = 2 * (stages - stage) - 1
    actions: list[Action] = [("F", down, i) for i in range(first)]
    for i in range(stage):
        actions += [("F", up, i), ("F", down, first + i)]
    down_done, up_done = first + stage, stage
    for i in range(stages - stage):
        actions += [("F", up, up_done), *weight_pairs(i, up)]
        up_done += 1
    back_down, back_up = 0, stages - stage
    while up_done < down_done or down_done < micro:
        if down_done < micro:
            actions.append(("F", down, down_done))
            down_done += 1
        actions += [*weight_pairs(back_down, down), ("F", up, up_done), *weight_pairs(back_up, up)]
        back_down, back_up, up_done = back_down + 1, back_up + 1, up_done + 1
    return actions + _drain(stage, stages, (down, back_down), (up, back_up))


def _drain(stage: int, stages: int, first: tuple[int, int], second: tuple[int, int]) -> list[Action]:
    """Input gradients as soon as they may run, weight gradients where nothing else can."""
    (down, back_down), (up, back_up) = first, second
    actions: list[Action] = []
    for i in range(stage):
        actions += [("I", down, back_down + i), ("I", up, back_up + i)]
    late = stages - stage
    for i in range(late):
        actions += [("I", down, back_down + stage + i), ("W", down, back_down + i)]
    actions += [("W", up, i) for i in range(back_up, back_up + stage)]
    return actions + [("W", down, i) for i in range(back_down + late, back_down + stage + late)]
