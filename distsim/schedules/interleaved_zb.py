"""Interleaved zero bubble: interleaved 1F1B with the backward split in two (Qi et al. 2023, Zero bubble pipeline
parallelism; the order is the one of torch's ScheduleInterleavedZeroBubble)."""

from __future__ import annotations

from distsim.schedules.action import Action, Orders
from distsim.schedules.rounds import group_size, visits


def order(stages: int, micro: int, chunks: int) -> Orders:
    """Stage s warms up with (stages - 1 - s) + (chunks - 1) group forwards, and its weight gradients trail by s."""
    group = group_size(stages, micro, "interleaved-zb")
    orders: Orders = []
    for s in range(stages):
        forwards: list[Action] = [("F", turn * stages + s, i) for turn, i in visits(micro, chunks, group)]
        gradients: list[Action] = [("I", turn * stages + s, i) for turn, i in visits(micro, chunks, group, True)]
        warmup = min(stages - 1 - s + (chunks - 1) * group, len(forwards))
        orders.append(with_late_weights(forwards, gradients, warmup, postponed=s))
    return orders


def with_late_weights(forwards: list[Action], gradients: list[Action], warmup: int, postponed: int) -> list[Action]:
    """1F1B of split backwards: each input gradient after the first ``postponed`` is followed by the oldest weight
    gradient that is still due, and the rest come at the end."""
    actions = forwards[:warmup]
    due = 0
    for step, gradient in enumerate(gradients):
        if warmup + step < len(forwards):
            actions.append(forwards[warmup + step])
        actions.append(gradient)
        if step >= postponed:
            actions.append(("W", *gradients[due][1:]))
            due += 1
    return actions + [("W", *gradient[1:]) for gradient in gradients[due:]]
