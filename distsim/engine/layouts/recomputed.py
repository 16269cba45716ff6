"""What a search may compute again: nothing, what the framework's selective recomputation is, modules, whole layers."""

from __future__ import annotations

from distsim.engine.jobs.modules import cheap_modules
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.bounds import Bounds
from distsim.errors import DistsimError

MODULES = "modules"
"""The word for modules of experts' layers that take little time to compute again."""


def selective_word(setup: Setup) -> str:
    """What selective recomputation of a setup is called in a search."""
    return MODULES if setup.job.recompute_modules else "selective"


def recomputations(base: Setup, layers: int, bounds: Bounds) -> list[tuple[int, int]]:
    """(selective, layers that are fully recomputed; -1 for all) that may be tried; of a job with modules they alone.
    What the framework has no switch for is tried only where it is asked for."""
    words, counted = bounds.words("recompute"), "recompute_layers" in bounds.given
    if base.job.recompute_modules:
        return [] if counted or not {"selective", MODULES}.intersection(words) else [(1, 0)]
    switches = base.framework.supports.recompute_switches
    if "operations" not in switches and "recompute" not in bounds.given:
        words = [word for word in words if word != "selective"]
    found = [pair for word, pair in (("none", (0, 0)), ("selective", (1, 0))) if word in words and not counted]
    if "full" in words and "layers" not in switches and not counted:
        found.append((0, -1))
    elif "full" in words:
        numbers = bounds.choices("recompute_layers", list(range(1, layers + 1)))
        found += [(0, number if number < layers else -1) for number in numbers]
    return found


def lists_of_modules(base: Setup, bounds: Bounds) -> list[str | None]:
    """Modules to open a setup with: the job's own, or none and the cheap ones where there are any and a search may try
    them; raises where only these are asked for and there are none."""
    words = bounds.words("recompute")
    if base.job.recompute_modules or base.job.remat_policy:
        return [base.job.recompute_modules]
    cheap = cheap_modules(base.framework, base.model) if MODULES in words else ()
    if words == [MODULES] and not cheap:
        lacks = f"{base.model.name} has no experts" if base.framework.supports.modules else "it has no list of modules"
        raise DistsimError(
            f"--recompute modules has nothing to compute again in {base.framework.name}: {lacks}", "leave modules out"
        )
    return [*([] if words == [MODULES] else [None]), *([",".join(cheap)] if cheap else [])]
