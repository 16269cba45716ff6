"""The house around the machines: power price, PUE, grid; and what an accelerator and its share of a node draw."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from distsim.specs.base import Sourced
from distsim.specs.quantity import Dollars, Ratio, Watts


class Facility(Sourced):
    """A data centre. ``pue`` is all power over the power of the machines."""

    name: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    pue: Annotated[Ratio, Field(ge=1, le=5)]
    usd_per_kwh: Annotated[Dollars, Field(le=10)] | None = None
    kg_co2e_per_kwh: Annotated[Ratio, Field(le=3)] | None = None
    """Of the grid it hangs on, as a yearly mean."""


class PowerDraw(Sourced):
    """How an accelerator's draw follows its utilisation, and what its share of the node adds.

    ``default`` holds for accelerators without a profile of their own. ``full_watts`` is the most it draws where that
    is not the power on its preset; ``idle_fraction`` is of that. A node's overhead is ``node_watts`` per accelerator
    where that was measured, else ``node_share`` of what the cluster's preset says beyond its accelerators, else
    ``node_fraction`` of theirs.
    """

    name: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    idle_fraction: Annotated[Ratio, Field(le=1)]
    full_watts: Watts | None = None
    full_utilisation: Annotated[Ratio, Field(gt=0, le=1)]
    """Model FLOPs over peak from which on the accelerator draws all it will."""
    node_watts: Watts | None = None
    node_share: Annotated[Ratio, Field(le=1)]
    node_fraction: Annotated[Ratio, Field(le=3)]
