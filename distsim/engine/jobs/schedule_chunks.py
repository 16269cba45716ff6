"""Model chunks per pipeline stage that a job's schedule asks for."""

from __future__ import annotations

from typing import Any

from distsim.engine.jobs.placement import chunk_layers
from distsim.errors import DistsimError
from distsim.schedules.names import of_step
from distsim.schedules.registry import Kind, chunks_for, find
from distsim.specs.framework import Framework
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.stage_layers import BALANCED, REST
from distsim.specs.support import Supports


def chunks_of_stages(filled: dict[str, Any], origins: dict[str, str]) -> None:
    """Fill in how many chunks a stage has where layers are stated for more chunks than there are stages."""
    given, pp = filled["stage_layers"], filled["pp"]
    if (
        given is not None
        and REST not in given
        and tuple(given) != BALANCED
        and origins["vpp"] == "default"
        and len(given) % pp == 0
    ):
        chunks = len(given) // pp
        if pp > 1 and chunks > 1:
            filled["vpp"], origins["vpp"] = chunks, "stage_layers"


def usual_schedule(filled: dict[str, Any], supports: Supports) -> str | None:
    """1F1B, interleaved where stages have several chunks, or what a framework has instead."""
    known, chunks = supports.schedules, filled["vpp"]
    usual = "interleaved-1f1b" if chunks > 1 else "1f1b"
    if filled["pp"] == 1 or known is None or usual in known:
        return None
    fitting = (name for name in known if find(name).least <= chunks <= (find(name).most or chunks))
    return next(fitting, None)


def settle_chunks(filled: dict[str, Any], origins: dict[str, str], model: Model, framework: Framework) -> list[str]:
    """Check the schedule's name and chunks in a job's options and fill in what it fixes; returns notes for the user."""
    if filled["schedule"] is None:
        filled["schedule"] = usual_schedule(filled, framework.supports)
        return []
    kind = find(filled["schedule"])
    name = filled["schedule"] = of_step(filled["schedule"])
    if filled["pp"] == 1:
        return [f"schedule {name} has no effect with pp 1"]
    if origins["vpp"] != "default":
        chunks_for(name, filled["vpp"])
        alone = f"schedule {name} has one model chunk per stage to interleave; --vpp 2 gives it more"
        return [alone] if kind.most is None and filled["vpp"] == 1 else []
    if kind.default_chunks == 1:
        return []
    if kind.least == 1 and not _divides(filled, kind, model, framework):
        most = filled["pp"] * kind.default_chunks
        return [f"schedule {name} runs one model chunk per stage: the layers do not divide into {most} chunks"]
    filled["vpp"], origins["vpp"] = kind.default_chunks, f"schedule {name}"
    return [f"--vpp not given: using {kind.default_chunks}, the model chunks per stage of schedule {name}"]


def _divides(filled: dict[str, Any], kind: Kind, model: Model, framework: Framework) -> bool:
    """Whether a model's layers can be placed on as many chunks as the schedule usually has."""
    layout = Layout(tp=filled["tp"], pp=filled["pp"], vpp=kind.default_chunks)
    try:
        return bool(chunk_layers(filled["stage_layers"], model, layout, framework))
    except DistsimError:
        return False
