"""``distsim step``: how long one optimizer step takes, where the time goes, and what would be faster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from distsim.cli.options import job_command

NO_ARGS_IS_HELP = False


@job_command
def step(
    job: Any,
    origins: dict[str, str],
    json: Annotated[bool, typer.Option("--json", help="print JSON (seconds, bytes) instead of tables")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="also print the numbers, work and traffic behind the answer")
    ] = False,
) -> None:
    """Tell how long one optimizer step takes, with a 90% interval, where the time goes, and what would be faster.

    Exit code 0: the job fits memory; 1: it does not; 2: the input is wrong.

    Example: distsim step llama-7b --gpu h100-sxm --gpus 16 --zero 3 --framework torchtitan
    """
    from distsim.engine.resolve import resolve
    from distsim.engine.step import step_of

    report = step_of(resolve(job))
    for note in report.setup.notes:
        typer.echo(f"note: {note}", err=True)
    if json:
        import json as jsonlib

        answer = report.to_dict()
        if explain:
            answer["timing"] = report.timing.model_dump()
        typer.echo(jsonlib.dumps(answer, indent=1))
    else:
        _print(report, explain, origins)
    if not report.memory.fits:
        raise typer.Exit(1)


def _print(report: Any, explain: bool, origins: dict[str, str]) -> None:
    from distsim.engine.faster import faster
    from distsim.report.explain import option_lines
    from distsim.report.step import explained, lines
    from distsim.report.style import style

    term = style()
    made = lines(report, faster(report), term)
    if explain:
        made += ["", *explained(report, term), "", *option_lines(report.setup, origins)]
    for line in made:
        typer.echo(line, color=True)
