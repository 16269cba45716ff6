"""``distsim step --explain``: every part of a step with its formula, the numbers behind it, and their sources."""

from __future__ import annotations

from typing import Any

from distsim.engine.jobs.tp_overlap import overlap_words
from distsim.engine.steps.figures import Section, sections
from distsim.engine.steps.kernel_figures import Kernel, kernels
from distsim.engine.steps.report import StepReport
from distsim.report.explain import figure_data, figure_lines, wrapped
from distsim.report.style import Style, columns
from distsim.units import duration


def lines(report: StepReport, term: Style) -> list[str]:
    """Kernels of a layer, formulas part by part, the profile's numbers, traffic before overlap."""
    made = []
    for name, found in kernels(report):
        made += [*_kernels(name, found, term), ""]
    for section in sections(report):
        made += [*_title(section.title, term), *_figures(section, term), ""]
    return [*made, *_profile(report, term), "", *_traffic(report, term)]


def _title(text: str, term: Style) -> list[str]:
    return [term.bold(line) for line in wrapped(text)]


def _figures(section: Section, term: Style) -> list[str]:
    told = [line for figure in section.figures for line in figure_lines(figure)]
    return [part for line in told for part in wrapped(term.plain(line))]


def _kernels(name: str, found: list[Kernel], term: Style) -> list[str]:
    title = f"Kernels of a {name} layer, one micro-batch on one rank, gaps included"
    told: list[str] = []
    # the first that is as narrow as the terminal
    for times, each, gap in ((" x ", ",", 2), ("x", ",", 2), ("x", "", 2), ("x", "", 1)):
        shapes = [times.join(_sizes(one, each)) or "-" for one in found]
        rows = [
            [one.name, shape, duration(one.forward), duration(one.backward)]
            for one, shape in zip(found, shapes, strict=True)
        ]
        told = columns(["operation", "shape", "forward", "backward"], rows, left=(0, 1), gap=gap)
        if max(map(len, told)) <= term.width:
            break
    return [*_title(title, term), *told]


def _sizes(one: Kernel, each: str) -> list[str]:
    """The sizes of a kernel's shape; widths of separate products as a sum, unless the last size counts them."""
    told = [f"{size:{each}.0f}" for size in one.shape]
    if one.apart and len(one.apart) != one.shape[-1]:
        told[1] = "+".join(f"{width:{each}.0f}" for width in one.apart)
    return told


def _profile(report: StepReport, term: Style) -> list[str]:
    values = report.timing.model_dump()
    rows = [[name, f"{value:.4g}"] for name, value in values.items()]
    title = f"Fitted numbers of {report.setup.framework.name} on {report.setup.accelerator.generation}"
    source = "source: presets/timing/fitted.toml, fitted by distsim calibrate to the shipped runs; docs/step.md"
    return [*_title(title, term), *columns(["number", "value"], rows), *wrapped(source)]


def _traffic(report: StepReport, term: Style) -> list[str]:
    """One row per kind of traffic and one column per stage."""
    stages = report.work.stages
    names = [name for name in stages[0].traffic if any(stage.traffic[name] for stage in stages)]
    if not names:
        return [term.bold("No traffic")]
    rows = [[name, *(duration(float(stage.traffic[name])) for stage in stages)] for name in names]
    header = [
        "kind",
        *(f"stage {stage.index}" + (f" (x {stage.count})" if stage.count > 1 else "") for stage in stages),
    ]
    title = "Traffic of one step before overlap (details: distsim comm --explain)"
    return [*_title(title, term), *columns(header, rows), *wrapped(overlap_words(report.setup))]


def as_data(report: StepReport) -> list[dict[str, Any]]:
    """The explained figures of a step as plain data."""
    return [
        {"section": section.title, **figure_data(figure)} for section in sections(report) for figure in section.figures
    ]
