"""Options of full recomputation that do not go with the rest of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.errors import DistsimError
from distsim.specs.framework import Framework


def refuse_recompute(filled: Mapping[str, Any], framework: Framework) -> None:
    """Refuse how many layers are recomputed, or share a checkpoint, where that says nothing or cannot be."""
    for name in ("recompute_layers", "recompute_group"):
        if filled[name] and filled["recompute"] != "full":
            option = f"--{name.replace('_', '-')}"
            raise DistsimError(
                f"{option} {filled[name]} has no effect with --recompute {filled['recompute']}",
                f"add --recompute full, or leave {option} out",
            )
    group = filled["recompute_group"] or 1
    if group == 1:
        return
    if filled["recompute_layers"]:
        raise DistsimError(
            f"checkpoints of {group} layers recompute all of a stage, but --recompute-layers is "
            f"{filled['recompute_layers']}",
            "leave --recompute-layers or --recompute-group out",
        )
    if not framework.supports.recompute_groups:
        raise DistsimError(
            f"{framework.name} has one layer in each checkpoint, not {group}", "leave --recompute-group out"
        )
