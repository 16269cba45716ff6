"""The machine as a tree of levels with the bytes that cross each, drawn with characters."""

from __future__ import annotations

from distsim.arrays import ceil_div
from distsim.engine.exchanges.flows import SLOW_LINK
from distsim.engine.exchanges.offloading import DRIVES, host_rate
from distsim.engine.exchanges.reach import domain_gpus
from distsim.engine.traffic import DRIVE_OPS, GPU_OPS, HOST_OPS, Row, TrafficReport
from distsim.formulas.collectives import nvls_link_bytes
from distsim.report import terminal
from distsim.report.prose import folded_to
from distsim.report.style import Style
from distsim.units import decimal_bytes


def picture(report: TrafficReport, term: Style) -> list[str]:
    """Levels from the widest to one GPU; what crosses a level is drawn on the line that joins its parts."""
    network, gpus = report.network, report.setup.layout.gpus
    per_domain = domain_gpus(report.setup)
    domains = int(ceil_div(gpus, per_domain))
    idle = f" ({network.domain} in each)" if domains > 1 and per_domain < network.domain else ""
    levels: list[str] = []
    cluster = report.setup.cluster
    tiers = cluster.network.tiers if cluster.network is not None else ()
    for index, tier in reversed(list(enumerate(tiers, start=1))):
        groups = int(ceil_div(gpus, tier.nodes * cluster.gpus_per_node))
        if groups > 1:
            nodes = _most(ceil_div(gpus, cluster.gpus_per_node), tier.nodes)
            text = f"{groups} groups of {nodes} nodes, uplinks {tier.oversubscription:g}:1"
            levels.append(f"{text}: {_crossing(report, index)}")
    if domains > 1:
        rate = f"{network.inter}, {decimal_bytes(line_rate(report, network.inter), 'B/s')} per GPU"
        levels.append(f"{domains:,} domains of {_most(gpus, per_domain)} GPUs{idle}, {rate}: {_crossing(report, 0)}")
    if per_domain > 1:
        inside = sum(stays_inside(row) for row in report.collectives if row.op not in HOST_OPS)
        rate = f"{network.intra}, {decimal_bytes(line_rate(report, network.intra), 'B/s')} per GPU"
        levels.append(
            f"{_most(gpus, per_domain)} GPUs in a domain, {rate}{_bridges(report)}: {decimal_bytes(inside)} inside"
        )
    levels.append(_gpu(report))
    title = "Hierarchy, and what each GPU sends across each level in a step:"
    return [title, *_nested(levels, term), *_between_replicas(report)]


def _most(all_of_them: int, each: int) -> str:
    """How many are in each part, where the last may have fewer or all may share what is missing."""
    return f"up to {each}" if all_of_them % each else str(each)


def _between_replicas(report: TrafficReport) -> list[str]:
    """What goes over a link of the replicas' own, whatever the machine."""
    slow = [row for row in report.collectives if row.link == SLOW_LINK]
    if not slow:
        return []
    replicas, rate = max(row.group_size for row in slow), decimal_bytes(line_rate(report, SLOW_LINK), "B/s")
    return [f"{replicas:,} replicas, {SLOW_LINK}, {rate} per GPU: {decimal_bytes(sum(map(carried, slow)))}"]


def _bridges(report: TrafficReport) -> str:
    """What joins some of a domain's GPUs besides."""
    bridge, link = report.network.bridge, report.setup.accelerator.link
    if bridge is None or link is None:
        return ""
    return f" ({bridge.link} bridges join every {bridge.cards}, {decimal_bytes(link.rate, 'B/s')})"


def line_rate(report: TrafficReport, link: str) -> float:
    """Bytes per second that one GPU's share of a link carries in one direction as its preset states it; 0: unknown."""
    network, cluster = report.network, report.setup.cluster
    if link == network.inter and cluster.network is not None:
        return cluster.network.node_bytes_per_second / cluster.gpus_per_node
    own = report.setup.accelerator.link
    if network.bridge is not None and link == network.bridge.link and own is not None:
        return own.rate
    if link == network.intra:
        return cluster.fabric.rate or network.intra_rate
    if link in (SLOW_LINK, DRIVES):  # ranks share it, and nothing but its bytes takes time
        slow = [row for row in report.collectives if row.link == link]
        return float(sum(map(carried, slow)) / sum(row.seconds for row in slow))
    return float(host_rate(report.setup) or 0)


def carried(row: Row) -> float:
    """Bytes of one rank that a link carries: what is sent, or copied to and from the host in either direction. Where
    the switch adds up (NVLS) that is less than a ring would send."""
    if row.op in HOST_OPS:
        return float(row.bytes_per_call * row.calls)
    if row.op == "all_reduce" and row.algorithm == "nvls":
        return float(nvls_link_bytes(row.bytes_per_call * row.calls / row.every_steps, row.group_size))
    return float(row.wire_bytes_per_rank)


def stays_inside(row: Row) -> float:
    """Bytes of one rank that the links inside its domain carry, to the switch and from it where that adds up."""
    if row.op == "all_reduce" and row.algorithm in ("nvls", "nvls_tree"):
        return float(nvls_link_bytes(row.bytes_per_call * row.calls / row.every_steps, row.local))
    return float(row.wire_bytes_per_rank - row.level_bytes[0])


def _crossing(report: TrafficReport, level: int) -> str:
    rows = [row for row in report.collectives if level < len(row.level_bytes) and row.link != SLOW_LINK]
    return decimal_bytes(sum(row.level_bytes[level] for row in rows))


def _gpu(report: TrafficReport) -> str:
    host, drives = (sum(carried(row) for row in report.collectives if row.op in ops) for ops in (GPU_OPS, DRIVE_OPS))
    copied = f", {decimal_bytes(host)} to and from host memory" if host else ""
    if drives:  # both in one line of a terminal
        copied = f", {decimal_bytes(host)} host memory, {decimal_bytes(drives)} drives"
    return f"one {report.setup.accelerator.name}: {decimal_bytes(report.wire_bytes_per_rank)} sent{copied}"


def _nested(levels: list[str], term: Style) -> list[str]:
    """Each level below the one before it, twice where there are two or more of it."""
    tee, corner, bar = ("├─ ", "└─ ", "│") if term.unicode else ("+- ", "`- ", "|")
    room = terminal.width()
    made = folded_to(room, levels[:1], 4)
    indent = ""
    for text in levels[1:]:
        first, *rest = folded_to(room and room - len(indent) - len(tee), [text], 2)
        made += [f"{indent}{bar}", f"{indent}{tee}{first}", *(f"{indent}{bar}  {line}" for line in rest)]
        made += [f"{indent}{corner}…"]
        indent += f"{bar}  "
    return _straight(made)


def _straight(made: list[str]) -> list[str]:
    """Deeper lines before the last branch of the level above, so that no line crosses another."""
    heads = [line for line in made if not line.rstrip().endswith("…")]
    tails = [line for line in made if line.rstrip().endswith("…")]
    return heads + tails[::-1]
