"""``distsim step``: how long one optimizer step takes, where the time goes, and what would be faster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from distsim.cli import step_timeline as drawn_by
from distsim.cli.options import job_command
from distsim.report import talk
from distsim.report.style import style

NO_ARGS_IS_HELP = False
Json = Annotated[bool, typer.Option("--json", help="print JSON (seconds, bytes) instead of tables")]
Explain = Annotated[bool, typer.Option("--explain", help="also print every part with its formula, numbers and source")]


@job_command
def step(
    job: Any,
    origins: dict[str, str],
    json: Json = False,
    explain: Explain = False,
    gantt: drawn_by.Gantt = False,
    trace: drawn_by.Trace = None,
    begin: drawn_by.Begin = None,
    end: drawn_by.End = None,
    stage: drawn_by.Stage = None,
) -> None:
    """Predict how long one optimizer step takes, with a 90% interval, where the time goes, and what would be faster.

    Exit code 0: the job fits in memory; 1: it does not; 2: the input is wrong.

    Example: distsim step llama-7b --gpu h100-sxm --gpus 16 --zero 3 --framework torchtitan

    Example: distsim step llama-70b --gpu h100-sxm --gpus 64 --tp 8 --pp 4 --global-batch 64 --gantt
    """
    from distsim.engine.advice.offered import unread_notes
    from distsim.engine.jobs.prepared import prepared_notes
    from distsim.engine.jobs.resolve import resolve
    from distsim.engine.step import step_of

    drawing = drawn_by.Drawing(gantt, trace, begin, end, stage)
    drawing.check(json)
    report = step_of(resolve(job))
    for note in [*report.notes, *prepared_notes(report.setup), *unread_notes(report.memory)]:
        talk.note(note)
    drawn = drawing.lines_of(report)
    if json:
        _print_json(report, explain)
    else:
        _print(report, explain, origins)
        drawing.show(drawn)
    if not report.memory.fits:
        raise typer.Exit(1)


def _print_json(report: Any, explain: bool) -> None:
    import json

    from distsim.engine.advice.faster import advise

    advice = [one.to_dict() for one in advise(report)]
    answer = {**report.to_dict(), "faster" if report.memory.fits else "fitting": advice}
    if explain:
        from distsim.report.step_explain import as_data

        answer["timing"] = report.timing.model_dump()
        answer["figures"] = as_data(report)
    typer.echo(json.dumps(answer, indent=1))


def _print(report: Any, explain: bool, origins: dict[str, str]) -> None:
    from distsim.engine.advice.faster import advise
    from distsim.report.step import lines

    term = style()
    made = lines(report, advise(report), term)
    if explain:
        from distsim.report.options import option_lines
        from distsim.report.step_explain import lines as explained

        made += ["", *explained(report, term), "", *option_lines(report.setup, origins)]
    for line in made:
        typer.echo(line, color=True)
