"""Optimizers that project gradients, or update parameters inside of backward: their rank, and what they ask for."""

from __future__ import annotations

from typing import Any

from distsim import catalog
from distsim.errors import DistsimError
from distsim.specs.job import Job
from distsim.specs.layout import ZERO_STAGES, Layout
from distsim.specs.optimizer import Optimizer


def zero_stages(optimizer: Optimizer) -> tuple[int, ...]:
    """Stages of ZeRO that an optimizer runs with: what projects gradients needs whole ones, and what updates inside of
    backward has no step in which ranks could share states out, but may gather sharded weights (lomo_optim 0.1.1)."""
    return (0,) if optimizer.projection else (0, 3) if optimizer.in_backward else ZERO_STAGES


def stages_of(job: Job) -> tuple[int, ...]:
    """The same of the optimizer that a job names."""
    return zero_stages(catalog.load("optimizers", job.optimizer)) if job.optimizer else ZERO_STAGES


def with_rank(optimizer: Optimizer, filled: dict[str, Any], layout: Layout) -> Optimizer:
    """The optimizer with the rank that a job asks for; raises DistsimError for a rank where nothing is projected, for
    stages of ZeRO that it does not run with, and for adapters, which leave no whole matrix to project."""
    rank, stages = filled["optimizer_rank"], zero_stages(optimizer)
    if layout.zero not in stages:
        why = "projects whole gradients" if optimizer.projection else "updates weights where backward makes gradients"
        raise DistsimError(
            f"--optimizer {optimizer.name} {why}, which ZeRO {layout.zero} shards",
            f"use --zero {' or '.join(map(str, stages))}, or an optimizer of ZeRO such as --optimizer adamw-8bit",
        )
    if not optimizer.projection:
        if rank is not None:
            raise DistsimError(
                f"--optimizer-rank {rank} has no effect with --optimizer {optimizer.name}",
                "those that project gradients: galore-adamw, apollo-adamw",
            )
        return optimizer
    if filled["lora_rank"]:
        raise DistsimError(
            f"--optimizer {optimizer.name} projects the gradients of whole weights, but --lora-rank freezes them",
            "leave one of the two out",
        )
    return optimizer if rank is None else optimizer.model_copy(update={"rank": rank})


def rank_told(optimizer: Optimizer) -> dict[str, int]:
    """The rank in a JSON object, where gradients are projected."""
    return {"optimizer_rank": optimizer.rank} if optimizer.projection else {}


def update_notes(optimizer: Optimizer, layout: Layout) -> list[str]:
    """What an update inside of backward cannot do: it takes a gradient before others are added to it."""
    if not optimizer.in_backward:
        return []
    found = []
    if layout.micro_batches > 1:
        found.append(
            f"{optimizer.name} updates weights in each backward pass: a step of {layout.micro_batches:,} micro-batches "
            f"is {layout.micro_batches:,} updates (transformers refuses it)"
        )
    if layout.zero < 3 and layout.sharers(experts=False) > 1:
        found.append(f"{optimizer.name} updates weights before replicas have averaged their gradients")
    return found
