"""What owners of updated parameters send to all ranks that share them."""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.engine.exchanges.flows import Flow, Span, of_states
from distsim.engine.footprint.stored import Unit
from distsim.engine.jobs.resolve import Setup


def broadcasts(setup: Setup, shard: Span, units: list[Unit], sharded: Number) -> list[Flow]:
    """Each updated parameter from its owner to all (torch ZeroRedundancyOptimizer), or all of an owner's at once: ranks
    beyond the number of parameters own none."""
    each, name = setup.precision.parameter_bytes, setup.precision.gather_dtype
    sent: list[tuple[Number, Number]] = [(unit.count, one.elements) for unit in units for one in unit.tensors]
    if setup.framework.traffic.owners_send == "all":
        elements = sum(count * size for count, size in sent)
        owners = minimum(shard.ranks, sum(count for count, _ in sent))
        sent = [(owners, elements / owners)]
    return [
        of_states("parameters", "broadcast", shard, name, "step", count * sharded, size * each) for count, size in sent
    ]
