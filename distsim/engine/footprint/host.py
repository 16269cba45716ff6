"""What offloading asks of the memory of hosts."""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.engine.footprint.states import States
from distsim.engine.jobs.resolve import Setup


def node_bytes(setup: Setup, held: States, layers: Number, in_flight: Number) -> Number:
    """Bytes in the memory of one node whose ranks are all of one stage: their states, and what may leave of what
    ``layers`` keep of each micro-batch ``in_flight``, as far as it does."""
    kept = layers * in_flight * setup.offload_share if "activations" in setup.offload else 0
    return (held.in_host + kept) * minimum(setup.layout.gpus, setup.cluster.gpus_per_node)


def beyond_host(setup: Setup, needed: Number) -> Number:
    """Whether a node has less memory than is ``needed``; never where its cluster does not say what it has."""
    has = setup.cluster.host_memory
    return False if has is None or not setup.offload else needed > has
