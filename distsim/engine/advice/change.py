"""One change of a job that can lower its memory, and how big a change it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distsim.engine.advice.restored import OFFLOADING, SETTINGS

# Effort: 1 costs little time, 2 costs time or moves work between GPUs, 4 changes the training itself, 5 costs money.
# Products in 16 bits are what most jobs run, and save time too. Assumed: they say what is tried and shown
# first; what a change saves is computed.
EFFORTS = {
    "sequence parallel": 1.0, "zero": 1.0, "loss": 1.0, "update": 1.0, "micro_batch": 1.0, "sixteen bits": 1.5,
    "mlp_tiles": 1.7, "recompute": 2.0, "ep": 2.1, "tp": 2.2, "pp": 2.4, "cp": 2.6, "offload": 3.0, "optimizer": 4.0,
    "precision": 4.1, "quantize": 4.2, "adapters": 4.5, "gpus": 5.0, "gpu": 6.0,
    **dict.fromkeys((*SETTINGS, OFFLOADING), 1.0),
}  # fmt: skip
PER_STEP = {"gpus": 1.0, "offload": 0.3}
"""Further effort for each value of a family beyond its first; a tenth where not stated. Assumed."""


class Change:
    """New values for a job's fields: ``shown`` are those a user must type, ``without`` what must not be typed any
    more."""

    __slots__ = ("effort", "family", "fields", "shown", "without", "words")

    def __init__(
        self, family: str, step: int, words: str, shown: dict[str, Any], hidden: dict[str, Any] | None = None,
        without: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.family = family
        self.words = words
        self.shown = shown
        self.without = tuple(without)
        self.fields = {**(hidden or {}), **dict.fromkeys(without), **shown}
        self.effort = EFFORTS[family] + PER_STEP.get(family, 0.1) * step

    def __repr__(self) -> str:
        return f"Change({self.words}: {self.shown})"
