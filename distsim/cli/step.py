"""``distsim step``: how long one optimizer step takes, where the time goes, and what would be faster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distsim.cli.options import job_command
from distsim.report import talk
from distsim.report.style import style

NO_ARGS_IS_HELP = False


@job_command
def step(
    job: Any,
    origins: dict[str, str],
    json: Annotated[bool, typer.Option("--json", help="print JSON (seconds, bytes) instead of tables")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="also print every part with its formula, numbers and source")
    ] = False,
    gantt: Annotated[
        bool, typer.Option("--gantt", help="draw a timeline of the step: all stages, and the streams of one")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="write a trace of the step for Perfetto", show_default=False)
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="start of the part to draw or write, e.g. 200ms", show_default=False)
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="end of the part to draw or write, e.g. 1.5s", show_default=False)
    ] = None,
    stage: Annotated[
        int | None, typer.Option("--stage", help="stage whose streams to draw [default: slowest]", show_default=False)
    ] = None,
) -> None:
    """Predict how long one optimizer step takes, with a 90% interval, where the time goes, and what would be faster.

    Exit code 0: the job fits in memory; 1: it does not; 2: the input is wrong.

    Example: distsim step llama-7b --gpu h100-sxm --gpus 16 --zero 3 --framework torchtitan

    Example: distsim step llama-70b --gpu h100-sxm --gpus 64 --tp 8 --pp 4 --global-batch 64 --gantt
    """
    from distsim.cli.step_timeline import Drawing
    from distsim.engine.advice.offered import unread_notes
    from distsim.engine.jobs.resolve import resolve
    from distsim.engine.step import step_of

    drawing = Drawing(gantt, trace, begin, end, stage)
    drawing.check(json)
    report = step_of(resolve(job))
    for note in [*report.notes, *unread_notes(report.memory)]:
        talk.note(note)
    drawn = drawing.lines_of(report)
    if json:
        import json as jsonlib

        from distsim.engine.advice.faster import advise

        advice = [one.to_dict() for one in advise(report)]
        answer = {**report.to_dict(), "faster" if report.memory.fits else "fitting": advice}
        if explain:
            from distsim.report.step_explain import as_data

            answer["timing"] = report.timing.model_dump()
            answer["figures"] = as_data(report)
        typer.echo(jsonlib.dumps(answer, indent=1))
    else:
        _print(report, explain, origins)
        drawing.show(drawn)
    if not report.memory.fits:
        raise typer.Exit(1)


def _print(report: Any, explain: bool, origins: dict[str, str]) -> None:
    from distsim.engine.advice.faster import advise
    from distsim.report.step import lines

    term = style()
    made = lines(report, advise(report), term)
    if explain:
        from distsim.report.explain import option_lines
        from distsim.report.step_explain import lines as explained

        made += ["", *explained(report, term), "", *option_lines(report.setup, origins)]
    for line in made:
        typer.echo(line, color=True)
