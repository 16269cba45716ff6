"""One collective on a GPU's usual node or a named cluster: time, bandwidths, algorithm."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from distsim import catalog, keywords
from distsim.engine.networks import pricing
from distsim.engine.networks.links import network_for
from distsim.engine.networks.network import Group, Network, group_of
from distsim.errors import DistsimError
from distsim.preset_kinds import DEFAULT_GPU
from distsim.specs.cluster import Cluster
from distsim.specs.limits import LARGEST_DEGREE
from distsim.units import GIB, parse

if TYPE_CHECKING:
    from pathlib import Path


LARGEST = 2**50  # 1 PiB: beyond any buffer of one GPU, so a slip of units


@dataclass(frozen=True)
class Collective:
    """The predicted run of one collective. Bandwidths are as nccl-tests defines them, in bytes per second."""

    op: str
    gpus: int
    gpus_per_node: int
    bytes: int
    seconds: float
    algorithm: str
    protocol: str
    link: str
    wire_bytes_per_rank: float
    algorithm_bandwidth: float
    bus_bandwidth: float

    def to_dict(self) -> dict[str, Any]:
        """All fields by name; ``seconds``, whole bytes and bytes per second."""
        return {**asdict(self), "wire_bytes_per_rank": round(self.wire_bytes_per_rank)}


@catalog.settled()
def collective(
    op: str,
    gpu: str | Path | None = None,
    gpus: int = 8,
    bytes: int | float | str = GIB,
    gpus_per_node: int | None = None,
    internode_gbps_per_gpu: float | None = None,
    network: str | None = None,
    cluster: str | Path | Cluster | None = None,
    backend: str | None = None,
    sharp: bool = False,
    profile: str | Path | None = None,
) -> Collective:
    """Price one collective of ``gpus`` ranks, ``gpus_per_node`` of them on each node.

    ``bytes`` is the size as nccl-tests counts it, a number or a text like ``1GB``. ``network`` names a link class
    (``ib-ndr``, ``efa-v2``, ...) other than the usual one for the GPU and rate; ``cluster`` is a cluster
    preset's name, a file or the spec itself, instead of ``gpu``; ``profile`` is a file of factors fitted to your own
    measurements. Raises DistsimError for what does not exist or cannot form a group.
    """
    name = pricing.op_named(keywords.word("op", op))
    if gpu is not None and cluster is not None:
        raise DistsimError(f"gpu {gpu} and cluster {cluster} both name the accelerator", "keep one of them")
    words = {"network": network, "backend": backend, "profile": profile}
    stated: dict[str, Any] = {one: None if text is None else keywords.word(one, text) for one, text in words.items()}
    if gpus_per_node is not None:
        stated["gpus_per_node"] = _countable("gpus_per_node", gpus_per_node)
    if internode_gbps_per_gpu is not None:
        stated["internode_gbps_per_gpu"] = keywords.number("internode_gbps_per_gpu", internode_gbps_per_gpu)
    card = DEFAULT_GPU if gpu is None else keywords.word("gpu", gpu)
    ranks, spec = _countable("gpus", gpus), _cluster(cluster)
    group = group_on(card, ranks, spec, sharp=keywords.switch("sharp", sharp), **stated)
    size = parse(bytes, "B", "bytes")
    _check_size(size)
    size = round(size)  # once: what is reported is what is priced
    return priced(name, size, group)


def _countable(name: str, value: Any) -> int:
    """A number of GPUs; raises for more than any option takes."""
    found = keywords.whole(name, value, None)
    if found > LARGEST_DEGREE:
        raise DistsimError(f"{name} {found:,} is out of range", f"it must be at most {LARGEST_DEGREE:,}")
    return found


def group_on(gpu: str = DEFAULT_GPU, gpus: int = 8, cluster: Any = None, **stated: Any) -> Group:
    """The ranks of one collective; ``stated`` are further options of ``network_for``."""
    spec = _cluster(cluster)
    card = spec.gpu if spec is not None else gpu
    group = group_for(gpus, network_for(card, cluster=spec, **stated), card)
    if spec is not None and spec.nodes is not None and gpus > spec.nodes * spec.gpus_per_node:
        most = spec.nodes * spec.gpus_per_node
        raise DistsimError(f"{gpus} GPUs do not fit {spec.name}, which has {most}", f"use at most {most}")
    return group


def _cluster(cluster: Any) -> Cluster | None:
    """The spec of a cluster, its preset or its file."""
    if cluster is None or isinstance(cluster, Cluster):
        return cluster

    found: Cluster = catalog.load("clusters", keywords.word("cluster", cluster))
    return found


def _check_size(size: float) -> None:
    if not 0 <= size <= LARGEST:
        raise DistsimError(f"{size:,.0f} bytes is not a valid collective size", f"give 0 to {LARGEST:,} bytes (1 PiB)")


def group_for(gpus: int, net: Network, gpu: str) -> Group:
    """A group over whole nodes; raises where it cannot be made or has no link between its nodes."""
    if gpus < 1 or gpus != int(gpus):
        raise DistsimError(f"{gpus} GPUs cannot form a group", "give a whole number, at least 1")
    group = group_of(gpus, net.domain, net)
    if group.nodes > 1 and net.nic_rate <= 0:
        raise DistsimError(
            f"{gpus} {gpu} in nodes of {net.domain} need a network, but its rate is {net.nic_rate:g}",
            "state internode_gbps_per_gpu, such as 400, or a cluster",
        )
    return group


def priced(op: str, size: float, group: Group) -> Collective:
    """The report of one call on a group."""
    out = pricing.price(op, float(size), group)
    rate = size / out.seconds if out.seconds > 0 else 0.0
    factor = pricing.bus_factor(op, group.ranks)
    return Collective(
        op, int(group.ranks), int(group.network.domain), int(size), float(out.seconds), str(out.algorithm),
        str(out.protocol), str(out.link), float(out.wire_bytes), rate, rate * factor,
    )  # fmt: skip
