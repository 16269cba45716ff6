"""The command that shows the step of a plan's option."""

from __future__ import annotations

from typing import Any

from distsim.engine.layouts.variants import unread
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.specs.flags import typed
from distsim.specs.written import model_word, options_of

DEGREES = ("tp", "pp", "vpp", "cp", "ep")


def step_command(made: Plan, option: Option) -> str:
    """``distsim step`` with everything that the plan chose."""
    job, one, layout = made.request.terms.job, option.candidate, option.candidate.layout
    chosen: dict[str, Any] = {name: layout[name] for name in DEGREES if layout[name] > 1}
    if layout["ep"] > 1 or layout["etp"] > 1:
        chosen["etp"] = layout["etp"]
    if layout["pp"] > 1 and layout["schedule"] != ("interleaved-1f1b" if layout["vpp"] > 1 else "1f1b"):
        chosen["schedule"] = layout["schedule"]
    chosen["zero"] = layout["zero"]
    if layout["zero"] and layout["zero_group"] != layout["dp"] * layout["cp"]:
        chosen["zero_group"] = layout["zero_group"]
    if layout["tp"] > 1:
        chosen["sequence_parallel"] = layout["sequence_parallel"]
    chosen |= {"micro_batch": layout["micro_batch"], "global_batch": one.global_batch, "recompute": layout["recompute"]}
    if layout["recompute_modules"]:
        chosen["recompute_modules"] = layout["recompute_modules"]
    if layout["recompute"] == "full" and layout["recompute_layers"] > 0:  # else all layers
        chosen["recompute_layers"] = layout["recompute_layers"]
    where = {"cluster": one.cluster, "gpus": one.gpus}
    return f"distsim step {model_word(job)} {typed({**where, **options_of(job), **unread(layout), **chosen})}"
