"""Where the time of ``distsim comm --collective --explain`` comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsim.engine.figures import Figures
from distsim.engine.networks.crossing import WIRE
from distsim.engine.networks.pricing import BUS, terms_of
from distsim.formulas.collectives import call_seconds
from distsim.report.comm_figures import LINKS
from distsim.report.explain import figure_data, figure_lines
from distsim.units import decimal_bytes

if TYPE_CHECKING:
    from distsim.engine.collective import Collective
    from distsim.engine.networks.network import Group


def figures(one: Collective, group: Group) -> Figures:
    """What is sent, and the time of the way that takes least; what bus bandwidth is over algorithm bandwidth."""
    found, label = Figures(), f"{one.op} of {decimal_bytes(one.bytes)}"
    found.use(f"{label}: sent per rank", WIRE[one.op], size_bytes=one.bytes, ranks=one.gpus)
    if one.gpus == 1:
        return found
    terms, way = terms_of(one.op, float(one.bytes), group)
    numbers = f"{way} over {one.link}: latency, bandwidth and factors from {LINKS}"
    found.use(f"{label}: time", call_seconds, numbers, **terms)
    if one.op in BUS:
        found.use(f"{label}: bus over algorithm bandwidth", BUS[one.op], ranks=one.gpus)
    return found


def lines(one: Collective, group: Group, heading: str) -> list[str]:
    """The heading, and all figures of one size as text."""
    return [heading, "", *(line for figure in figures(one, group) for line in figure_lines(figure, decimal_bytes))]


def as_data(one: Collective, group: Group) -> list[dict[str, Any]]:
    """All figures of one size as plain data."""
    return [figure_data(figure) for figure in figures(one, group)]
