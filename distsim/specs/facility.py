"""The house around the machines: power price, PUE, upkeep."""

from typing import Annotated

from pydantic import Field

from distsim.specs.base import Sourced
from distsim.specs.quantity import Dollars, Part, Ratio


class Facility(Sourced):
    """A data centre. ``pue`` is all power over the power of the machines. What a user's own file leaves out is as in
    presets/facilities/default.toml, which has the sources."""

    name: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    pue: Annotated[Ratio, Field(ge=1, le=5)]
    usd_per_kwh: Annotated[Dollars, Field(le=10)] | None = None
    kg_co2e_per_kwh: Annotated[Ratio, Field(le=3)] | None = None
    """Of the grid it hangs on, as a yearly mean."""
    usd_per_kw_month: Annotated[Dollars, Field(le=5000)] | None = None
    """Rent of the hall with its cooling, per kW that the machines may draw; electricity comes on top. None where the
    hall is there already."""
    upkeep_fraction: Part = 0.10
    """Support and spare parts per year, of the price of the machines."""
    interest: Part = 0.0
    """Per year, on what the machines are worth on average: nothing is counted unless it is stated."""
    network_fraction: Annotated[Ratio, Field(le=2)] = 0.10
    """Switches, cables and storage on top of the price of nodes, where a price is without them."""
    lifetime_years: Annotated[float, Field(gt=0, le=30)] = 5.0
    residual_fraction: Part = 0.10
    """What a machine is worth at the end of its life, of its price."""
    utilisation: Annotated[Ratio, Field(gt=0, le=1)] = 0.85
    """Share of all hours for which bought machines have work."""
