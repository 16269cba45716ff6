"""Levels of switches between the nodes of a cluster."""

from typing import Annotated

from pydantic import Field

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, Ratio


class Tier(Spec):
    """One level of switches: how many nodes hang below one of its groups, and how much uplink bandwidth is missing."""

    name: str
    nodes: Count
    oversubscription: Annotated[Ratio, Field(ge=1)] = 1.0
