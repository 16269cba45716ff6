"""Candidates NCCL weighs for a collective: every allowed (algorithm, protocol) with its latency and bandwidth."""

from typing import Any, NamedTuple

from distsim.arrays import Number, floor, log2, maximum, minimum, where
from distsim.engine.networks.crossing import CHAINED, FREE, PAIRWISE, ROOTED, line_bandwidth
from distsim.engine.networks.nccl_graph import NEVER, Graph, graph_of, tables
from distsim.engine.networks.network import NVLS_GENERATION, Group, direct_oversubscription
from distsim.formulas import nccl as formulas
from distsim.units import GIGA, MICROSECOND

LL, LL128, SIMPLE = 0, 1, 2  # places in NCCL's tables
PROTOCOLS = ("LL", "LL128", "Simple")
BACKENDS = ("nccl", "rccl")  # RCCL keeps the tuner of the NCCL it was forked from
DIRECT = (*PAIRWISE, "send_recv")
SIMPLE_POSTS = 3  # posts to a NIC per step of the Simple protocol (tuning.cc)


class Candidate(NamedTuple):
    """One way to run a collective: its latency, and the algorithm bandwidths that limit it (all may be arrays).

    ``inside`` is what the fabric of a domain gives, ``across`` what the NICs give, ``cap`` what the protocol allows.
    Measured factors scale the first two; the caps are NCCL's own measurements already. ``line`` is what NICs carry at
    their line rate, which no factor lifts.
    """

    algorithm: str
    protocol: str
    latency: Number
    inside: Number
    across: Number
    cap: Number = FREE
    line: Number = FREE

    def bandwidth(self, inside: Number = 1.0, across: Number = 1.0) -> Number:
        """Algorithm bandwidth with factors on the fabric and on the NICs."""
        return minimum(self.inside * inside, self.across * across, self.cap, self.line)


def by_nodes(triple: list[float], nodes: Number) -> Number:
    """The entry for one node, two nodes, or more."""
    one, two, more = triple
    if one == two == more:
        return one
    return where(nodes <= 1, one, where(nodes == 2, two, more))


def hops(group: Group, algorithm: str, protocol: int) -> tuple[Number, Number]:
    """Seconds of one hop inside a domain and between domains, for an algorithm and protocol."""
    net, table = group.network, tables()["hop"]

    def pick(value: Any) -> Any:
        return value[protocol] if isinstance(value, list) else value

    intra = pick(table["nvlink" if net.nvlink else "pcie"][algorithm])
    # what the fabric adds to InfiniBand: once, and again for the flush that Simple needs (tuning.cc)
    extra = net.hop - table["network"]["tree"][LL]
    return intra, pick(table["network"][algorithm]) + extra * (2 if protocol == SIMPLE else 1)


def ring(group: Group, graph: Graph, protocol: int, op: str, size_bytes: Number) -> Candidate:
    """Ring with one protocol."""
    table, name = tables(), PROTOCOLS[protocol]
    n, nodes = group.ranks, group.nodes
    intra, network = hops(group, "ring", protocol)
    post = table["other"]["nic_post"] * MICROSECOND * (SIMPLE_POSTS if protocol == SIMPLE else 1)
    intra = maximum(intra, where(nodes > 1, post, 0.0))
    base, trips = table["base"]["ring"][protocol], 2 if op == "all_reduce" else 1
    steps, crossings, chain = trips * (n - 1), trips * (nodes - 1), op in CHAINED
    if chain:
        latency, steps = formulas.nccl_chain_latency(base, n, nodes, intra, network), n
    else:
        latency = formulas.nccl_ring_latency(base, steps, crossings, intra, network)
        latency = latency + posts(group, graph, protocol, size_bytes / n, crossings)
    if op == "all_reduce" and protocol == SIMPLE:
        full = size_bytes >= table["other"]["ring_plateau_bytes"] * graph.channels * n
        latency = latency * where((nodes > 1) & full, table["other"]["ring_plateau"], 1.0)
    share, cap = 1.0, FREE
    if protocol == LL:
        share, cap = table["share"]["ring_ll"], by_nodes(table["cap"]["ll"][group.network.generation], nodes)
    elif protocol == LL128:
        per_channel = by_nodes(table["cap"]["ring_ll128"][group.network.generation], nodes)
        share, cap = table["share"]["ring_ll128"], graph.channels * per_channel
    scale = formulas.nccl_ring_bandwidth(1.0, n, steps)
    copies = group.network.channelled and not group.network.rings and not chain  # a chain has no last step
    last = table["other"]["last_step"] if copies else 0.0
    inside = graph.inside * share * scale * formulas.ring_fill(steps, last)
    return Candidate("ring", name, latency, inside, graph.across * share * scale, cap * scale)


def posts(group: Group, graph: Graph, protocol: int, chunk_bytes: Number, crossings: Number) -> Number:
    """Seconds that the channels beyond the first cost in short messages: each posts to a NIC at every crossing."""
    table = tables()["other"]
    if protocol != LL:
        return 0.0
    channels = formulas.nccl_channels_used(
        chunk_bytes, table["channel_bytes"], table["channel_copies"] * graph.channels
    )
    return where(group.nodes > 1, (channels - 1) * crossings * table["channel_post"] * MICROSECOND, 0.0)


def tree(group: Group, graph: Graph, protocol: int, size_bytes: Number) -> Candidate:
    """Double binary tree all-reduce with one protocol."""
    table, gen, nodes = tables(), group.network.generation, group.nodes
    caps, share, name = table["cap"], table["share"], PROTOCOLS[protocol]
    latency = formulas.nccl_tree_latency(
        table["base"]["tree"][protocol], group.local, nodes, *hops(group, "tree", protocol)
    )
    latency = latency + posts(group, graph, protocol, size_bytes, 2 * floor(log2(nodes)))
    cap = graph.channels * by_nodes(caps["tree"][gen], nodes)
    slowed: Number = 1.0
    if protocol == LL:
        slowed = share["tree_ll"]
        cap = minimum(cap * slowed, by_nodes(caps["ll"][gen], nodes))
    elif protocol == LL128:
        slowed = where(nodes <= 1, share["tree_ll128_one_node"], share["tree_ll128"])
        cap = minimum(cap * slowed, graph.channels * by_nodes(caps["tree_ll128"][gen], nodes))
    corrected = formulas.nccl_tree_correction(table["correction"][name.lower()], size_bytes)
    scale = formulas.nccl_tree_bandwidth(1.0) * corrected
    bus = share["tree"] * slowed * scale
    return Candidate("tree", name, latency, graph.inside * bus, graph.tree_across * bus, cap * scale)


def in_switch(group: Group) -> Number:
    """Bus bandwidth of the in-switch reduction of one domain."""
    table, net = tables()["nvls"], group.network
    heads = minimum(group.local, table["heads"])
    rate = formulas.nvls_graph_rate(net.intra_rate, heads)
    return formulas.nccl_nvls_bus_bandwidth(rate, group.local, table["efficiency"][net.generation])


def nvls(group: Group, size_bytes: Number) -> Candidate:
    """In-switch reduction inside one domain."""
    table = tables()["nvls"]
    latency = formulas.nccl_nvls_latency(group.nodes, *hops(group, "nvls", SIMPLE))
    gen, heads = group.network.generation, minimum(group.local, table["heads"])
    each = size_bytes / (table["channels"][gen] * heads)
    rate = in_switch(group) * formulas.nccl_chunk_share(table["chunk_share"][gen], each, table["chunk_from"])
    bandwidth = formulas.nccl_ring_bandwidth(rate, group.ranks, 2 * (group.ranks - 1))
    allowed = (group.nodes == 1) & (group.local > table["least_local"])
    return Candidate("nvls", "Simple", latency, where(allowed, bandwidth, NEVER), FREE)


def nvls_tree(group: Group, graph: Graph) -> Candidate:
    """In-switch reduction inside each domain, a tree between domains."""
    table, net = tables(), group.network
    heads = minimum(group.local, table["nvls"]["heads"])
    scale = formulas.nccl_ring_bandwidth(1.0, group.ranks, 2 * (group.ranks - 1))
    latency = formulas.nccl_nvls_tree_latency(group.nodes, *hops(group, "nvls_tree", SIMPLE))
    allowed = (group.nodes > 1) & (group.local > table["nvls"]["least_local"])
    inside = where(allowed, in_switch(group) * scale, NEVER)
    cap = heads * by_nodes(table["cap"]["nvls_tree"][net.generation], group.nodes)
    return Candidate("nvls_tree", "Simple", latency, inside, graph.tree_across * scale, maximum(cap * scale, NEVER))


def sharp(group: Group, graph: Graph) -> list[Candidate]:
    """Reduction in the InfiniBand switches (CollNet direct and chain), where the cluster has SHARP."""
    table, many = tables(), group.nodes > 1
    efficiency = table["nvls"]["collnet_efficiency"][group.network.generation]
    fan_out = table["other"]["collnet_fan_out"] * MICROSECOND
    direct_latency = formulas.nccl_collnet_direct_latency(group.local, fan_out, *hops(group, "collnet_direct", SIMPLE))
    chain_latency = formulas.nccl_collnet_chain_latency(group.local, *hops(group, "collnet_chain", SIMPLE))
    across = where(many, graph.across, NEVER)
    half = formulas.nccl_tree_bandwidth(1.0)
    fan = formulas.nccl_collnet_direct_bandwidth(1.0, 1, efficiency) * half
    return [
        Candidate("sharp_direct", "Simple", direct_latency, graph.inside * fan, across * fan),
        Candidate("sharp_chain", "Simple", chain_latency, graph.inside * half, across * half),
    ]


def pat(group: Group, graph: Graph) -> Candidate:
    """Parallel aggregated trees, for gathers of one GPU per node."""
    table = tables()
    base, other = table["base"]["pat"][SIMPLE], table["other"]
    network = hops(group, "pat", SIMPLE)[1]
    latency = formulas.nccl_pat_latency(
        base, group.ranks, network, other["pat_overlap"], other["pat_per_rank"] * MICROSECOND
    )
    scale = formulas.nccl_ring_bandwidth(other["pat_efficiency"], group.ranks, group.ranks - 1)
    across = where((group.local <= 1) & (group.nodes > 1), graph.across * scale, NEVER)
    return Candidate("pat", "Simple", latency, FREE, across)


def direct(op: str, group: Group) -> Candidate:
    """Messages straight to every peer: all_to_all, the root of a scatter or gather, send_recv to one."""
    net, (intra, network) = group.network, hops(group, "ring", SIMPLE)
    base, many = tables()["base"]["ring"][SIMPLE], group.nodes > 1
    near = group.least - 1  # of the ranks that have most peers on other nodes
    far = group.ranks - group.least
    pair = op == "send_recv" and (net.pair_rate or net.rings)  # of a mesh: the links of two, whatever the group
    fabric = graph_of(group._replace(local=2 if pair else maximum(group.local, 2)), rings=False).inside
    slower = direct_oversubscription(group)
    if op == "send_recv":
        nic = maximum(net.nic_rate / group.sharing_alone, NEVER)
        latency = base + where(many, network, intra)
        uplink = where(slower > 1, nic / slower, FREE)  # carries its share whatever one message makes of a NIC
        across = formulas.pair_rate(nic, tables()["other"]["pair_rate"] * GIGA)
        inside = where(group.local > 1, fabric, where(many, FREE, fabric))
        return Candidate("direct", "Simple", latency, inside, where(many, across, FREE), uplink)
    alone = net.nic_rate / group.sharing_alone
    each = alone if op in ROOTED else net.nic_rate / group.sharing * group.nics / group.least
    nic = maximum(each, NEVER) / slower
    post = tables()["other"]["nic_post"] * MICROSECOND * SIMPLE_POSTS
    hop = where(many, network, intra)
    beside = tables()["other"]["near_post"][net.generation] * MICROSECOND if net.nvlink else 0.0
    latency = formulas.direct_latency(base, hop, near, far, beside or intra, post)
    nic = nic * formulas.dragonfly_share(group.nodes, net.taper)
    inside = where(near > 0, fabric * formulas.peers_share(group.ranks, near), FREE)
    across = where(far > 0, nic * formulas.peers_share(group.ranks, far), FREE)
    return Candidate("direct", "Simple", latency, inside, across)


def protocols(group: Group) -> tuple[int, ...]:
    """LL and Simple always work; LL128 needs NVLink throughout the domain (tuning.cc)."""
    return (LL, LL128, SIMPLE) if group.network.nvlink else (LL, SIMPLE)


def between_nodes(candidate: Candidate, group: Group) -> Candidate:
    """LL128 as it is between nodes: quicker to start than the tuner counts on, and not at all where GPUs reach their
    NIC through the CPU."""
    if candidate.protocol != PROTOCOLS[LL128]:
        return candidate
    many = group.nodes > 1
    if group.network.far_nics:
        return candidate._replace(across=where(many, NEVER, candidate.across))
    return candidate._replace(latency=candidate.latency * where(many, tables()["other"]["ll128_across"], 1.0))


def candidates(op: str, size_bytes: Number, group: Group) -> list[Candidate]:
    """All ways NCCL may run an op that its tuner covers; a way not allowed here has next to no bandwidth."""
    net, graph = group.network, graph_of(group)
    if op in DIRECT:
        return [direct(op, group)]
    found = [between_nodes(ring(group, graph, protocol, op, size_bytes), group) for protocol in protocols(group)]
    if op == "all_reduce":
        found += [between_nodes(tree(group, graph, protocol, size_bytes), group) for protocol in protocols(group)]
        if net.switch and net.generation >= NVLS_GENERATION and net.nvlink:
            found += [nvls(group, size_bytes), nvls_tree(group, graph)]
        if net.sharp:
            found += sharp(group, graph)
    if op in ("all_gather", "reduce_scatter"):
        found.append(pat(group, graph))
    lines = {name: line_bandwidth(op, name, group, graph.line) for name in {one.algorithm for one in found}}
    return [one._replace(line=lines[one.algorithm]) for one in found]
