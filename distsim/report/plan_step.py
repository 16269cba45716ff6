"""The command that shows the step of a plan's option."""

from __future__ import annotations

import shlex
from typing import Any

from distsim.engine.layouts.variants import unread
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.specs.flags import typed

DEGREES = ("tp", "pp", "vpp", "cp", "ep")


def step_command(made: Plan, option: Option) -> str:
    """``distsim step`` with everything that the plan chose."""
    job, one, y = made.request.terms.job, option.candidate, option.candidate.layout
    stated = {name: getattr(job, name) for name in type(job).model_fields if name in job.model_fields_set}
    chosen: dict[str, Any] = {name: y[name] for name in DEGREES if y[name] > 1}
    if y["ep"] > 1 or y["etp"] > 1:
        chosen["etp"] = y["etp"]
    if y["pp"] > 1 and y["schedule"] != ("interleaved-1f1b" if y["vpp"] > 1 else "1f1b"):
        chosen["schedule"] = y["schedule"]
    chosen["zero"] = y["zero"]
    if y["zero"] and y["zero_group"] != y["dp"] * y["cp"]:
        chosen["zero_group"] = y["zero_group"]
    if y["tp"] > 1:
        chosen["sequence_parallel"] = y["sequence_parallel"]
    chosen |= {"micro_batch": y["micro_batch"], "global_batch": one.global_batch, "recompute": y["recompute"]}
    if y["recompute"] == "full" and y["recompute_layers"] > 0:  # else all layers
        chosen["recompute_layers"] = y["recompute_layers"]
    stated.pop("model", None)
    where = {"cluster": one.cluster, "gpus": one.gpus}
    model = job.model if isinstance(job.model, str) else job.model.name
    return f"distsim step {shlex.quote(model)} {typed({**where, **stated, **unread(y), **chosen})}"
