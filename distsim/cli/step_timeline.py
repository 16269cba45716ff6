"""The drawing and the trace of ``distsim step``: their options checked, made and written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from distsim.cli.signatures import option
from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.engine.steps.report import StepReport
    from distsim.report.gantt import Line

Gantt = Annotated[bool, typer.Option("--gantt", help="draw a timeline of the step: all stages, and the streams of one")]
Trace = Annotated[Path | None, option("--trace", "write a trace of the step for Perfetto")]
Begin = Annotated[str | None, option("--from", "start of the part to draw or write, e.g. 200ms")]
End = Annotated[str | None, option("--to", "end of the part to draw or write, e.g. 1.5s")]
Stage = Annotated[int | None, option("--stage", "stage whose streams to draw [default: slowest]")]


class Drawing(NamedTuple):
    """The options that say what of a step is drawn or written as a trace."""

    gantt: bool
    trace: Path | None
    begin: str | None
    end: str | None
    stage: int | None

    def check(self, json: bool) -> None:
        """Refuse options that would do nothing, before anything is computed."""
        if self.gantt and json:
            raise DistsimError("--gantt draws and --json prints data", "leave one out, or write --trace FILE.json")
        for flag, value in (("--from", self.begin), ("--to", self.end)):
            if value is not None and not self.gantt and self.trace is None:
                raise DistsimError(f"{flag} {value} has no effect here", "add --gantt or --trace FILE.json")
        if self.stage is not None and not self.gantt:
            raise DistsimError(f"--stage {self.stage} has no effect without --gantt", "add --gantt")

    def lines_of(self, report: StepReport) -> list[Line]:
        """The lines of the drawing, with the trace written; none where neither was asked for."""
        if not self.gantt and self.trace is None:
            return []
        from distsim.engine.steps.timeline import timeline_of

        timeline = timeline_of(report)
        window = self._window(timeline.seconds)
        stages = timeline.run.stages
        if self.stage is not None and not 0 <= self.stage < stages:
            raise DistsimError(
                f"there is no stage {self.stage}: the job has {stages} stage{'s' * (stages != 1)}",
                f"valid: 0 to {stages - 1}",
            )
        if self.trace is not None:
            import json

            from distsim.cli.pipeline_options import write
            from distsim.report.step_trace import events

            write(self.trace, json.dumps(events(timeline, window)))
        if not self.gantt:
            return []
        from distsim.report import terminal
        from distsim.report.step_gantt import page

        stage = timeline.busiest if self.stage is None else self.stage
        return page(timeline, window, stage, terminal.width(), terminal.unicode())

    def _window(self, seconds: float) -> tuple[float, float]:
        """The part of the step that is wanted."""
        from distsim.units import duration, parse, stated

        begin = 0.0 if self.begin is None else parse(self.begin, "s", "--from")
        end = seconds if self.end is None else parse(self.end, "s", "--to")
        if self.begin is not None and self.end is not None and begin >= end:
            raise DistsimError(f"--from {self.begin} is not before --to {self.end}", "give the earlier time to --from")
        if not 0 <= begin < min(end, seconds):
            flag, typed, time = ("--to", self.end, end) if 0 <= begin < seconds else ("--from", self.begin, begin)
            bare = not f"{typed}".strip()[-1:].isalpha()
            meant = f" is {stated(duration(time))}, which" if bare else ""
            unit = f"a bare number is in seconds; did you mean {flag} {typed}ms?" if bare and time > 0 else ""
            raise DistsimError(
                f"{flag} {typed}{meant} is outside the step", f"the step lasts {duration(seconds)}", unit
            )
        return begin, min(end, seconds)

    def show(self, lines: list[Line]) -> None:
        """Print the drawing below the answer."""
        if not lines:
            return
        from distsim.report import printer

        printer.show([[], *lines])
