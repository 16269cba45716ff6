"""What peft's preparation of a quantised model does beside widening what is not quantised."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup

CHECKPOINTED = (
    "peft's prepare_model_for_kbit_training, whose fp32 weights are counted, also turns gradient checkpointing on "
    "unless told otherwise: --recompute full"
)


def prepared_notes(setup: Setup) -> list[str]:
    """A note on recomputation that nobody asked for and that a user's script most likely has."""
    tuning = setup.tuning
    stated = setup.job.recompute is not None or setup.recompute != "none"
    return [CHECKPOINTED] if tuning is not None and tuning.others_fp32 and not stated else []
