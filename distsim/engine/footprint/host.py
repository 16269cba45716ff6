"""What offloading asks of a node: of its memory, and of its drives."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, minimum
from distsim.engine.footprint.states import States
from distsim.engine.jobs.resolve import Setup


class NodeBytes(NamedTuple):
    """Bytes of one node whose ranks are all of one stage."""

    memory: Number = 0
    drives: Number = 0


def node_bytes(setup: Setup, held: States, layers: Number, in_flight: Number) -> NodeBytes:
    """The states of a node's ranks that are not on their GPUs, and in memory what may leave of what ``layers`` keep of
    each micro-batch ``in_flight``, as far as it does."""
    ranks = minimum(setup.layout.gpus, setup.cluster.gpus_per_node)
    kept = layers * in_flight * setup.offload_share if "activations" in setup.offload else 0
    return NodeBytes((held.away.host + kept) * ranks, held.away.drives * ranks)


def beyond_host(setup: Setup, needed: Number) -> Number:
    """Whether a node has less memory than is ``needed``; never where its cluster does not say what it has."""
    has = setup.cluster.host_memory
    return False if has is None or not setup.offload else needed > has


def drive_capacity(setup: Setup) -> int | None:
    """Bytes that the drives of a node hold; None where its cluster does not say so, or nothing goes there."""
    storage = setup.cluster.storage
    return None if storage is None or not setup.drives else storage.capacity


def beyond_drives(setup: Setup, needed: Number) -> Number:
    """Whether the drives of a node hold less than is ``needed``; never where its cluster does not say what they do."""
    has = drive_capacity(setup)
    return False if has is None else needed > has
