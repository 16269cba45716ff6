"""Cells of a measured run that contradict one another: which of them are not read."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.measured import PRINTED_RATE, rates_of, seconds_at
from distsim.interop.runs import TIMES, Run
from distsim.interop.runs.peak_notes import summed_by_source
from distsim.interop.runs.peaks import measured_peak_bytes
from distsim.interop.runs.sharding import contradicted_sharding
from distsim.units import GIB, GIGA

APART = 1.1
"""Times that a row's step time and throughputs may differ by: figures of two digits round by up to a tenth."""
FLOPS_APART = 2.0
"""The same beside a rate of FLOPs, whose conventions differ by recomputation and attention (docs/step.md)."""
SHARES_APART = 2.5
"""The same beside a share of the peak, which may be that of 8 bits or of sparse products."""
PEAK_APART = 1.15
"""Predicted peaks beyond a card by more than this are no error of prediction (nine in ten lie within an eighth)."""
LABELS = GIB / GIGA
"""GiB per decimal GB: labels and logs write either."""


def overruled(run: Run, setup: Setup) -> str:
    """Cells that others of the row contradict, and what counts instead; nothing where all agree."""
    return "; ".join(
        words
        for words in (
            contradicted_sharding(run),
            _uncompiled(run, setup),
            _lacking(run, setup),
            _replicas(run, setup),
            _accumulation(run, setup),
            _rates(run, setup),
            _peak(run, setup),
        )
        if words
    )


def _uncompiled(run: Run, setup: Setup) -> str:
    """A compiler that the row names and the profile knows nothing of."""
    framework = setup.framework
    if not run.flag("compile") or framework.compiled or setup.kernels.compiler != "none":
        return ""
    return f"compile has no effect: the profile of {framework.name} does not say what torch.compile fuses"


def _lacking(run: Run, setup: Setup) -> str:
    """Cells of parts that the model does not have."""
    model = setup.model
    parts = (("decoder_seq", "decoder behind an encoder", bool(model.encoder_layers)),
             ("capacity_factor", "experts", model.experts is not None))  # fmt: skip
    return "; ".join(f"{cell} has no effect: {model.name} has no {part}"
                     for cell, part, there in parts if not there and run.positive(cell))  # fmt: skip


def _replicas(run: Run, setup: Setup) -> str:
    layout, told = setup.layout, run.count("dp")
    if told is None or told == layout.dp:
        return ""
    shards = layout.tp * layout.pp * layout.cp
    return f"dp {told} contradicts n_gpus {layout.gpus} and tp*pp*cp {shards}: using dp {layout.dp}"


def _accumulation(run: Run, setup: Setup) -> str:
    layout, told = setup.layout, run.count("grad_accum")
    if not told or not run.count("global_batch") or told == layout.micro_batches:
        return ""
    return f"grad_accum {told} contradicts the batch: using {layout.micro_batches} micro-batches"


def _rates(run: Run, setup: Setup) -> str:
    """The first cell of a rate counts, as ``measured_seconds`` reads them."""
    layout = setup.layout
    cells = {name: run.positive(name) for name in TIMES}
    seconds, tokens, samples = cells.values()
    times = [seconds, tokens and layout.step_tokens / (tokens * layout.gpus), samples and layout.global_batch / samples]
    told = [(name, time) for name, time in zip(cells, times, strict=True) if time]
    for name, time in told[1:]:
        if max(time, told[0][1]) > APART * min(time, told[0][1]):
            return f"{name} contradicts {told[0][0]}, which is used"
    return _flop_rates(run, setup, told)


def _flop_rates(run: Run, setup: Setup, told: list[tuple[str, float]]) -> str:
    """A rate of FLOPs, or its share of the peak, far from what the first cell makes of them, such as a rate of all GPUs
    together."""
    for rate in rates_of(run, setup):
        time = seconds_at(rate if rate.counts else rate._replace(counts="model"), setup)
        if time is None:
            continue
        apart = FLOPS_APART if rate.column == PRINTED_RATE else SHARES_APART
        if told and max(time, told[0][1]) > apart * min(time, told[0][1]):
            return f"{rate.column} contradicts {told[0][0]}, which is used"
        told = told or [(rate.column, time)]
    return ""


def _peak(run: Run, setup: Setup) -> str:
    """A peak beyond the card's memory, such as one in MB or of all GPUs together."""
    if _read_peak(run, setup) is None or believed_peak(run, setup) is not None:
        return ""
    return f"mem_peak_gb_per_gpu exceeds the memory of {setup.accelerator.name}: GiB per GPU? Other cards: gpu_memory"


def believed_peak(run: Run, setup: Setup) -> float | None:
    """The measured peak in bytes; None where there is none, or none that the card can hold, unless its source added it
    up itself."""
    peak = _read_peak(run, setup)
    summed = summed_by_source(run)
    return peak if peak is not None and (summed or peak <= setup.accelerator.memory * LABELS) else None


def _read_peak(run: Run, setup: Setup) -> float | None:
    return measured_peak_bytes(run, setup.framework.memory_decimal, setup.accelerator.capacity)


def too_large(setup: Setup, predicted_bytes: float) -> str:
    """A job that ran but is predicted not to: what saves its memory is in no cell."""
    beyond = predicted_bytes > PEAK_APART * setup.accelerator.capacity
    return "needs more memory, by its cells, than the GPU it ran on has" if beyond else ""
