"""Which changed jobs a framework runs: advice proposes nothing else, whether or not anybody named the framework."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.specs.offloads import offload_problems
from distsim.specs.support import SupportRule, unsupported


def runs(before: Setup, after: Setup) -> bool:
    """Whether its framework runs a changed job. What it does not run of the job as stated, which was computed all the
    same as nobody named it, it need not run afterwards."""
    known = _broken(before)
    return all(rule in known for rule in _broken(after)) and (not _kept(after) or _kept(before))


def _broken(setup: Setup) -> list[SupportRule]:
    return unsupported(setup.framework.supports, setup.model, setup.layout)


def _kept(setup: Setup) -> bool:
    """Whether something that is to leave the GPU cannot."""
    framework = setup.framework
    return bool(offload_problems(framework.name, framework.supports, setup.offload, setup.layout.gpus))
