"""What a row of measured runs says of its step time, in whatever unit it says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from distsim import catalog
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.flop_conventions import stated_flops, stated_peak
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.years import run_year
from distsim.errors import DistsimError
from distsim.interop.runs import MissingCell, Run, measured_step_seconds
from distsim.interop.runs.flop_words import flop_count
from distsim.interop.runs.software_names import nearest_profile
from distsim.interop.runs.software_notes import framework_name
from distsim.specs.framework import Framework
from distsim.units import TERA

PRINTED_RATE = "tflops_per_gpu_reported"
"""The column of rates of FLOPs as software prints them."""
SHARES = {"mfu_pct": "model", "hfu_pct": "hardware"}
"""Shares of the peak, and what each counts by its name."""


def measured_seconds(run: Run, setup: Setup) -> float | None:
    """Time of one optimizer step: printed, or from tokens or samples per second, or from FLOP/s of a named count."""
    layout = setup.layout
    seconds = measured_step_seconds(run, layout.global_batch, layout.seq, layout.gpus)
    if seconds:
        return seconds
    return next((time for rate in rates_of(run, setup) if (time := seconds_at(rate, setup))), None)


class Rate(NamedTuple):
    """FLOPs of one accelerator and second that a row's column tells, and how its source counts them."""

    column: str
    flops_per_second: float
    counts: str


def seconds_at(rate: Rate, setup: Setup) -> float | None:
    """Time of one step at a rate; None where nobody knows what it counts."""
    flops, layout = stated_flops(setup, rate.counts), setup.layout
    return float(flops * layout.step_tokens / (rate.flops_per_second * layout.gpus)) if flops else None


def rates_of(run: Run, setup: Setup) -> Iterator[Rate]:
    """Rates of FLOPs that the row tells, and how each is counted; what a share counts by its name, ``flops_kind`` may
    say closer where it is understood, of an MFU also otherwise."""
    kind, peak = run.text("flops_kind") or "", stated_peak(setup)
    if printed := run.positive(PRINTED_RATE):
        yield Rate(PRINTED_RATE, printed * TERA, rate_counts(run, setup.framework))
    for name, counts in SHARES.items():
        share = run.positive(name)
        if share and peak:
            said = flop_count(kind) is not None and (name == "mfu_pct" or "model" not in kind.lower())
            closer = kind if name == "mfu_pct" else f"{counts}, {kind}"
            yield Rate(name, share / 100 * peak, closer if said else counts)


def rate_counts(run: Run, framework: Framework) -> str:
    """What the row's rate of FLOPs counts: as it says, else as software prints it that the row names."""
    said, usual, name = run.text("flops_kind") or "", framework.usual, framework_name(run) or ""
    if said or run_year(run) < usual.get("flops_counts_since", 0):
        return said
    named = catalog.knows("frameworks", name) or nearest_profile(name, split=False) == framework.name
    return str(usual.get("flops_counts", "")) if named else ""


def told_counts(run: Run) -> str:
    """The same of a row that may lack what it needs to be simulated; empty where nobody understands the words."""
    try:
        counts = rate_counts(run, framework_of(run))
    except (MissingCell, DistsimError):
        counts = run.text("flops_kind") or ""
    return counts if flop_count(counts) else ""


def assumed_counts(run: Run, setup: Setup) -> str:
    """What the rate counts that a row's step time comes from, where no cell says."""
    layout, framework = setup.layout, setup.framework
    timed = measured_step_seconds(run, 1, layout.seq, layout.gpus) or run.text("flops_kind")
    if timed or not run.positive(PRINTED_RATE):
        return ""
    counts = rate_counts(run, framework)
    return f"flops_kind is blank: {counts} FLOPs, as {framework.name} prints them" if counts else ""


def small_share(run: Run, setup: Setup) -> str:
    """A step time that comes from a share below one per cent, which may be meant as a share of one."""
    layout = setup.layout
    if measured_step_seconds(run, 1, layout.seq, layout.gpus) or run.positive(PRINTED_RATE):
        return ""
    name = next((one for one in SHARES if run.positive(one)), "")
    share, text = run.positive(name) or 1, run.text(name) or ""
    return f"{name} {text} is read as {share:g}%, not {share:.0%}" if share < 1 and "%" not in text else ""
