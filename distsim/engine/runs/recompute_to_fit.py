"""What a measured run computed again where nobody says: as much as it needed to fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distsim import catalog
from distsim.engine.jobs.profile import recipes_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.memory import memory_of
from distsim.engine.runs.contradictions import too_large
from distsim.engine.runs.losses import with_loss_of
from distsim.interop.runs import Run
from distsim.interop.runs.attention import attention_said
from distsim.interop.runs.recompute_notes import denies_recomputation

CHUNKED = "fused-linear"
"""The loss of runs whose logits would not fit: Liger's, which trainers of this family can switch on."""
TAKEN = "a replay, to fit"
"""Whence a loss is that no row names."""
SWITCHED = ("torch",)
"""Families of frameworks in which a switch computes all layers again or none (transformers' PreTrainedModel,
gradient_checkpointing_enable; torch's apply_activation_checkpointing, as PyTorch's FSDP tutorial has it)."""


def fitting(setup: Setup) -> Setup:
    """The setup recomputing as much as it needs to fit, since it ran; itself where nothing helps, but all of it under
    policies for all layers: what then still does not fit is on the host."""

    def recomputing(layers: int) -> Setup:
        return replace(setup, recompute="full", layout=setup.layout.with_(recompute_layers=layers, selective=0))

    fewest, most = 1, max(setup.stage_layers)
    if setup.recompute == "full" or memory_of(setup).fits:
        return setup
    if setup.kernels.kept is not None:
        return next((one for one in _with_less(setup) if memory_of(one).fits), recomputing(most))
    if _switched(setup):
        return _all_of_it(setup)
    if not memory_of(recomputing(most)).fits:
        return setup
    while fewest < most:
        middle = (fewest + most) // 2
        fewest, most = (fewest, middle) if memory_of(recomputing(middle)).fits else (middle + 1, most)
    return recomputing(most)


def recomputes_until_fits(setup: Setup) -> bool:
    """Whether jobs alike are known to compute as much again as they need to fit."""
    return setup.tuning is not None or bool(setup.framework.usual.get("recompute_until_fits"))


def _with_less(setup: Setup) -> Iterator[Setup]:
    """The setup under its framework's own policies, which hold for all layers, from the one that keeps most on."""
    layout = setup.layout.with_(selective=1)
    yield replace(setup, recompute="selective", layout=layout)
    for policy in setup.framework.remat.values():
        if not policy.offload:
            kernels = setup.kernels.model_copy(update={"kept": policy.keeps})
            yield replace(setup, recompute="selective", layout=layout, kernels=kernels)


def as_it_ran(run: Run, setup: Setup) -> Setup:
    """The setup of a row whose layout stands, computing again what it must and, where logits are too large even so,
    with a loss that never has them all."""
    found = _recomputing(run, setup)
    return _in_chunks(found) if _whole_logits(found) and _beyond(with_loss_of(run, found)) else found


def _whole_logits(setup: Setup) -> bool:
    """Whether a loss that nobody named makes whole logits of a decoder, in software that has others."""
    able = setup.framework.family in SWITCHED and setup.job.loss is None
    return able and setup.model.causal and not setup.model.encoder_layers and setup.kernels.loss in ("eager", "fused")


def _in_chunks(setup: Setup) -> Setup:
    """The setup with output layer and loss together, a few tokens at a time, if it then fits."""
    loss = catalog.load("losses", CHUNKED)
    kernels, origins = setup.kernels.model_copy(update=loss.kernels), {**setup.origins, "loss": TAKEN}
    chunked = replace(setup, kernels=kernels, origins=origins)
    return setup if too_large(chunked, memory_of(chunked).peak) else chunked


def _recomputing(run: Run, setup: Setup) -> Setup:
    """The setup computing again as much as it needs. One that does not say what it computes again, of software without
    recipes that do, computes as much as it needs where it is too large by more than predictions err: it ran, so
    something is left out, and nothing else is left out as often. Not so where notes deny it, and where nobody names
    the kernel of attention and the job would fit without its scores in memory, which are then only assumed."""
    said = run.text("recompute") is not None or denies_recomputation(run.notes)
    blank = not said and setup.recompute != "full" and not recomputes_until_fits(setup)
    if not blank or not _beyond(with_loss_of(run, setup)):
        return setup
    doubtful = setup.layout.attention == "eager" and attention_said(run) is None
    if doubtful and not _beyond(_without_scores(setup)):
        return setup
    return _all_of_it(setup) if _switched(setup) else fitting(setup)


def _without_scores(setup: Setup) -> Setup:
    return replace(setup, layout=setup.layout.with_(attention="flash"))


def _beyond(setup: Setup) -> bool:
    """Whether a job is too large for the card by more than predictions err, of software whose recipes say nothing of
    what they compute again, and of which none is meant for the job. A measured peak is not asked: no peak may tell what
    is predicted for it."""
    framework = setup.framework
    told = any(recipe.again is not None for recipe in framework.recipes)
    if told or recipes_of(framework, setup.model, setup.accelerator, setup.precision.name):
        return False
    return bool(too_large(setup, memory_of(setup).peak))


def _switched(setup: Setup) -> bool:
    return setup.framework.family in SWITCHED


def _all_of_it(setup: Setup) -> Setup:
    """The setup computing all layers again; itself where it would still not fit."""
    layout = setup.layout.with_(recompute_layers=max(setup.stage_layers), selective=0)
    again = replace(setup, recompute="full", layout=layout)
    return setup if too_large(setup, memory_of(again).peak) else again


def assumed_loss(setup: Setup) -> str:
    """A loss that is taken for granted, since whole logits would not fit."""
    taken = setup.origins.get("loss") == TAKEN
    return "logits would not fit: assumed a loss of a few tokens at a time" if taken else ""


def assumed_to_fit(run: Run, setup: Setup) -> str:
    """What is taken for granted of a blank cell where the run would not have fitted without recomputation."""
    again, usual, whole = setup.layout.recompute_layers, setup.framework.usual, setup.framework.usual_whole
    stated = "recompute" in usual or "recompute" in whole or recomputes_until_fits(setup)
    if run.text("recompute") is not None or setup.recompute != "full" or stated:
        return ""
    if not _beyond(replace(setup, recompute="none", layout=setup.layout.with_(recompute_layers=0))):
        return ""
    of = "all layers" if again in (-1, max(setup.stage_layers)) else f"{again} of {max(setup.stage_layers)} layers"
    return f"recompute is blank: assumed {of}, as the run would not fit without"
