"""The kernels a framework runs for one model: its own, with what it does differently for the model's family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.architectures import traits_of
from distsim.arrays import Number, round_up, where
from distsim.errors import DistsimError
from distsim.preset_files import plain
from distsim.specs.accelerator import Accelerator
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels
from distsim.specs.model import Model
from distsim.specs.optimizer import Optimizer
from distsim.specs.precision import Precision
from distsim.specs.recipes import Recipe

if TYPE_CHECKING:
    from distsim.specs.loss import Loss

BY_DEFAULT = "-foreach"
"""What torch takes where nobody says and all tensors are on the GPU (torch 2.13 optim/optimizer.py,
_default_to_fused_or_foreach). In host memory it updates one tensor after the other, at the rates that offloaded updates
were measured with."""


def precision_named(framework: Framework, name: str, compiled: bool) -> Precision:
    """The recipe of precision that a name means in a framework."""
    own: Precision = catalog.load("precisions", framework.precisions.get(plain(name), name))
    return own if compiled or own.composed is None else own.model_copy(update=own.composed.recipe())


def usual_sixteen(chip: Accelerator, name: str) -> str:
    """A recipe that nobody asked for: fp16 in the place of bf16, which chips before Ampere do not multiply."""
    return "fp16" if name == "bf16" and chip.peak.fp16 and not chip.peak.bf16 else name


def usual_precision(
    filled: Mapping[str, Any], origins: Mapping[str, str], chip: Accelerator, framework: Framework
) -> tuple[Precision, list[str]]:
    """The recipe of a job's options on a chip; and a note where its own default is another one."""
    asked = filled["precision"]
    own = asked if origins.get("precision") == "you" else usual_sixteen(chip, asked)
    words = f"--precision not given: using {own}, as {chip.name} has no units for {asked}"
    return precision_named(framework, own, bool(filled["compile"])), [words] if own != asked else []


def optimizer_of(framework: Framework, name: str, on_host: bool = False) -> Optimizer:
    """An optimizer as a framework has it, under the name by which users know it."""
    asked: Optimizer = catalog.load("optimizers", name)
    own = _implementation(framework, asked, name)
    return asked if own is None or (on_host and own.foreach) else own.model_copy(update={"name": asked.name})


def _implementation(framework: Framework, asked: Optimizer, name: str) -> Optimizer | None:
    """What a framework runs in an optimizer's place that a user asked for by a name; None where it runs that itself."""
    own = framework.optimizers.get(asked.update) if asked.update else None
    if own is None or plain(name) in asked.fused:
        return None
    found: Optimizer = catalog.load("optimizers", own)
    return found


def kernels_for(framework: Framework, model: Model, compiled: bool = False) -> Kernels:
    """The framework's kernels with the overrides of ``families.<family>`` and, when compiled, of ``compiled``."""
    own = _base(framework, model)
    overrides = dict(framework.families.get(model.family) or {})
    where = f"framework {framework.name}, families.{model.family}"
    if compiled:
        overrides |= {"softmax_kernel": "one"} if own.softmax_kernel == "steps" else {}
        overrides |= framework.compiled
        where += " and compiled"
    return with_kernels(own, overrides, where) if overrides else own


MASKED_PAIRS = "always"
"""A mask of all pairs, which torch's scaled_dot_product_attention takes by its memory-efficient kernel."""
MASKED = "masked"
"""What Pallas's Splash kernel does with packed samples: which blocks run is decided by the static mask alone, segments
only mask scores inside of them (jax-ml/jax experimental/pallas/ops/tpu/splash_attention/splash_attention_kernel.py,
_next_nonzero and _apply_mask_and_soft_cap)."""


def job_kernels(
    framework: Framework, model: Model, chip: Accelerator, precision: str, compiled: bool, loss: str | None
) -> Kernels:
    """The kernels that a job runs: the framework's, those of its recipes for this model and chip, and the loss that
    the job asks for."""
    kernels = kernels_for(framework, model, compiled)
    if special := recipe_kernels(framework, model, chip, precision):
        kernels = with_kernels(kernels, special, f"framework {framework.name}, recipes")
    if kernels.sdpa and model.shown_tower is not None and model.shown_tower.both_ways:
        kernels = kernels.model_copy(update={"attention_mask": MASKED_PAIRS})
    if chip.chip.attention_block:  # Pallas
        kernels = kernels.model_copy(update={"packed": MASKED})
    return kernels if loss is None else with_loss(kernels, loss, model, compiled)


def tower_kernels(framework: Framework, model: Model, compiled: bool) -> Kernels | None:
    """The kernels of the layers of a vision tower; None where none is counted."""
    tower = model.shown_tower
    return None if tower is None else kernels_for(framework, tower.encoder, compiled)


def has_words(model: Model) -> bool:
    """Whether the model's loss is over a vocabulary."""
    return not model.text and model.output.over_vocabulary


def losses_for(framework: Framework, model: Model) -> list[str]:
    """The losses that a framework's switches bring to a model."""
    names = framework.supports.losses if has_words(model) else ()
    known = {name: catalog.load("losses", name) for name in names}
    return [name for name, one in known.items() if one.written_for(model.family) and not one.refuses(model)]


def other_losses(framework: Framework, model: Model, job: Job, chip: Accelerator) -> list[str]:
    """Those of them that a job does not have and its accelerator runs."""
    own, runs = job.loss and catalog.load("losses", job.loss).name, traits_of(chip).triton
    known = {name: catalog.load("losses", name) for name in losses_for(framework, model)}
    return [name for name, one in known.items() if one.name != own and (runs or not one.triton)]


def with_loss(kernels: Kernels, loss: str, model: Model, compiled: bool) -> Kernels:
    """The kernels with a loss by its preset's name; raises DistsimError for a model that it has no effect on."""
    found: Loss = catalog.load("losses", loss)
    if not has_words(model):
        raise DistsimError(
            f"--loss {loss} has no effect: {model.name} has no logits over a vocabulary", "leave --loss out"
        )
    if found.refuses(model):
        raise DistsimError(f"--loss {loss} is a loss for decoders, and {model.name} is not one", "leave --loss out")
    if not found.written_for(model.family):
        raise DistsimError(
            f"--loss {loss} has no effect: {found.name} does not apply to models of family {model.family}",
            "leave --loss out, or name a loss that your own code calls (distsim show losses)",
            f"families: {', '.join(found.families)}",
        )
    left = found.families.get(model.family, ())
    own = {name: value for name, value in found.kernels.items() if name not in left}
    own |= found.compiled if compiled else {}
    if kernels.loss == "cut" and "loss" not in own:
        raise DistsimError(
            f"--loss {loss} has no effect: the framework's own loss never holds logits in memory", "leave --loss out"
        )
    return with_kernels(kernels, own, f"loss {found.name}")


def recipes_of(framework: Framework, model: Model, chip: Accelerator, precision: str) -> tuple[Recipe, ...]:
    """The framework's own recipes that fit a job; none that ended or that its performance scripts change, which only
    replays bring in."""
    where = (chip.treated, chip.name)
    return tuple(
        one for one in framework.recipes if one.until is None and not one.library and one.fits(where, precision, model)
    )


def recipe_kernels(framework: Framework, model: Model, chip: Accelerator, precision: str) -> dict[str, Any]:
    """What the framework's recipes set for this model on this accelerator."""
    latent = model.latent_attention
    chooses = model.compressed_attention is not None or (latent is not None and latent.index_heads > 0)
    older = chooses and not traits_of(chip).sparse_attention
    found: dict[str, Any] = {"sparse_attention": "dense"} if older else {}
    if traits_of(chip).cuda and traits_of(chip).flash_attention != "all" and model.kv_heads < model.heads:
        found["flash_missing"] = True
    return found | {name: value for recipe in recipes_of(framework, model, chip, precision)
                    for name, value in recipe.kernels.items()}  # fmt: skip


def padded_vocab(framework: Framework, model: Model, tp: Number) -> Number:
    """Rows of the embedding: a vocabulary that tp does not divide is padded until it does, or cut."""
    if not framework.vocab_multiple:
        return model.vocab // tp * tp
    multiple = framework.vocab_multiple * (tp if framework.vocab_multiple_per_tp else 1)
    return round_up(model.vocab, where(multiple % tp, multiple * tp, multiple))


def fused_instead(framework: Framework, job: Job) -> str:
    """The name of an optimizer's fused update where a framework leaves to torch how it is made and the job takes what
    torch does by default; else nothing."""
    name = job.optimizer or "adamw"
    asked: Optimizer = catalog.load("optimizers", name)
    own = _implementation(framework, asked, name)
    on_host = "optimizer" in (job.offload or "")
    return asked.fused[0] if own is not None and own.foreach and asked.fused and not on_host else ""


def least_zero(framework: Framework, precision: str, pp: int, year: float = math.inf) -> int:
    """The ZeRO stage that a framework's software of a year runs a recipe at where nobody asks for any."""
    usual = framework.usual
    ended = pp == 1 and year > usual.get("zero_of_bf16_until", math.inf)
    return int(usual.get("zero_of_bf16", 0)) if precision.startswith("bf16") and not ended else 0


def _base(framework: Framework, model: Model) -> Kernels:
    """The framework's own kernels, over those of the framework whose modules it runs."""
    if framework.modules is None:
        return framework.kernels
    inner = kernels_for(catalog.load("frameworks", framework.modules), model)
    stated = framework.kernels.model_dump(exclude_unset=True)
    return with_kernels(inner, stated, f"framework {framework.name}, kernels") if stated else inner


def with_kernels(kernels: Kernels, overrides: dict[str, Any], where: str) -> Kernels:
    """The kernels with overrides that a preset states; ``where`` opens the message when one is wrong."""
    if unknown := sorted(set(overrides) - set(Kernels.model_fields)):
        raise DistsimError(f"unknown kernels: {', '.join(unknown)}", where=where)
    return Kernels.read({**kernels.model_dump(), **overrides}, where)


def as_stored(model: Model, framework: Framework) -> tuple[Model, list[str]]:
    """The model with the parameters that a framework's code has, and what a user should know of it."""
    if framework.unties_embeddings and model.tied_embeddings:
        model = model.model_copy(update={"tied_embeddings": False})
    experts = model.experts
    if experts is None or not experts.idle:
        return model, []
    matrices = 2 if model.gated else 1
    size = matrices * model.hidden * experts.ffn * experts.idle * (model.layers - len(experts.dense_layers))
    unread = f"{size:,} parameters of {experts.idle} experts that compute nothing"
    if framework.stores_idle_experts:
        return model, [f"{model.name} has {unread}, which transformers stores anyway"]
    model = model.model_copy(update={"experts": experts.model_copy(update={"idle": 0})})
    return model, [f"left out of {model.name}: {unread}, which only transformers stores"]
