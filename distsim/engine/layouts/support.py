"""What the framework of a search can run, as bounds; what the user asks for by name is let through."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distsim.engine.jobs import software
from distsim.engine.jobs.projected import zero_stages
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.bounds import Bounds
from distsim.specs.framework import Framework
from distsim.specs.layout import SHARDS_ALL, ZERO_STAGES, Layout
from distsim.specs.model import Model
from distsim.specs.offloads import offload_problems
from distsim.specs.support import Supports
from distsim.specs.support_rules import SUPPORT_RULES, SupportRule, all_the_same, unsupported

if TYPE_CHECKING:
    from distsim.engine.layouts.choice import Choice
    from distsim.engine.layouts.report import Request

LIFTED: dict[str, dict[str, Any]] = {
    "schedule": {"schedules": None}, "zero": {"zero": ZERO_STAGES, "pipeline_zero": SHARDS_ALL},
    "zero_group": {"zero_group": True}, "tp": {"tp": True, "copied_kv_heads": True},
    "pp": {"pp": True, "tied_pipeline": True},
    "cp": {"cp": True, "cp_chunks": 1}, "ep": {"ep": True},
    "recompute_layers": {"some_layers": True, "recompute_counts": "stages"},
    "sequence_parallel": {"whole_sequence_experts": True}, "etp": {"lone_experts": True},
}  # fmt: skip
"""What a stated bound lifts, where the framework is only the default."""


def framework_of(request: Request) -> Framework:
    """The framework of a search."""
    found: Framework = request.overrides.get("framework") or software.framework_of(request.job)
    return found


def lenient(request: Request) -> Request:
    """The request with its framework's limits lifted for what the user's bounds name, where nobody named the
    framework."""
    bounds = request.bounds
    stated = [name for name in bounds.given if name not in bounds.usual]
    lifted = {name: value for one in stated for name, value in LIFTED.get(one, {}).items()}
    if request.job.names_framework or not lifted:
        return request
    framework = framework_of(request)
    update = {"supports": framework.supports.model_copy(update=lifted)}
    return replace(request, overrides={**request.overrides, "framework": framework.model_copy(update=update)})


SHARED = {"dp": 2, "zero_group": 2}
"""Data parallel ranks on which stages of ZeRO are tried: a stage that a framework runs on one rank alone, where it
shards nothing, is not what anybody asks for."""


def runs(supports: Supports, model: Model, name: str, value: int | str, **others: Any) -> bool:
    """Whether a framework runs one value of a dimension, by the rules about it alone and with pipeline stages;
    ``others`` are what else is known of the layouts."""
    rules = _rules_about(name)
    layout = Layout(**{**others, name: value}) if rules else Layout()
    return all(rule.holds(supports, model, layout) for rule in rules)


@functools.cache
def _rules_about(name: str) -> tuple[SupportRule, ...]:
    """Those about a dimension alone or with pipeline stages."""
    return tuple(rule for rule in SUPPORT_RULES if {name} <= {*rule.dimensions} <= {name, "pp"})


def within(bounds: Bounds, setup: Setup, pp: int) -> Bounds:
    """Bounds that also leave out what the framework does not run on so many stages, or with reductions put off, and
    what the optimizer does not run with."""
    supports, late, stages = setup.framework.supports, setup.job.no_sync, zero_stages(setup.optimizer)

    def able(name: str, value: int | str) -> bool:
        if name == "zero" and (int(value) not in stages or (late and int(value) > supports.no_sync_zero)):
            return False
        return runs(supports, setup.model, name, value, pp=pp, **SHARED)

    return replace(bounds, runs=able)


def notes(request: Request, found: tuple[Choice, ...], model: Model) -> list[str]:
    """What among the ranked layouts the framework does not run, though nobody named it; what was left out if it was."""
    if request.job.names_framework:
        return list(_left_out(request, model))
    framework = software.framework_of(request.job)  # not what was made lenient
    setups = [one.report.setup for one in reversed(found)]
    told = {
        rule.dimensions: rule.problem(framework.name, framework.supports, one.model, one.layout)
        for one in setups for rule in unsupported(framework.supports, one.model, one.layout)
    }  # fmt: skip
    kept = [problem for one in setups for problem, _ in offload_problems(
        framework.name, framework.supports, one.offload, one.layout, bool(one.job.offload_modules))]  # fmt: skip
    return [all_the_same(problem) for problem in (*told.values(), *kept[-1:])]


def has(request: Request, model: Model, name: str, value: int | str) -> bool:
    """Whether the framework of a search has a ZeRO stage or a schedule."""
    return runs(framework_of(request).supports, model, name, value, pp=2 if name == "schedule" else 1, **SHARED)


def _left_out(request: Request, model: Model) -> Iterator[str]:
    """Values that the user named and the framework does not have."""
    framework, given = framework_of(request), request.bounds.given
    named: dict[str, tuple[str, Sequence[int | str]]] = {
        "schedule": ("pipeline schedule", given["schedule"].words if "schedule" in given else ()),
        "zero": ("ZeRO", [stage for stage in ZERO_STAGES if "zero" in given and given["zero"].allows(stage)]),
    }
    for name, (words, values) in named.items():
        left = [one for one in values if not has(request, model, name, one)]
        if left:
            yield f"{framework.name} has no {words} {', '.join(map(str, left))}: left out"
