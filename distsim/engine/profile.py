"""The kernels a framework runs for one model: its own, with what it does differently for the model's family."""

from __future__ import annotations

from distsim.errors import DistsimError
from distsim.specs.framework import Framework, Kernels
from distsim.specs.model import Model


def kernels_for(framework: Framework, model: Model) -> Kernels:
    """The framework's kernels with the overrides of ``families.<family>``."""
    overrides = framework.families.get(model.family)
    if not overrides:
        return framework.kernels
    where = f"framework {framework.name}, families.{model.family}"
    if unknown := sorted(set(overrides) - set(Kernels.model_fields)):
        raise DistsimError(f"unknown kernels: {', '.join(unknown)}", where=where)
    return Kernels.read({**framework.kernels.model_dump(), **overrides}, where)
