"""Hanayo: waves of chunks, packed micro-batch by micro-batch (Liu et al. 2023, Hanayo, section 3).

The packing is that of the public pipeline generator of C-TC's Megatron fork: time is cut into slots of one forward (a
backward takes two), and each micro-batch takes the earliest free slots along its way.
"""

from __future__ import annotations

from distsim.arrays import round_up
from distsim.errors import DistsimError
from distsim.schedules.action import Action, Orders, wave

_FREE, _USED, _KEPT = 0, 1, 2  # what a slot is
Step = tuple[str, int, int]  # kind, chunk, stage


def order(stages: int, micro: int, chunks: int) -> Orders:
    """Repeats of ``stages`` micro-batches; the first of a repeat reserves the slots that the others will need."""
    if micro % stages or chunks % 2:
        raise DistsimError(
            f"hanayo cannot run {micro} micro-batches on {stages} stages in {chunks} chunks",
            f"it needs micro-batches divisible by the stages (micro % {stages} == 0) and an even number of chunks "
            "(two per wave)",
            f"try {round_up(micro, stages)} micro-batches and {chunks + chunks % 2} chunks",
        )
    return _Packer(stages, micro, chunks).pack()


class _Packer:
    """Slots of every stage, each free, used or kept free, and the action that starts in each."""

    def __init__(self, stages: int, micro: int, chunks: int) -> None:
        self.stages, self.micro, self.chunks = stages, micro, chunks
        slots = chunks * micro * 6 + 2
        self.slots = [bytearray(slots) for _ in range(stages)]
        self.starts: list[dict[int, Action]] = [{} for _ in range(stages)]
        placed = list(enumerate(wave(stages, chunks)))
        self.way: list[Step] = [("F", c, s) for c, s in placed] + [("B", c, s) for c, s in reversed(placed)]

    def pack(self) -> Orders:
        """Place all micro-batches and read the stages' orders off the slots."""
        begin = -1
        for first in range(0, self.micro, self.stages):
            found, end = self._place(first, begin)
            self._keep(found)
            for i in range(first + 1, first + self.stages):
                self._place(i, begin)
            begin = end
        return [[starts[slot] for slot in sorted(starts)] for starts in self.starts]

    def _place(self, i: int, begin: int) -> tuple[dict[Step, int], int]:
        """Put micro-batch ``i`` into the earliest free slots after ``begin``; returns where its steps went, and its
        last slot."""
        found: dict[Step, int] = {}
        at = begin
        for step in self.way:
            kind, chunk, stage = step
            slots = self.slots[stage]
            at = slots.index(_FREE, at + 1) if kind == "F" else slots.find(b"\0\0", at + 1)
            slots[at] = _USED
            self.starts[stage][at] = (kind, chunk, i)
            found[step] = at
            if kind == "B":
                at += 1
                slots[at] = _USED
        return found, at

    def _keep(self, found: dict[Step, int]) -> None:
        """Keep free what lies just before the first turn of the wave and before its last backward, so that later
        micro-batches do not delay it (the paper's restricted zones)."""
        p = self.stages
        for s in range(p):
            turn = 2 * p - 1 - s
            last = self.chunks * p - 1 - s
            for slot, width in ((found["F", turn, s], p - s), (found["B", last, s], s + 1)):
                for back in range(1, width):
                    if self.slots[s][slot - back] == _FREE:
                        self.slots[s][slot - back] = _KEPT
