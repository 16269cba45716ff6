"""Accelerators whose memory is their host's, to which nothing can be offloaded."""

from __future__ import annotations

from typing import Any

from distsim.errors import DistsimError
from distsim.specs.accelerator import Accelerator


def kept_where_it_is(filled: dict[str, Any], origins: dict[str, str], chip: Accelerator) -> None:
    """Raise where somebody offloads on a chip that has one memory with its host: what leaves it takes as much of it
    again, and so does what passes it on the way to drives. What software offloads of itself stays."""
    if chip.host is None or chip.host.kind != "shared" or filled["offload"] == "none":
        return
    if origins.get("offload") == "you":
        raise DistsimError(
            f"{chip.name} and its host have one memory: --offload {filled['offload']} frees none of it",
            "leave --offload out",
        )
    filled["offload"], origins["offload"] = "none", "default"
