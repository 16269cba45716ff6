"""A moment of a step at which memory may peak, and the highest of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from distsim.arrays import Number, maximum

STEP = "optimizer step"


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

    @property
    def total(self) -> Number:
        """Everything but buffers and overhead."""
        return self.states + self.activations


def highest(moments: Sequence[Moment], slack: float, least: Number = 0.0) -> Moment:
    """The peak of what an allocator holds that loses a share ``slack`` of what comes and goes, ``least`` at all times.

    For arrays of layouts its name is left open, and that loss is among its activations.
    """
    if all(isinstance(part, (int, float)) for moment in moments for part in (moment.states, moment.activations, least)):
        return max(moments, key=lambda moment: moment.total + maximum(slack * moment.churning, least))
    held = maximum(*(moment.activations + maximum(slack * moment.churning, least) for moment in moments))
    return moments[0]._replace(name="", activations=held, churning=0)
