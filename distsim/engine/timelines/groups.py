"""Micro-batches that a chunk runs in a row, under schedules that take a number of them."""

from __future__ import annotations

from typing import Any

from distsim.formulas.bubbles import interleaved_group
from distsim.schedules.registry import find


def grouped(name: str, stages: int, micro: int) -> dict[str, Any]:
    """The option with the least group that Megatron can interleave, of a schedule that has it; else none."""
    return {"group": int(interleaved_group(stages, micro))} if "group" in find(name).options else {}
