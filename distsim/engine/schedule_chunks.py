"""Model chunks per pipeline stage that a job's schedule asks for."""

from __future__ import annotations

from typing import Any

from distsim.schedules.registry import chunks_for, find


def settle_chunks(filled: dict[str, Any], origins: dict[str, str]) -> list[str]:
    """Check the schedule's name and chunks in a job's options and fill in what it fixes; returns notes for the user."""
    if filled["schedule"] is None:
        return []
    kind = find(filled["schedule"])
    name = filled["schedule"] = filled["schedule"].lower().replace("_", "-")
    if filled["pp"] == 1:
        return [f"schedule {name} has no effect with pp 1"]
    if origins["vpp"] != "default":
        chunks_for(name, filled["vpp"])
        return []
    if kind.least > 1:
        filled["vpp"], origins["vpp"] = kind.default_chunks, f"schedule {name}"
        return [f"--vpp not given: {kind.default_chunks} taken, the model chunks per stage of schedule {name}"]
    if kind.most is None:
        return [f"schedule {name} has one model chunk per stage to interleave; --vpp 2 gives it more"]
    return []
