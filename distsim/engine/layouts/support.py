"""What the framework of a search can run, as bounds and as a mask; what the user asks for by name is let through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distsim.engine.jobs import software
from distsim.engine.layouts.bounds import WORDS, Bound, Bounds
from distsim.specs.framework import Framework
from distsim.specs.layout import SHARDS_ALL, ZERO_STAGES
from distsim.specs.support import Supports, all_the_same, unsupported

if TYPE_CHECKING:
    from distsim.engine.search import Choice, Request

LIFTED: dict[str, dict[str, Any]] = {
    "schedule": {"schedules": None}, "zero": {"zero": ZERO_STAGES, "pipeline_zero": SHARDS_ALL},
    "zero_group": {"zero_group": True}, "tp": {"tp": True, "copied_kv_heads": True}, "pp": {"pp": True},
    "cp": {"cp": True, "cp_chunks": 1}, "ep": {"ep": True}, "recompute_layers": {"some_layers": True},
    "sequence_parallel": {"whole_sequence_experts": True},
}  # fmt: skip
"""What a stated bound lifts, where the framework is only the default."""


def framework_of(request: Request) -> Framework:
    """The framework of a search."""
    found: Framework = request.overrides.get("framework") or software.framework_of(request.job)
    return found


def lenient(request: Request) -> Request:
    """The same request; where nobody named the framework, what bounds name is not held against it."""
    lifted = {name: value for stated in request.bounds.given for name, value in LIFTED.get(stated, {}).items()}
    if request.job.names_framework or not lifted:
        return request
    framework = framework_of(request)
    update = {"supports": framework.supports.model_copy(update=lifted)}
    return replace(request, overrides={**request.overrides, "framework": framework.model_copy(update=update)})


def within(bounds: Bounds, supports: Supports, pp: int, no_sync: bool = False) -> Bounds:
    """Bounds that also leave out what a framework does not run on so many stages, or with reductions put off."""
    most = min(supports.pipeline_zero if pp > 1 else SHARDS_ALL, supports.no_sync_zero if no_sync else SHARDS_ALL)
    rules: dict[str, Bound] = {}
    for name in ("tp", "pp", "cp", "ep"):
        if not getattr(supports, name):
            rules[name] = Bound("", ((2, None),))
    lacking = [stage for stage in ZERO_STAGES if stage and (stage not in supports.zero or stage > most)]
    if lacking:
        rules["zero"] = Bound("", tuple((stage, stage) for stage in lacking))
    if pp > 1 and supports.schedules is not None:
        rules["schedule"] = Bound("", words=tuple(one for one in WORDS["schedule"] if one not in supports.schedules))
    return Bounds(bounds.given, (*bounds.excluded, *({name: bound} for name, bound in rules.items())))


def notes(request: Request, found: tuple[Choice, ...]) -> list[str]:
    """What among the ranked layouts the framework does not run, though nobody named it; what was left out if it was."""
    if request.job.names_framework:
        return list(_left_out(request))
    framework = software.framework_of(request.job)  # not what was made lenient
    setups = [one.report.setup for one in reversed(found)]
    told = {
        rule.dimensions: rule.problem(framework.name, framework.supports, one.model, one.layout)
        for one in setups for rule in unsupported(framework.supports, one.model, one.layout)
    }  # fmt: skip
    return [all_the_same(problem) for problem in told.values()]


def _left_out(request: Request) -> Iterator[str]:
    """Values that the user named and the framework does not have."""
    framework, given = framework_of(request), request.bounds.given
    supports = framework.supports
    words = given["schedule"].words if "schedule" in given else ()
    lacking = [one for one in words if supports.schedules is not None and one not in supports.schedules]
    if lacking:
        yield f"{framework.name} has no pipeline schedule {', '.join(lacking)}: left out"
    stages = [stage for stage in ZERO_STAGES if "zero" in given and given["zero"].allows(stage)]
    missing = [str(stage) for stage in stages if stage not in supports.zero]
    if missing:
        yield f"{framework.name} has no ZeRO {', '.join(missing)}: left out"
