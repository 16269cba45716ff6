"""A note on the kind of a network of which only the rate is stated."""

from __future__ import annotations

from distsim.engine.networks.links import network_for


def supposed_kind(gpu: str, gpus_per_node: int | None, gbps: float | None, network: str | None) -> str:
    """Which kind is taken for a network at a rate that is not that of the GPU's usual one, where they differ."""
    if gbps is None or network is not None:
        return ""
    usual, taken = network_for(gpu), network_for(gpu, gpus_per_node, gbps)
    if not usual.nic_rate or not taken.nic_rate or usual.inter == taken.inter:
        return ""
    return (
        f"a network of {gbps:g} Gb/s per GPU is assumed to be {taken.inter}, not the {usual.inter} that {gpu} usually "
        f"has at another rate; if it is, add --network {usual.inter}"
    )
