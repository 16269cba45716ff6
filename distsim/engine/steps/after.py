"""What follows the last micro-batch of a step on one stage, stated once: the composition sums it, ``--explain`` prints
how it came about, and the timeline draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from distsim.arrays import Number, maximum, nothing, product, total
from distsim.engine.steps.beside import exposed
from distsim.engine.steps.copies import free_seconds
from distsim.formulas.step import LEAST_SECONDS, paced_seconds

if TYPE_CHECKING:
    from distsim.engine.steps.compose import MicroBatch


class Hiding(NamedTuple):
    """An exchange that runs once per step, the computation that it overlaps, and its exposed part."""

    whole: Number
    beside: Number
    left: Number

    @property
    def hidden(self) -> Number:
        """The part that computation hides."""
        return self.whole - self.left


class AfterLast(NamedTuple):
    """Seconds, in the order in which they come."""

    reduce: Hiding
    """Gradients that are reduced once, overlapping the last backward and its waits for copies, over another link."""
    copied: Hiding
    """Gradients that go to host memory once: they overlap that, what it waits for and the exposed reduction, since
    gathers take another link (but between cards without any of their own), and copies from host memory its other
    direction."""
    replicated: Number
    """Gradients of what tensor parallel ranks hold whole."""
    step: Number
    """What data parallel ranks exchange in the step itself: norms before the optimizer, parameters gathered after it
    without overlap."""
    stated: Number
    """Averaging of replicas over a link whose rate the user states, instead of a priced network."""
    optimizer: Number
    offload: Number
    ahead: Hiding
    """Parameters gathered once (updated ones, or those that stay gathered), overlapping the next step's first
    forward."""

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
    backward = _backward(batch) + batch.waits
    left = exposed(reduce, backward, never)
    whole = free_seconds(backward + batch.gathers, reduce, left, stage["one_link"])
    return AfterLast(
        Hiding(reduce, backward, left),
        Hiding(stage["offload_once"], whole, exposed(stage["offload_once"], whole, never)),
        stage["tp_step"],
        stage["dp_step"] * data,
        stage["dp_stated"],
        stage["optimizer"] / timing["optimizer"] + _update_work(stage, timing) + stage["decomposing"],
        stage["offload_step"],
        Hiding(gather, batch.forward, exposed(gather, batch.forward, never)),
    )


def _backward(batch: MicroBatch) -> Number:
    """Seconds of a micro-batch's backward, recomputation in it, with its part of the tensor parallel exchanges."""
    both = maximum(batch.forward + batch.backward, LEAST_SECONDS)
    return batch.backward * (1 + batch.exchange["tensor_parallel"] / both)


def _update_work(stage: Mapping[str, Number], timing: Mapping[str, Number]) -> Number:
    """What orthogonalising every matrix, or projecting its gradient, adds to the step: products, or the host that
    launches them."""
    if nothing(stage["updates"]):
        return 0.0
    return paced_seconds(stage["update_products"] / timing["matmul"], stage["updates"] * timing["kernel_issue_seconds"])
