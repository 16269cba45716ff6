"""Layouts of measured runs that state none, as the publisher of their software chose them."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.runs.layout import unstated
from distsim.engine.runs.scripts import preset_name
from distsim.interop.runs import Run
from distsim.interop.runs.models import model_of
from distsim.specs.framework import Framework
from distsim.specs.scripts import ChosenLayout


def chosen_layout(run: Run, framework: Framework) -> ChosenLayout | None:
    """The first of the framework's own layouts of this model on as many GPUs that no cell contradicts; None where the
    row states its layout, or there is none."""
    if not framework.layouts or not unstated(run, framework) or (run.count("cp") or 1) > 1:
        return None
    for layout in framework.layouts.get(preset_name(model_of(run)), ()):
        if layout.noted in run.notes and all(
            run.count(cell) in (None, value) for cell, value in _cells(layout).items()
        ):
            return layout
    return None


def with_chosen_layout(run: Run, framework: Framework) -> Run:
    """The row with the cells of that layout; itself where there is none."""
    if (layout := chosen_layout(run, framework)) is None:
        return run
    blank = {cell: str(value) for cell, value in _cells(layout).items() if run.text(cell) is None}
    return replace(run, cells={**run.cells, **blank, "zero_stage": str(layout.zero)})


def assumed_choice(run: Run, framework: Framework) -> str:
    """What is taken for granted of a layout that only the framework's own configurations tell."""
    if (layout := chosen_layout(run, framework)) is None:
        return ""
    told = ", ".join(f"{cell} {value}" for cell, value in _cells(layout).items() if run.text(cell) is None)
    return f"layout is blank: assumed {told}, ZeRO {layout.zero}, as {framework.name} chose it"


def _cells(layout: ChosenLayout) -> dict[str, int]:
    experts = {"ep": layout.ep} if layout.ep > 1 else {}
    batch = {name: count for name in ("micro_batch", "global_batch") if (count := getattr(layout, name))}
    return {"n_gpus": layout.gpus, "tp": layout.tp, "pp": layout.pp, **experts, **batch}
