"""Which products of a model have adapters: the ones that are named, as a framework finds them."""

from __future__ import annotations

from distsim import catalog
from distsim.engine.jobs.profile import kernels_for
from distsim.errors import DistsimError, did_you_mean
from distsim.specs.framework import Framework
from distsim.specs.kernels import Kernels
from distsim.specs.model import Model
from distsim.specs.products import FUSED_EXPERTS, LINEAR_ROUTERS, MIXER_IN, MIXER_OUT, mixer_products, products
from distsim.specs.tuning import ELSEWHERE, GROUPS, LETTERS, MIXERS, ExpertAdapters, Tuning, targets_named

USUAL_TARGETS = "all-linear"
EXPERT_MATRICES = ("gate", "up", "down")
NAMED = "experts"
"""The target that means routed experts alone, and all of their matrices."""


def targets_of(asked: str | None, framework: Framework, model: Model) -> frozenset[str]:
    """The products named that the model has; an error where it has none of them. ``asked`` is None where nobody named
    any."""
    named = asked or default_targets(framework, model)
    targets = frozenset(targets_named(named).split(","))
    own = owned(framework, model)
    for name, meant in ELSEWHERE.items():
        if name in targets and name not in own and not frozenset(MIXERS) <= targets:
            targets |= frozenset(meant)
    found = targets & frozenset(own)
    if not found and no_default(asked, framework, model):
        raise DistsimError(
            f"{framework.name} (peft) has no default --lora-targets for {model.family} models",
            f"it has {', '.join(dict.fromkeys(own))}",
        )
    if not found:
        shown = "mixers" if targets == frozenset(MIXERS) else named
        raise DistsimError(
            f"--lora-targets {shown}: {model.name} has no such module", did_you_mean(shown, own),
            f"it has {', '.join(dict.fromkeys(own))}",
        )  # fmt: skip
    if MIXER_OUT in found and model.family in framework.adapters.refuses_mixer_output:
        others = ",".join(name for name in LETTERS if name in found - {MIXER_OUT})
        raise DistsimError(
            f"{framework.name} puts no adapter on {MIXER_OUT} of {model.family} models, whose kernels would bypass it",
            f"name the others: --lora-targets {others}" if others else f"it has {', '.join(dict.fromkeys(own))}",
        )  # fmt: skip
    return found


def default_targets(framework: Framework, model: Model) -> str:
    """The framework's choice for the model's family, or for any."""
    library = _library(framework)
    usual: str = library.defaults.get("lora_targets") or USUAL_TARGETS
    return library.adapters.targets.get(model.family, usual)


def splits_fused(framework: Framework, model: Model) -> bool:
    """Whether queries, keys and values have adapters each where the framework's rows have one projection: by its own
    rule, or since the library that adapts the model has its modules apart."""
    rules = framework.adapters
    apart = bool(rules.targets_of) and kernels_for(_library(framework), model).qkv_matrices > 1
    return rules.splits_fused or apart


def _library(framework: Framework) -> Framework:
    """The framework whose library of adapters this one uses, itself or another."""
    name = framework.adapters.targets_of
    return catalog.load("frameworks", name) if name else framework


def no_default(asked: str | None, framework: Framework, model: Model) -> bool:
    """Whether targets are taken for granted that the framework itself would ask for."""
    known = _library(framework).adapters.targets
    return asked is None and bool(known) and bool(model.family) and model.family not in known


def owned(framework: Framework, model: Model) -> tuple[str, ...]:
    """All products of the model that can be named."""
    own = (*products(model), "head")
    if framework.kernels.qkv_matrices == 1 and mixer_products(model):
        own += (MIXER_IN, MIXER_OUT)
    if model.experts is None:
        return own
    own += (NAMED,)
    if framework.adapters.experts != "tensors":
        return (*own, *(EXPERT_MATRICES if model.gated else EXPERT_MATRICES[1:]))
    return (*own, *EXPERT_MATRICES, "router") if model.family in FUSED_EXPERTS else own


def experts_of(
    targets: frozenset[str], rank: int, dropout: bool, framework: Framework, kernels: Kernels, model: Model
) -> ExpertAdapters:
    """The adapters of routed experts among these targets.

    What transformers holds as tensors peft adapts in some families by its matrices' old names, gate and up as one of
    twice the rank, and in all as tensors: ``experts``, which is its ``target_parameters``.
    """
    how = framework.adapters.experts
    if model.experts is None:
        return ExpertAdapters()
    if how == "tensors" and kernels.expert_modules == "each":  # releases before 5.0: modules like any other
        how = "each"
    named = targets & frozenset(EXPERT_MATRICES)
    if how != "tensors":
        return ExpertAdapters(how, frozenset(EXPERT_MATRICES) if NAMED in targets else named)
    by_name = named if model.family in FUSED_EXPERTS else frozenset()
    if len(by_name & {"gate", "up"}) == 1:
        stated = next(iter(by_name & {"gate", "up"}))
        raise DistsimError(
            f"--lora-targets {stated}: {framework.name} holds gate and up of {model.name}'s experts as one tensor",
            "name both, or neither: --lora-targets …,gate,up",
        )
    router = "router" in targets and model.family in FUSED_EXPERTS and model.family not in LINEAR_ROUTERS
    whole = frozenset(EXPERT_MATRICES) if NAMED in targets else by_name
    if dropout and (whole or router):
        raise DistsimError(
            f"--lora-dropout: {framework.name} folds adapters of experts and routers into their weights, so "
            "their inputs cannot be dropped out", "leave it out, or name other modules: --lora-targets attention",
        )  # fmt: skip
    fused = 1 if (NAMED in targets and not by_name) or not model.gated else 2
    return ExpertAdapters("tensors", whole, rank * fused, not by_name, router)


def target_notes(asked: str | None, tuning: Tuning, framework: Framework, model: Model) -> list[str]:
    """What of the products that a user named has no adapter: those the model has not, and experts. ``asked`` is None
    where nobody named any."""
    named = frozenset(targets_named(asked or default_targets(framework, model)).split(","))
    found = _without_effect(named, tuning.targets, model) if asked else []
    if no_default(asked, framework, model):
        taken = ",".join(name for name in LETTERS if name in tuning.targets)
        found.append(f"--lora-targets not given: using {taken}; {framework.name} (peft) has no default for "
                     f"{model.family} models and requires them")  # fmt: skip
    return [*found, *_passed_over(named, tuning, framework.name, model)]


def _without_effect(asked: frozenset[str], targets: frozenset[str], model: Model) -> list[str]:
    """Names that match nothing, but for those that words for several products bring with them."""
    if frozenset(GROUPS["all-linear"]) <= asked:
        return []
    left = asked - targets - frozenset(ELSEWHERE)
    if frozenset(MIXERS) <= asked:
        left -= frozenset(MIXERS)
    if "up" in targets:
        left -= {"gate"}
    if not left:
        return []
    shown = ",".join(name for name in LETTERS if name in left)
    return [f"--lora-targets {shown} has no effect: {model.name} has no such module"]


def _passed_over(named: frozenset[str], tuning: Tuning, framework: str, model: Model) -> list[str]:
    """Experts that targets seem to mean and do not, or other MLPs that do not have what they seem to have."""
    mixture, experts = model.experts, tuning.experts
    if mixture is None or experts.how != "tensors":
        return []
    if experts.targets:
        if experts.others or "down" not in products(model):
            return []
        return [
            f"gate, up and down mean routed experts: {framework} (peft 0.21) then puts no adapters on the other MLPs"
        ]
    if not named & frozenset(EXPERT_MATRICES):
        return []
    width, fused = mixture.latent or model.hidden, 2 if model.gated else 1
    layers = model.pattern.count("E") if model.pattern else model.layers - len(mixture.dense_layers)
    more = tuning.rank * mixture.count * layers * (2 * width + (1 + fused) * mixture.ffn)
    return [
        f"routed experts have no adapters: {framework} (peft 0.21) does not find {model.family}'s by these names; "
        f"as tensors (target_parameters) they would train {more:,} more parameters: --lora-targets …,{NAMED}"
    ]
