"""Whether a job attends by a kernel, where its framework has none for the model's family, or none by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsim.engine.jobs.profile import kernels_for
from distsim.errors import DistsimError
from distsim.specs.framework import Framework
from distsim.specs.model import Model

if TYPE_CHECKING:
    from distsim.specs.kernels import Kernels


def settle_attention(
    filled: dict[str, Any], origins: dict[str, str], framework: Framework, model: Model, replayed: bool
) -> list[str]:
    """Composed attention in ``filled`` where that is what runs and nobody says otherwise; what a user should know of
    it. Raises DistsimError for a kernel that is asked for and does not exist, but of a measured run: it had one."""
    kernels = kernels_for(framework, model)
    if filled["attention"] == "eager" or not (kernels.composed_only or kernels.composed_default):
        return []
    if origins["attention"] != "you":
        filled["attention"], origins["attention"] = "eager", f"framework {framework.name}"
        return [_composed(framework, model, kernels)]
    if replayed:
        return []
    if kernels.composed_only:
        raise DistsimError(
            f"--attention {filled['attention']}: {_owner(framework)} has no attention kernel for {model.name} "
            f"(family {model.family})",
            "leave --attention out, or use --attention eager",
        )
    return [
        f"--attention {filled['attention']}: for {model.name} {_owner(framework)} has only kernels of other packages, "
        'such as flash-attn (attn_implementation="flash_attention_2"), not torch\'s scaled_dot_product_attention'
    ]


def _owner(framework: Framework) -> str:
    """Whose modules attend."""
    return framework.modules or framework.name


def _composed(framework: Framework, model: Model, kernels: Kernels) -> str:
    """The note on attention that is composed because nobody says otherwise."""
    unfused, owner = f"attention of {model.name} is unfused", _owner(framework)
    if kernels.composed_only:
        return f"{unfused}, with its scores in memory: {owner} has no kernel for it"
    words = f"{unfused} by default in {owner}, with its scores in memory"
    return f"{words}; --attention flash uses a kernel from another package"
