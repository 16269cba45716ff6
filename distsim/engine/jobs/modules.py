"""Modules of a layer that a job names: those that compute again in backward, and those whose tensors are offloaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distsim.engine.jobs.profile import with_kernels
from distsim.errors import DistsimError
from distsim.specs.flags import flag
from distsim.specs.modules import CHEAP, CHOICES, IMPLIED, offloaded, parts_of, recomputed

if TYPE_CHECKING:
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job
    from distsim.specs.kernels import Kernels
    from distsim.specs.model import Model
    from distsim.specs.precision import Precision

MEANT = {"recompute_modules": recomputed, "offload_modules": offloaded}
"""What a list of modules means, by option."""
NEEDS = ("attn_proj", "core_attn")
"""A module whose input another saves too; Megatron refuses the first without the second (transformer_config.py)."""
UNDELAYED = ("moe_act", "layernorm")
"""Modules that compute again in 8 bits unless scales are delayed."""
ABLE = "megatron-core"
"""A framework that has them, to name where another one has not."""


def with_modules(
    job: Job, kernels: Kernels, framework: Framework, model: Model, policy: Mapping[str, Any], *, replayed: bool
) -> Kernels:
    """The kernels with what the modules that a job names change, and a ``policy``; raises, but for measured runs, where
    the framework has no such list or the model none of the modules."""
    has = parts_of(model)
    found = dict(policy)
    for option in CHOICES:
        if (named := getattr(job, option)) is None:
            continue
        own, without = MEANT[option](named.split(","), has)
        if not replayed:
            if not framework.supports.modules:
                raise DistsimError(
                    f"{framework.name} has no list of modules: {flag(option)} {named} has no effect",
                    f"leave it out, or name another framework, e.g. {ABLE}",
                )
            _refuse_without(option, without, model, has)
            if option == "offload_modules" and NEEDS[0] in named and NEEDS[1] not in named:
                raise DistsimError(
                    f"{flag(option)} {NEEDS[0]} moves nothing by itself: {NEEDS[1]} saves the same tensor",
                    f"add {NEEDS[1]}, or leave {NEEDS[0]} out",
                )
        found |= own
    return with_kernels(kernels, found, "modules of the job") if found else kernels


def _refuse_without(option: str, without: tuple[str, ...], model: Model, has: frozenset[str]) -> None:
    """Raise where a model has none of the modules."""
    if without:
        every = CHOICES[option]
        lacks = MEANT[option](every, has).without
        raise DistsimError(
            f"{flag(option)} {','.join(without)} has no effect on {model.name}",
            f"leave it out; modules of this model: {', '.join(one for one in every if one not in lacks)}",
        )


def modules_of(job: Job) -> dict[str, str]:
    """The lists and the policy that a job names, as its answers have them."""
    return {option: named for option in IMPLIED if (named := getattr(job, option))}


def module_notes(job: Job, precision: Precision) -> list[str]:
    """What Megatron takes only with some recipe of 8 bits (transformer_config.py: "Delayed scaling does not support
    moe_act and layernorm recompute for fp8")."""
    again = [one for one in (job.recompute_modules or "").split(",") if one in UNDELAYED]
    if not precision.may_delay or not again:
        return []
    named = " and ".join(again)
    return [
        f"Megatron computes {named} again in 8 bits with --fp8-recipe tensorwise or blockwise, not with delayed scaling"
    ]


def cheap_modules(framework: Framework, model: Model) -> tuple[str, ...]:
    """Modules of experts' layers that take little time to compute again, where a framework has a list of them."""
    if not framework.supports.modules or model.experts is None:
        return ()
    lacks = recomputed(CHEAP, parts_of(model)).without
    return tuple(one for one in CHEAP if one not in lacks)
