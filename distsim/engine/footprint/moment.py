"""A moment of a step at which memory may peak, and the highest of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distsim.arrays import Number, largest, maximum, minimum, nothing

STEP = "optimizer step"
AT_LOSS = ("loss", "loss backward")
"""Forward and backward."""


class Idle(NamedTuple):
    """Bytes of blocks that lie idle at all moments: ``split`` ones, and ``broken`` ones, of which the allocator gives
    back what does not have ``room`` beside activations; and the share of gradients ``apart`` whose blocks activations
    cannot take before backward makes them."""

    split: Number = 0.0
    broken: Number = 0.0
    room: Number = 0.0
    apart: Number = 0.0

    def beside(self, activations: Number) -> Number:
        """What of them stays beside so many bytes of activations."""
        if nothing(self.broken):
            return self.split
        return maximum(self.split, minimum(self.broken, maximum(self.room - activations, 0)))


class Moment(NamedTuple):
    """A point of the step: bytes of activations (with transients), of gradients, and of everything with the states.

    ``gradients`` is all gradients of the rank, as the optimizer will read them. Where autograd has not made them all
    yet, activations fill their place, and ``activations`` is what they take beyond it.
    """

    name: str
    activations: Number
    gradients: Number
    states: Number
    """Parameters, optimizer states and gradients."""
    churning: Number
    """All activations and transients, also those in the place of gradients to come."""
    temporaries: Number = 0
    """Of these what is the optimizer's, whose working copies are as large whatever the sequence."""
    unmade: Number = 0
    """Gradients that this backward pass has not made yet."""
    overhead: Number = 0
    """What is held then beside all that the program asks for; only of a stage that has been compared."""

    @property
    def total(self) -> Number:
        """Everything but buffers and overhead."""
        return self.states + self.activations

    @property
    def before_gradients(self) -> Number:
        """Activations in the place of gradients that backward has not made yet."""
        return maximum(minimum(self.churning, self.churning - self.activations), 0)  # a step's may be what is freed

    def told(self, whole: Number) -> dict[str, Any]:
        """Plain data, with all bytes that a program asks for then, and with the overhead beside them."""
        return {"moment": self.name, "bytes": round(whole), "overhead": round(whole + self.overhead) - round(whole),
                "whole": round(whole + self.overhead), "temporaries": round(self.temporaries),
                "activations_before_gradients": round(self.before_gradients)}  # fmt: skip

    def lost(self, slack: float, idle: Idle) -> Number:
        """What an allocator holds beyond it that loses a share ``slack`` of what comes and goes, and blocks that lie
        idle at all times."""
        return maximum(slack * self.churning, idle.beside(self.activations)) + self.apart(idle)

    def apart(self, idle: Idle) -> Number:
        """Bytes of blocks that wait for gradients which are not made yet, and that nothing else takes."""
        return 0 if nothing(idle.apart) else idle.apart * self.unmade

    def height(self, slack: float, idle: Idle) -> Number:
        """Its activations, with what an allocator holds beyond it."""
        return self.activations + self.lost(slack, idle)


def highest(moments: Sequence[Moment], slack: float, idle: Idle) -> Moment:
    """The peak of what an allocator holds (``Moment.height``). For arrays of layouts its name is left open, and what
    is lost is among its activations."""
    if all(isinstance(part, (int, float)) for moment in moments for part in (moment.states, moment.activations, *idle)):
        return max(moments, key=lambda moment: moment.total + moment.lost(slack, idle))
    held = largest(heights(moments, slack, idle))
    return moments[0]._replace(name="", activations=held, churning=0)


def with_overheads(moments: Sequence[Moment], top: Moment, own: Number, slack: float, idle: Idle) -> list[Moment]:
    """Moments with the overhead of each, from ``own``, that of the highest."""
    fixed = own - top.lost(slack, idle)
    return [moment._replace(overhead=fixed + moment.lost(slack, idle)) for moment in moments]


def heights(moments: Sequence[Moment], slack: float, idle: Idle) -> list[Number]:
    """The highest of all moments, those apart that are arrays of unlike shapes: what follows the last micro-batch knows
    no recomputation, and what comes before it mostly no ZeRO stage, so that only their maximum is over all layouts."""
    alike: dict[tuple[int, ...], list[Number]] = {}
    for moment in moments:
        height = moment.height(slack, idle)
        alike.setdefault(getattr(height, "shape", ()), []).append(height)
    return [largest(found) for found in alike.values()]
