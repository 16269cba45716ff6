"""What an accelerator and its share of a node draw."""

from typing import Annotated

from pydantic import Field

from distsim.specs.base import Sourced
from distsim.specs.quantity import Part, Ratio, Watts


class PowerDraw(Sourced):
    """How an accelerator's draw follows its utilisation, and what its share of the node adds.

    ``default`` holds for accelerators without a profile of their own. ``full_watts`` is the most it draws where that
    is not the power on its preset; the fractions are of that. A node's overhead is ``node_watts`` per accelerator
    where that was measured, else ``node_share`` of what the cluster's preset says beyond its accelerators, else
    ``node_fraction`` of theirs.
    """

    name: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    idle_fraction: Part
    """Between a failure and the next step."""
    least_fraction: Part
    """In a job that runs but only waits for others."""
    full_watts: Watts | None = None
    full_utilisation: Annotated[Ratio, Field(gt=0, le=1)]
    """Model FLOPs over peak from which on the accelerator draws all it will."""
    node_watts: Watts | None = None
    node_share: Part
    node_fraction: Annotated[Ratio, Field(le=3)]
