"""Nodes in repair: how long one is away, how many spares stand in for it, and how long a job waits without one."""

from __future__ import annotations

from distsim import catalog
from distsim.engine.figures import Figures
from distsim.formulas import goodput as forms
from distsim.specs.failures import Failures
from distsim.units import duration

USUAL = "default"
"""The failures preset that has what others leave out."""


def repairs_of(failures: Failures) -> Failures:
    """The preset whose repair time counts: the default one where none is stated. A node that failed is always away for
    a while, and spares would have no effect if it were not."""
    return failures if failures.repair is not None else catalog.load("failures", USUAL)


def repair_note(failures: Failures) -> list[str]:
    """A note on a repair time that is not the preset's own."""
    if failures.repair is not None:
        return []
    usual = repairs_of(failures)
    away = "0 s" if usual.repair is None else duration(usual.repair)
    return [
        f"failures {failures.name} states no repair time: a node that failed is taken to be away for {away}, as in "
        f"failures {usual.name}; repair in a TOML of your own states another"
    ]


def repair_seconds(failures: Failures, figures: Figures) -> float:
    """How long a node that failed is away."""
    whose = repairs_of(failures)
    source = whose.source_of("repair") or ""
    if whose.name != failures.name:
        source = f"failures {whose.name}, as {failures.name} states none; {source}"
    return float(figures.note("repair of a node", whose.repair or 0.0, "s", source))


def enough_spares(repair: float, broken: float, figures: Figures) -> int:
    """As many spare nodes as are hardly ever all in repair, where one node fails every ``broken`` seconds."""
    return int(figures.use("spare nodes", forms.usual_spares, nodes_in_repair=repair / broken))


def waits(repair: float, spares: int, broken: float, figures: Figures) -> tuple[float, float, float]:
    """Share of the failures that find no spare node, how long these wait, and the factor on the time. Whoever takes a
    spot machine away gives another, so that only what is ``broken`` counts."""
    short = figures.use("share of failures with no spare left", forms.spares_short_probability,
                        nodes_in_repair=repair / broken, spares=spares)  # fmt: skip
    wait = figures.use("wait for a repair, with no spare left", forms.repair_wait_seconds, repair_seconds=repair,
                       spares=spares)  # fmt: skip
    stretch = figures.use("time factor of waits for repairs", forms.waiting_stretch, short_probability=short,
                          wait_seconds=wait, seconds_between_failures=broken)  # fmt: skip
    return float(short), float(wait), float(stretch)
