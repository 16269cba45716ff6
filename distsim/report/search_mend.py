"""What would make a search find something, as lines of text."""

from __future__ import annotations

from distsim.engine.advice.mend import Mended
from distsim.engine.advice.search import Quick
from distsim.engine.layouts.report import SearchReport
from distsim.report.memory import mend_lines
from distsim.report.search import command
from distsim.report.style import Style
from distsim.specs.limits import LARGEST_CLUSTER
from distsim.units import duration, gib, stated


def lines(report: SearchReport, mended: Mended | Quick | None, term: Style) -> list[str]:
    """After an answer without layouts: the changes that mend it, each computed."""
    if mended is None:
        return []
    if isinstance(mended, Quick):
        return ["", *_quick(report, mended)]
    memory = report.nearest[0].report.memory
    if memory.fits:
        return ["", f"The nearest needs {gib(memory.peak)}: it fits without --margin {report.request.margin:g}."]
    return ["", *mend_lines(mended, term)]


def _quick(report: SearchReport, mended: Quick) -> list[str]:
    within = stated(duration(report.kept.longest(report.global_batch)))
    if mended.enough is None:
        if mended.most == max(report.request.gpus):
            return [f"More than {LARGEST_CLUSTER:,} GPUs are not searched."]
        if mended.best is None or mended.best is report.nearest[0]:
            return [f"More GPUs do not make it faster (up to {mended.most:,} were searched)."]
        layout, seconds = mended.best.report.setup.layout, mended.best.report.seconds
        return [f"No number of GPUs up to {mended.most:,} reaches {within}; fastest: {duration(seconds)} on "
                f"{layout.gpus:,} GPUs."]  # fmt: skip
    layout, seconds = mended.enough.report.setup.layout, mended.enough.report.seconds
    told = f"What makes it fast enough: --gpus {layout.gpus}, {duration(seconds)} per step with"
    return [told, f"  {command(mended.enough)}"]
