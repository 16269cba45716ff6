"""How long a pipeline idles, and how that came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distsim.arrays import nothing
from distsim.engine.figures import Figures
from distsim.engine.steps.compose import MicroBatch
from distsim.engine.steps.composed import composed
from distsim.engine.steps.ramp import lengths_of, ramp_of, slowest_of
from distsim.engine.steps.report import StepReport
from distsim.formulas.step import apart_seconds, ramp_seconds
from distsim.specs.layout import Layout


def pipeline_figures(
    figures: Figures, stages: Sequence[Mapping[str, Any]], each: Sequence[MicroBatch], sizes: Mapping[str, Any],
    timing: Mapping[str, float], layout: Layout,
) -> tuple[float, float]:  # fmt: skip
    """Seconds that a pipeline idles while it fills and drains, and that its forwards and backwards take for being paced
    apart."""
    passes = [float(one.passed_on) for one in each]
    summed = sum(stage["count"] * one for stage, one in zip(stages, passes, strict=True))
    if layout.vocab_parallel:
        words = "one micro-batch without vocabulary parallelism"
        figures.note(words, max(passes), "s", "no stage computes logits while the pipeline fills and drains")
    if any(not nothing(one.trailing) for one in each):
        words = "one micro-batch without the gradients that it reduces"
        figures.note(words, max(passes), "s", "other stages have what they wait for before that")
    ramp = float(ramp_of(stages, each, sizes, timing))
    if sizes["uneven"]:
        lengths = lengths_of(stages, each, sizes, timing)
        words = f"idle time of {layout.schedule} relative to 1F1B with as many chunks"
        figures.note(words, ramp, "1", f"forward {lengths.forward:.3f} and weight gradients {lengths.weights:.3f} "
                     "of a micro-batch; docs/pipeline.md, passes of any length")  # fmt: skip
    waits = ramp * float(figures.use(f"pipeline ramp (x {ramp:.4g} for {layout.schedule})", ramp_seconds,
                         sum_of_stages=summed, slowest_stage=max(passes), chunks=sizes["vpp"]))  # fmt: skip
    if not sizes["forwards_first"]:
        return waits, 0.0
    apart = float(figures.use("forwards and backwards paced apart", apart_seconds, **slowest_of(stages, each)._asdict(),
                              micro_batches=sizes["micro_batches"], chunks=sizes["vpp"]))  # fmt: skip
    return waits, apart


def simulation_figure(figures: Figures, report: StepReport) -> None:
    """Add what a schedule idles longer in its event simulation than by the closed form, where the step counts that."""
    if beyond := report.seconds - composed(report.work, report.timing, report.correction).seconds:
        words = f"idle time of {report.setup.layout.schedule} in its event simulation, beyond that ramp"
        figures.note(words, beyond, "s", "each stage and chunk in its own time; docs/step.md")
