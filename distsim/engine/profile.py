"""A framework's kernels as they are for one family of models."""

from __future__ import annotations

from distsim.specs.framework import Framework, Kernels
from distsim.specs.model import Model


def kernels_for(framework: Framework, model: Model) -> Kernels:
    """The framework's kernels with what it does differently for the model's family."""
    own = framework.families.get(model.family)
    return framework.kernels if not own else Kernels.read({**framework.kernels.model_dump(), **own})
