"""Whether so many accelerators can be had in a cluster, whether anything joins them, and which groups cross nodes."""

from __future__ import annotations

from distsim.arrays import Number, each, some, where
from distsim.engine.exchanges.all_flows import network_of
from distsim.engine.exchanges.data import sharings
from distsim.engine.exchanges.model import span_of
from distsim.engine.exchanges.pipeline import stages_span
from distsim.engine.jobs.resolve import Setup
from distsim.engine.networks.spread import filled_by, spread
from distsim.errors import DistsimError


def refuse_beyond(setup: Setup, gpus: int) -> None:
    """Raise for more GPUs than the machine has, and for nodes that nothing joins: no link would carry their traffic."""
    cluster = setup.cluster
    if cluster.nodes is not None and gpus > cluster.nodes * cluster.gpus_per_node:
        most = cluster.nodes * cluster.gpus_per_node
        raise DistsimError(
            f"{gpus} GPUs do not fit cluster {cluster.name}, which has {most}", f"use --gpus {most} or fewer"
        )
    refuse_unjoined(setup, gpus)


def refuse_unjoined(setup: Setup, gpus: int) -> None:
    """Raise for GPUs on several nodes that nothing joins, whose traffic would take forever."""
    cluster, network = setup.cluster, network_of(setup)
    if gpus > network.domain and network.nic_rate <= 0:
        raise DistsimError(
            f"{gpus} GPUs in nodes of {network.domain} need a network, but cluster {cluster.name} states none",
            f"use --gpus {network.domain} or fewer, or a --cluster with a network",
        )


GROUPS = {"tp": "tensor", "cp": "context", "ep": "expert", "etp": "expert tensor"}


def straddling(setup: Setup) -> tuple[str, ...]:
    """A note for each kind of model parallel groups that would fit a node, or a rack, and of which some lie on two."""
    cluster, found = setup.cluster, []
    place = "node" if cluster.domain == cluster.gpus_per_node else "domain"
    for group, words in GROUPS.items():
        ranks, stride, world = (one := span_of(setup.layout, group)).ranks, one.stride, one.world
        block = ranks * stride
        if ranks > 1 and block <= cluster.domain:
            domains, _ = spread(ranks, stride, world, cluster.domain, cluster.gpus_per_node)
            if domains > 1:
                found.append(
                    f"--{group} {ranks}: {block} neighbouring GPUs do not divide the {cluster.domain} of a {place}, so "
                    f"some groups span two; {words} parallel exchanges are priced over the network between them"
                )
    return tuple(found)


def domain_gpus(setup: Setup) -> Number:
    """GPUs of each domain that the job takes: all, or fewer of a rack, as many as hold whole groups of those that are
    priced inside of one."""
    layout, cluster = setup.layout, setup.cluster
    if not some(layout.gpus > cluster.domain):
        return layout.gpus
    spans = [span_of(layout, group) for group in GROUPS]
    spans += [one for sharing in sharings(setup)[0] for one in (sharing.data, sharing.shard, sharing.replicas)]
    blocks = [where(one.ranks > 1, one.ranks * one.stride, 0) for one in spans]
    if layout.pp > 1:
        blocks.append(stages_span(layout).stride)  # one stage, whose ranks send to their likes on the next
    return each(lambda *sizes: filled_by([round(one) for one in sizes if one], cluster.domain, cluster.gpus_per_node),
                *blocks)  # fmt: skip
