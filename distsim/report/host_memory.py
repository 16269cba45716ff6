"""What offloading needs of a node as lines of text."""

from __future__ import annotations

from distsim.engine.footprint.host import beyond_drives, beyond_host, drive_capacity
from distsim.engine.memory import MemoryReport
from distsim.report.job_words import flowed
from distsim.report.style import VERMILLION, Style
from distsim.units import gib


def host_lines(report: MemoryReport, term: Style) -> list[str]:
    """What offloading needs of a node's memory and of its drives, and whether it has so much."""
    setup = report.setup
    if not setup.offload:
        return []
    beyond = bool(beyond_host(setup, report.node_bytes))
    found = _held_against("host memory", report.node_bytes, setup.cluster.host_memory, beyond, report, term)
    if setup.drives:
        full = bool(beyond_drives(setup, report.drive_bytes))
        found += _held_against("NVMe drives", report.drive_bytes, drive_capacity(setup), full, report, term)
    return found


def _held_against(
    what: str, needed: int, has: int | None, beyond: bool, report: MemoryReport, term: Style
) -> list[str]:
    name = report.setup.cluster.name
    if has is None:
        return flowed([f"{what} {gib(needed)} per node", f"{name} does not state its capacity"], "; ", term.width)
    told = term.ink("does not fit", VERMILLION) if beyond else "fits"
    return flowed([f"{what} {gib(needed)} of {gib(has)} per node of {name}:", told], " ", term.width)
