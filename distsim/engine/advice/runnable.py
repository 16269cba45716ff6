"""Which changed jobs a framework runs: advice proposes nothing else, whether or not anybody named the framework."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.specs.framework import Framework
from distsim.specs.offloads import offload_problems
from distsim.specs.support_rules import SupportRule, unsupported


def runs(before: Setup, after: Setup) -> bool:
    """Whether its framework runs a changed job. What it does not run of the job as stated, which was computed all the
    same as nobody named it, it need not run afterwards."""
    framework = after.framework
    if now := _broken(framework, after):
        known = _broken(framework, before)
        if not all(rule in known for rule in now):
            return False
    return not _kept(framework, after) or _kept(framework, before)


def _broken(framework: Framework, setup: Setup) -> list[SupportRule]:
    return unsupported(framework.supports, setup.model, setup.layout)


def _kept(framework: Framework, setup: Setup) -> bool:
    """Whether something that is to leave the GPU cannot."""
    modules = bool(setup.job.offload_modules)
    return bool(offload_problems(framework.name, framework.supports, setup.offload, setup.layout, modules))
