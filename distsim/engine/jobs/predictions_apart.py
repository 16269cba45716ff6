"""Layers of multi-token prediction apart from the loss: on which stage they are, and what that rules out.

As Megatron-core has it (NVIDIA/Megatron-LM core/transformer/pipeline_parallel_layer_layout.py,
validate_layer_layout, and multi_token_prediction.py, mtp_on_this_rank): all modules in one chunk, behind the last layer
and in the last chunk of its stage, which is not the first. The stage has a copy of the embedding, and what goes on from
it to the loss is the model's hidden states and those of each module, one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distsim.errors import DistsimError
from distsim.specs.framework import Framework
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.stage_layers import predicting

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup


def chunk_of_predictions(given: Sequence[int] | None, model: Model, layout: Layout, framework: Framework) -> int | None:
    """The chunk that has them, in model order; None where they are beside the loss. Raises DistsimError where nobody
    runs them there."""
    behind = None if given is None else predicting(given)
    if behind is None or layout.pp == 1:
        return None
    chunk = int(layout.pp * layout.vpp) + behind
    if why := _refusal(chunk, model, layout, framework):
        raise DistsimError(f"--stage-layers has MTP layers apart from the loss, but {why}", "put m beside the loss, L")
    return chunk


def _refusal(chunk: int, model: Model, layout: Layout, framework: Framework) -> str:
    stage, last = chunk % layout.pp, layout.pp * (layout.vpp - 1)
    reasons = (
        (not model.mtp_trained, "--mtp names none"),
        (not framework.supports.mtp_apart, f"{framework.name} has them on the last stage alone"),
        (bool(model.pattern), f"{model.name} is a hybrid, whose MTP layers Megatron-core has on the last stage alone"),
        (model.residual_streams > 1, f"{model.name} has several residual streams"),
        (chunk < last, f"chunk {chunk} is not the last of its stage {stage}, as Megatron-core has it"),
        (stage == 0, "the first stage, which has the embedding, cannot hold them in Megatron-core"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def stage_of_predictions(setup: Setup) -> int | None:
    """The stage that has them apart from the loss."""
    return None if setup.mtp_chunk is None else setup.mtp_chunk % setup.layout.pp


def carried_along(setup: Setup, link: int) -> int:
    """Hidden states of modules that the last chunk of stage ``link`` sends to the next beside the model's own."""
    stage = stage_of_predictions(setup)
    return setup.model.mtp_trained if stage is not None and stage <= link < setup.layout.pp - 1 else 0


def apart_note(chunk: int | None, model: Model, layout: Layout) -> list[str]:
    """What a stage has and sends on whose MTP layers are apart from the loss."""
    if chunk is None:
        return []
    stage, several = chunk % layout.pp, f"{model.mtp_trained} MTP layer{'s' * (model.mtp_trained > 1)}"
    return [
        f"stage {stage} has {several} and a copy of the embedding, and sends {1 + model.mtp_trained} hidden states of "
        "each token on to the loss"
    ]
