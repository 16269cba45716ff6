"""A frozen reference model that sees each micro-batch beside the one that trains (DPO, Rafailov et al. 2023,
arXiv:2305.18290; KTO, arXiv:2402.01306): another copy of the weights, or the frozen weights without their adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distsim.errors import DistsimError
from distsim.layers.ledger import Held, Operation
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup

PURPOSE = ", reference"
"""Ends the purpose of what a reference model exchanges."""


def refuse_reference(filled: Mapping[str, Any]) -> None:
    """Refuse the weights without adapters as a reference where no adapters are."""
    if filled["reference"] == "base" and not filled["lora_rank"]:
        raise DistsimError(
            "--reference base is the model without its adapters, but there are none",
            "add --lora-rank 16, or choose --reference copy",
        )


UNMEASURED = "no measured run has a reference model: time and interval rest on runs that train alone"
PAIRS = (
    "2 answers are 1 pair, as DPO compares them, so that TRL's per_device_train_batch_size 1 is --micro-batch 2 (KTO "
    "alone takes single answers)"
)
GATHERED = "trainers that gather log-probabilities from the logits (TRL) keep one more fp32 copy: --loss selective"
CHUNKED = (
    "the loss in chunks is that of supervised fine-tuning; trainers that compare answers gather log-probabilities from "
    "whole logits: --loss selective"
)


def gathered_note(job: Job, kernels: Kernels) -> str:
    """A note where the loss is not that of a trainer which compares answers, or nothing."""
    referred = job.reference not in (None, "none")
    if referred and kernels.loss_chunk_again and job.loss is None:
        return CHUNKED
    return GATHERED if referred and kernels.loss == "eager" and not kernels.loss_gathered else ""


def unmeasured_note(job: Job) -> str:
    """A note on what the time of a job with a reference does not rest on, or nothing."""
    return "" if job.reference in (None, "none") else UNMEASURED


def whole_pairs(job: Job, micro_batch: int) -> bool:
    """Whether a micro-batch is whole pairs of answers, where a reference model sees them."""
    return job.reference in (None, "none") or micro_batch % 2 == 0


def pair_note(job: Job, micro_batch: int) -> str:
    """A note on micro-batches that split a pair of answers, or nothing."""
    if whole_pairs(job, micro_batch):
        return ""
    return f"micro-batches of {micro_batch} split a pair of answers: {PAIRS}"


def runs_reference(setup: Setup) -> bool:
    """Whether a reference model runs forward beside each training pass."""
    return setup.job.reference in ("copy", "base")


def copies_weights(setup: Setup) -> bool:
    """Whether it has weights of its own."""
    return setup.job.reference == "copy"


def of_reference(operation: Operation) -> bool:
    """Whether a reference model runs an operation too: all but what adapters add."""
    adds = operation.kind == "adapter" or operation.adapts
    return not adds and all(one.held != "adapter" for one in operation.parameters)


def in_reference(held: Held) -> bool:
    """Whether a copy of the weights has parameters that are held so: all but adapters, and a second tensor that trains
    in place of a tied one."""
    return held not in ("adapter", "apart")
