"""What follows the last micro-batch of a step on one stage, stated once: the composition adds it up, figures tell how
it came about, and the timeline draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from distsim.arrays import Number, nothing, product, total
from distsim.engine.steps.beside import exposed
from distsim.formulas.step import paced_seconds

if TYPE_CHECKING:
    from distsim.engine.steps.compose import MicroBatch

BACKWARD_SHARE = 2 / 3
"""Backward's share of a micro-batch: two products for each one of forward."""


class Hiding(NamedTuple):
    """An exchange that comes once in a step, the computation that it runs beside, and what that does not hide."""

    whole: Number
    beside: Number
    left: Number

    @property
    def hidden(self) -> Number:
        """What computation hides of it."""
        return self.whole - self.left


class AfterLast(NamedTuple):
    """Seconds, in the order in which they come."""

    reduce: Hiding
    """Gradients that are reduced once, beside the last backward."""
    copied: Hiding
    """Gradients that go to host memory once, beside it and what is left of the reduction: over another link."""
    replicated: Number
    """Gradients of what tensor parallel ranks hold whole."""
    step: Number
    """What data parallel ranks exchange in the step itself: norms before the optimizer, parameters that are gathered
    with nothing beside them after it."""
    stated: Number
    """Replicas averaged over a link of a stated rate, which is no priced network's."""
    optimizer: Number
    offload: Number
    ahead: Hiding
    """Parameters gathered once, updated ones or those that stay gathered, beside the next step's first forward."""

    def parts(self) -> dict[str, Number]:
        """By the parts of a step."""
        return {
            "data_parallel": self.reduce.left + (self.step + self.stated) + self.ahead.left,
            "tensor_parallel": self.replicated,
            "offload": self.copied.left + self.offload,
            "optimizer": self.optimizer,
        }

    @property
    def seconds(self) -> Number:
        """All parts."""
        return total(*self.parts().values())


def after_last(stage: Mapping[str, Number], timing: Mapping[str, Number], batch: MicroBatch) -> AfterLast:
    """What follows the last micro-batch on a stage, each of whose micro-batches is like ``batch``."""
    data, never = timing["data_factor"], timing["exposed_fraction"]
    reduce, gather = product(stage["reduce"], data), product(stage["dp_ahead"], data)
    gather = gather + product(stage["gather_once"], timing["gather_factor"])
    backward = (batch.forward + batch.backward + batch.exchange["tensor_parallel"]) * BACKWARD_SHARE
    left = exposed(reduce, backward, never)
    return AfterLast(
        Hiding(reduce, backward, left),
        Hiding(stage["offload_once"], backward + left, exposed(stage["offload_once"], backward + left, never)),
        stage["tp_step"],
        stage["dp_step"] * data,
        stage["dp_stated"],
        stage["optimizer"] / timing["optimizer"] + _orthogonal(stage, timing),
        stage["offload_step"],
        Hiding(gather, batch.forward, exposed(gather, batch.forward, never)),
    )


def _orthogonal(stage: Mapping[str, Number], timing: Mapping[str, Number]) -> Number:
    """What orthogonalising every matrix adds to the optimizer's step: products, or the host that launches them."""
    if nothing(stage["updates"]):
        return 0.0
    return paced_seconds(stage["orthogonal"] / timing["matmul"], stage["updates"] * timing["kernel_issue_seconds"])
