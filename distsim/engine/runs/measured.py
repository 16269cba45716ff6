"""What a row of measured runs says of its step time, in whatever unit it says so."""

from __future__ import annotations

from collections.abc import Iterator

from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.conventions import stated_flops, stated_peak
from distsim.interop.runs import Run, measured_step_seconds
from distsim.units import TERA

SHARES = {"mfu_pct": "model", "hfu_pct": "hardware"}
"""Shares of the peak, and what each counts by its name."""


def measured_seconds(run: Run, setup: Setup) -> float | None:
    """Time of one optimizer step: printed, or from tokens or samples per second, or from FLOP/s of a named count."""
    layout = setup.layout
    seconds = measured_step_seconds(run, layout.global_batch, layout.seq, layout.gpus)
    if seconds:
        return seconds
    for rate, counts in _flops_per_second(run, setup):
        if flops := stated_flops(setup, counts):
            return float(flops * layout.step_tokens / (rate * layout.gpus))
    return None


def _flops_per_second(run: Run, setup: Setup) -> Iterator[tuple[float, str]]:
    """Rates of FLOPs that the row tells, and how each is counted; what a share counts by its name, ``flops_kind`` may
    say closer, of an MFU also otherwise."""
    kind, peak = run.text("flops_kind") or "", stated_peak(setup)
    if printed := run.positive("tflops_per_gpu_reported"):
        yield printed * TERA, kind
    for name, counts in SHARES.items():
        share = run.positive(name)
        if share and peak:
            said = kind and (name == "mfu_pct" or "model" not in kind.lower())
            yield share / 100 * peak, kind if said else counts


def small_share(run: Run, setup: Setup) -> str:
    """A step time that comes from a share below one per cent, which may be meant as a share of one."""
    layout = setup.layout
    if measured_step_seconds(run, 1, layout.seq, layout.gpus) or run.positive("tflops_per_gpu_reported"):
        return ""
    name = next((one for one in SHARES if run.positive(one)), "")
    share, text = run.positive(name) or 1, run.text(name) or ""
    return f"{name} {text} is read as {share:g}%, not {share:.0%}" if share < 1 and "%" not in text else ""
