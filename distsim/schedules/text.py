"""Schedules as text: one line per stage, ``0F0 0F1 0B0 (1F2;1B0)``; torch's CSV of a pipeline order reads as well."""

from __future__ import annotations

import re
from collections.abc import Iterable

from distsim.errors import DistsimError
from distsim.schedules.action import Action, Orders

_ACTION = re.compile(r"(\d+)(BW|[FBIW])(\d+)$")
_FUSED = re.compile(r"\(\s*(\d+)F(\d+)\s*;\s*(\d+)B(\d+)\s*\)(?:OVERLAP_F_B)?$")
_TOKEN = re.compile(r"\([^)]*\)(?:OVERLAP_F_B)?|[^\s,;]+")
_IGNORED = re.compile(r"\d*(?:SEND_[FB]|RECV_[FB]|UNSHARD|RESHARD|REDUCE_GRAD)\d*$")
_MOST_DIGITS = 9  # of each of the four numbers of a fused pair


def parse(lines: Iterable[str]) -> Orders:
    """Orders from one line per stage. Torch's communication and sharding entries, and empty cells, say nothing about
    the order of compute and are passed over; lines that are empty or start with ``#`` are not stages."""
    rows = [line.strip() for line in lines]
    rows = [line for line in rows if line and not line.startswith("#")]
    if not rows:
        raise DistsimError("the schedule names no stage", "write one line per stage, e.g. 0F0 0F1 0B0 0B1")
    return [_parse_line(line, stage) for stage, line in enumerate(rows)]


def _parse_line(line: str, stage: int) -> list[Action]:
    actions: list[Action] = []
    for token in _TOKEN.findall(line.replace('"', "")):
        found = _parse_token(token)
        if found is not None:
            actions.append(found)
        elif not _IGNORED.match(token):
            raise DistsimError(
                f"stage {stage}: {token!r} is not an action",
                "write <chunk><kind><micro> with kind F, B, I or W, e.g. 0F3, or a fused pair (0F3;4B1)",
            )
    return actions


def _parse_token(token: str) -> Action | None:
    if len(token) > 4 * _MOST_DIGITS:
        return None
    simple = _ACTION.match(token)
    if simple:
        return ("B" if simple[2] == "BW" else simple[2], int(simple[1]), int(simple[3]))
    fused = _FUSED.match(token)
    if fused:
        return ("FB", int(fused[1]), int(fused[2]), int(fused[3]), int(fused[4]))
    return None


def show(action: Action) -> str:
    """An action as text, the inverse of :func:`parse` for one action."""
    if action[0] == "FB":
        return f"({action[1]}F{action[2]};{action[3]}B{action[4]})"
    return f"{action[1]}{action[0]}{action[2]}"


def write(orders: Orders) -> list[str]:
    """One line per stage."""
    return [" ".join(show(action) for action in order) for order in orders]
