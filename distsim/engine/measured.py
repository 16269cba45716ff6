"""What a row of measured runs says of its step time, in whatever unit it says so."""

from __future__ import annotations

from distsim.engine.flops import peak_of, stated_flops
from distsim.engine.resolve import Setup
from distsim.interop.runs import Run, measured_step_seconds
from distsim.units import TERA


def measured_seconds(run: Run, setup: Setup) -> float | None:
    """Time of one optimizer step: printed, or from tokens or samples per second, or from FLOP/s of a named count."""
    y = setup.layout
    batch = y.micro_batch * y.micro_batches * y.dp
    seconds = measured_step_seconds(run, batch, y.seq, y.gpus)
    if seconds:
        return seconds
    rate, flops = _flops_per_second(run, setup), stated_flops(setup, (run.text("flops_kind") or "").lower())
    return float(flops * batch * y.seq / (rate * y.gpus)) if rate and flops else None


def _flops_per_second(run: Run, setup: Setup) -> float | None:
    printed, peak = run.positive("tflops_per_gpu_reported"), peak_of(setup)
    if printed:
        return printed * TERA
    share = run.positive("mfu_pct") or run.positive("hfu_pct")
    return share / 100 * peak if share and peak else None
