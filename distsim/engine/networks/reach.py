"""Whether so many accelerators can be had in a cluster, and whether anything joins them."""

from __future__ import annotations

from distsim.engine.exchanges.all_flows import network_of
from distsim.engine.jobs.resolve import Setup
from distsim.errors import DistsimError


def refuse_beyond(setup: Setup, gpus: int) -> None:
    """Raise for more GPUs than the machine has, and for nodes that nothing joins: no link would carry their traffic."""
    cluster, network = setup.cluster, network_of(setup)
    if cluster.nodes is not None and gpus > cluster.nodes * cluster.gpus_per_node:
        most = cluster.nodes * cluster.gpus_per_node
        raise DistsimError(
            f"{gpus} GPUs do not fit cluster {cluster.name}, which has {most}", f"use --gpus {most} or fewer"
        )
    if gpus > network.domain and network.nic_rate <= 0:
        raise DistsimError(
            f"{gpus} GPUs in nodes of {network.domain} need a network, and cluster {cluster.name} states none",
            f"use --gpus {network.domain} or fewer, or a --cluster with a network",
        )
