"""What transformers' modules did in the release that a measured run's notes name."""

from __future__ import annotations

from typing import Any

from distsim.engine.runs.years import in_force
from distsim.interop.runs import Run
from distsim.interop.runs.transformers_releases import transformers_released
from distsim.specs.framework import Framework

MODULES = "huggingface"
"""The profile of transformers, and what others name whose models are made of its modules."""
OF_MODULES = (
    "expert_modules", "expert_products", "keys_expanded", "loss_frees_narrow", "loss_shifted", "recompute_holds",
    "recompute_reaches_inputs",
)  # fmt: skip
"""Kernels that frameworks had otherwise (``Framework.earlier``) and that are code of transformers, not of torch."""


def modules_year(run: Run, framework: Framework, year: float) -> float:
    """The year of a run's modules: of the release of transformers that notes name, be it older or newer than the run's
    own, where these are the framework's."""
    released = transformers_released(run) if MODULES in (framework.name, framework.modules) else None
    return year if released is None else released


def earlier_kernels(run: Run, framework: Framework, year: float) -> dict[str, Any]:
    """What a framework's kernels were in a year, those of transformers' modules in that of their release."""
    own = in_force(framework.earlier, year)
    if (released := modules_year(run, framework, year)) == year:
        return own
    then = in_force(framework.earlier, released)
    others = {name: kernel for name, kernel in own.items() if name not in OF_MODULES}
    return others | {name: then[name] for name in OF_MODULES if name in then}
