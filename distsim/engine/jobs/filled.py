"""What a user should know of experts that FSDP2 cannot share evenly."""

from __future__ import annotations

from distsim.engine.footprint.states import sharding_group
from distsim.engine.footprint.stored import filling_of
from distsim.engine.jobs.resolve import Setup


def filled_experts(setup: Setup) -> tuple[str, ...]:
    """A note where so many ranks share experts that some hold whole ones, and all gather what fills the others up."""
    y, filling, experts = setup.layout, filling_of(setup), setup.model.experts
    if experts is None or filling.padding != "parameter" or filling.by_columns or y.zero < 2:
        return ()
    ranks, local = sharding_group(y, "expert"), experts.count // y.ep
    if ranks <= local:
        return ()
    words = f"FSDP2 shards by expert: the {local} of a layer are filled up to {ranks}, one for each rank"
    if not setup.framework.traffic.experts_by_columns:
        return (words,)
    return (f"{words}; with --ep {setup.framework.name} cuts inside experts",)
