"""How the FLOPs of a model, and the share of the chips' peak that they make, came about."""

from __future__ import annotations

from distsim.engine.figures import Figures
from distsim.engine.jobs.flops import active_parameters, attended, model_flops, reach_of
from distsim.engine.jobs.reference import runs_reference
from distsim.engine.steps.report import StepReport
from distsim.formulas.flops import flops_utilisation, model_flops_per_token


def utilisation_figures(figures: Figures, report: StepReport) -> None:
    """Add FLOPs per token, what is counted beside them, and the MFU where the chip states a peak."""
    model = report.setup.model
    layers, keys = attended(model, report.setup.layout.seq, reach_of(report.setup))
    figures.use("model FLOPs per token", model_flops_per_token, parameters=active_parameters(report.setup),
                layers=layers, heads=model.heads, head_width=model.head_dim, seq=keys)  # fmt: skip
    if runs_reference(report.setup):
        figures.note("with the reference's forward", model_flops(report.setup), "FLOP", "a third of training all of it")
    elif model.shown_tower:
        figures.note("with the vision tower", model_flops(report.setup), "FLOP", "its products, forward and backward")
    if report.peak:
        figures.use("MFU", flops_utilisation, flops_per_second=report.model_flops_per_second_per_gpu, peak=report.peak)
