"""What a job may not offload: to no place, what is not sharded, and where chip and host have one memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.errors import DistsimError
from distsim.specs.accelerator import Accelerator
from distsim.specs.flags import flag


def refuse_offload(filled: Mapping[str, Any]) -> None:
    """Raise options of offloading that lack another one."""
    if filled["offload_to"] and filled["offload"] == "none":
        raise DistsimError(
            f"--offload-to {filled['offload_to']} has no effect without --offload", "add --offload optimizer"
        )
    if "parameters" in filled["offload"] and filled["zero"] != 3:
        raise DistsimError(
            f"--offload parameters needs sharded parameters, but --zero is {filled['zero']}", "add --zero 3"
        )


def kept_where_it_is(filled: dict[str, Any], origins: dict[str, str], chip: Accelerator) -> None:
    """Raise where somebody offloads on a chip that has one memory with its host: what leaves it takes as much of it
    again, and so does what passes it on the way to drives. What software offloads of itself stays."""
    if chip.host is None or chip.host.kind != "shared" or filled["offload"] == "none":
        return
    for option in ("offload", "remat_policy"):  # no software that has policies offloads without one
        if origins.get(option) == "you":
            raise DistsimError(
                f"{chip.name} and its host have one memory: {flag(option)} {filled[option]} frees none of it",
                f"leave {flag(option)} out",
            )
    filled["offload"], origins["offload"] = "none", "default"
