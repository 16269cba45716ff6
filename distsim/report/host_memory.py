"""The memory of hosts as lines of text."""

from __future__ import annotations

from distsim.engine.memory import MemoryReport
from distsim.report.job_words import flowed
from distsim.report.style import VERMILLION, Style
from distsim.units import gib


def host_lines(report: MemoryReport, term: Style) -> list[str]:
    """What offloading needs of a node's memory, and whether it has so much."""
    if not report.setup.offload:
        return []
    cluster = report.setup.cluster
    if cluster.host_memory is None:
        needed = f"host memory {gib(report.node_bytes)} a node"
        return flowed([needed, f"{cluster.name} does not say what it has"], "; ", term.width)
    told = "fits" if report.fits_hosts else term.ink("does not fit", VERMILLION)
    needed = f"host memory {gib(report.node_bytes)} of {gib(cluster.host_memory)} a node of {cluster.name}:"
    return flowed([needed, told], " ", term.width)
