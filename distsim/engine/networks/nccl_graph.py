"""What NCCL's search of the topology gives a group, and the constants of its tuner that all its ways share."""

from typing import Any, NamedTuple

from distsim import catalog
from distsim.arrays import Number, maximum, minimum, take, where
from distsim.engine.networks.crossing import FREE
from distsim.engine.networks.network import NVLS_GENERATION, Group, Network, fullest, ring_oversubscription
from distsim.last import while_same
from distsim.units import GIGA, MICROSECOND

TABLES = "nccl-2.30"
NEVER = 1e-30  # a bandwidth that is never the best: the pair is not allowed here


@while_same(lambda: catalog.state("links", TABLES))
def tables() -> dict[str, Any]:
    """NCCL's constants in SI, as the preset states them."""
    raw = catalog.load("links", TABLES)
    scaled = dict(raw)
    for key in ("base", "hop"):
        scaled[key] = _scale(raw[key], MICROSECOND)
    scaled["cap"] = _scale(raw["cap"], GIGA)
    rates = {key: _scale(raw["graph"][key], GIGA) for key in ("channel", "doubled_from", "doubled_always")}
    scaled["graph"] = {**raw["graph"], **rates}
    return scaled


def _scale(value: Any, factor: float) -> Any:
    if isinstance(value, dict):
        return {key: _scale(one, factor) for key, one in value.items()}
    if isinstance(value, list):
        return [_scale(one, factor) for one in value]
    return value * factor


class Graph(NamedTuple):
    """What NCCL's topology search gives for a group: rates over all its channels, and how many channels."""

    inside: Number
    across: Number
    tree_across: Number
    channels: Number
    line: Number
    """What the NICs of the domain with fewest ranks carry."""


def fabric_rate(net: Network, local: Number, rings: bool = True) -> Number:
    """Bytes per second that one of ``local`` GPUs has to the others of its group: links between each two leave those to
    GPUs outside the group idle, and more where rings do not use them all."""
    if not net.pair_rate:
        return net.intra_rate
    used, most = net.mesh_links if rings else (), len(net.mesh_links) - 1
    links = take(used, minimum(fullest(local), most)) if used else maximum(local - 1, 1)
    return minimum(net.intra_rate, net.pair_rate * links)


def graph_of(group: Group, rings: bool = True) -> Graph:
    """Rates of the fabric and of the NICs. On two nodes a tree crosses once where a ring crosses nearly twice."""
    net, table = group.network, tables()
    speed = table["graph"]["channel"][net.generation]
    if net.rings:
        count = take(net.rings, minimum(fullest(group.local), len(net.rings) - 1))
        inside, channels = count * speed, maximum(1.0, count)
    else:
        rate = fabric_rate(net, group.local, rings)
        if net.bridge is not None and rings:
            rate = rate * where(group.bridges, net.bridge.between, 1.0)
        channels = maximum(1.0, rate // speed)
        whole = where(rate > 0, minimum(channels * speed, rate), speed)  # one GPU has none
        inside = whole if net.channelled and not net.mesh_links else rate
    line = group.nics * net.nic_rate / group.sharing / ring_oversubscription(group)
    many = group.nodes > 1
    across = where(many, maximum(line * table["graph"]["nic_share"], NEVER), FREE)
    doubled = across * where(group.nodes == 2, 2.0, 1.0) if net.two_node_tree else across
    used = where(many, channels_across(group), channels)
    return Graph(where(group.local > 1, inside, FREE), across, doubled, used, maximum(line, NEVER))


def channels_across(group: Group) -> Number:
    """Channels between nodes: one per GPU, and twice as many where each would be fast and they are few (NCCL's
    ncclTopoDupChannels), so that what a channel holds does not bound few fast NICs."""
    table, net, count = tables()["graph"], group.network, maximum(1, group.least)
    rate = net.nic_rate * table["nic_share"] / group.sharing
    few = count <= table["few_channels"] if net.generation >= NVLS_GENERATION else True
    doubled = (rate >= table["doubled_from"]) & (few | (rate >= table["doubled_always"]))
    return count * where(doubled, 2, 1)
