"""Which part of a micro-batch's exchanges falls on which of its passes, exposed and hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from distsim.engine.exchanges.flows import Flow
from distsim.engine.kernels.sums import PHASES
from distsim.engine.steps.copies import copied, copies_left
from distsim.engine.steps.passes import Beside
from distsim.formulas.step import exposed_seconds

Priced = tuple[Flow, float]
"""An exchange and its share of a total of seconds."""
Seconds = tuple[float, float]
"""Forward and backward."""


def sends_of(exposed: float, flows: Mapping[str, Sequence[Priced]]) -> tuple[Beside, Beside]:
    """What passes send to other stages, each its priced share."""
    between = [*flows["pp_forward"], *flows["pp_backward"], *flows["vocab"], *flows["vocab_beside"]]
    sent = dict.fromkeys(("forward", "backward"), 0.0)
    for flow, seconds in between:
        sent[flow.phase] += seconds
    total = sum(sent.values())
    forward, backward = (
        Beside(exposed * (sent[phase] / total if total else 0.5), 0.0, longest_first(between, phase)) for phase in sent
    )
    return forward, backward


def hidden_of(
    exposed: float, beside: Sequence[float], waits: Sequence[float], computed: Seconds,
    timing: Mapping[str, float], flows: Mapping[str, Sequence[Priced]],
) -> tuple[tuple[Beside, Beside], Beside]:  # fmt: skip
    """Which part of the exposed data parallel time falls on which pass: as each alone would leave it of what runs
    ``beside`` computation (gathers of both passes, reductions), and all of what ``waits``."""
    (forward, backward), never = computed, timing["exposed_fraction"]
    first, gathered, both = (
        float(exposed_seconds(size, work, never)) + wait
        for size, work, wait in ((beside[0], forward, waits[0]), (beside[1], backward, waits[1]),
                                     (beside[1] + beside[2], backward, waits[1] + waits[2]))
    )  # fmt: skip
    gathers = [size + wait for size, wait in zip(beside, waits, strict=True)]
    before = min(first * exposed / (first + both), gathers[0]) if first + both else 0.0
    after = exposed - before
    part = gathered / both if both else 0.0  # reductions trail behind what is gathered
    ahead, behind, reduces = ([*flows[first], *flows[other]] for first, other in (
        ("gather_forward", "dp_forward"), ("gather_backward", "dp_backward"), ("reduce_each", "dp_reduce")
    ))  # fmt: skip
    return (
        (Beside(before, gathers[0] - before, longest_first(ahead)),
         Beside(after * part, max(0.0, gathers[1] - after * part), longest_first(behind))),
        Beside(after * (1 - part), max(0.0, gathers[2] - after * (1 - part)), longest_first(reduces)),
    )  # fmt: skip


def copies_of(
    exposed: float, numbers: Mapping[str, Any], m: float, passes: Sequence[float], lost: float,
    flows: Mapping[str, Sequence[Priced]],
) -> tuple[Beside, Beside]:  # fmt: skip
    """Which part of the exposed copies falls on which of the ``passes``, as long as these are: as each alone would
    leave it."""
    waits = dict.fromkeys(PHASES[:2], 0.0)
    for flow, seconds in flows["offload_waited"]:
        waits[flow.phase] += seconds / m
    left = copies_left(numbers, m, passes, lost)
    alone = [float(one) + wait for one, wait in zip(left, waits.values(), strict=True)]
    scale = exposed / sum(alone) if sum(alone) else 0.0
    found = [
        Beside(mine * scale, max(0.0, float(size) + waits[phase] - mine * scale),
               longest_first([*flows[f"offload_{phase}"], *flows["offload_waited"]], phase))
        for phase, mine, size in zip(waits, alone, copied(numbers, m), strict=True)
    ]  # fmt: skip
    return found[0], found[1]


def longest_first(flows: Iterable[Priced], phase: str = "") -> tuple[Flow, ...]:
    """Exchanges, of one phase where it is named, the longest first."""
    found = [priced for priced in flows if not phase or priced[0].phase == phase]
    return tuple(flow for flow, _ in sorted(found, key=lambda priced: -priced[1]))
