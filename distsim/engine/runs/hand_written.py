"""Networks that somebody wrote for plain torch, under software whose profile has transformers' modules."""

from __future__ import annotations

from typing import Any

from distsim import catalog
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.years import in_force
from distsim.interop.runs import Run
from distsim.interop.runs.models import only_described
from distsim.interop.runs.whose_modules import names_transformers, writes_network
from distsim.specs.framework import Framework
from distsim.specs.kernels import Kernels
from distsim.specs.loss import Loss

BY_HAND = "plain-torch"
"""The profile of networks that somebody wrote for plain torch."""


def hand_written(run: Run, framework: Framework) -> bool:
    """Whether somebody's own network stands where a wrapper's profile has transformers' modules: one
    that notes call written by hand, or that only cells describe and nothing calls theirs."""
    return framework.modules == "huggingface" and own_network(run)


def own_network(run: Run) -> bool:
    """Whether a network is called written by hand, or only cells describe it and nothing calls it transformers'."""
    return writes_network(run) or (only_described(run) and not names_transformers(run))


def written_usual() -> dict[str, Any]:
    """What runs of such networks usually set."""
    written: Framework = catalog.load("frameworks", BY_HAND)
    return written.usual


def written_kernels(setup: Setup, year: float) -> dict[str, Any]:
    """Kernels of networks written for plain torch in the place of those that a wrapper's profile is given; those of a
    loss that the network itself calls stay."""
    assert setup.framework.modules is not None
    written: Framework = catalog.load("frameworks", BY_HAND)
    theirs: Framework = catalog.load("frameworks", setup.framework.modules)
    given = {*theirs.kernels.model_fields_set, *theirs.families.get(setup.model.family, {})}
    found = {name: Kernels.model_fields[name].default for name in given}
    found |= written.kernels.model_dump(exclude_unset=True) | in_force(written.earlier, year)
    found |= written.compiled if setup.compiled else {}
    called: Loss | None = catalog.load("losses", setup.job.loss) if setup.job.loss else None
    kept = called.kernels if called is not None and not called.patches else {}
    return {name: kernel for name, kernel in found.items() if name not in kept}
