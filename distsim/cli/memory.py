"""``distsim memory``: where every byte on each GPU goes, whether it fits, and what would make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from distsim.cli.options import job_command
from distsim.errors import DistsimError
from distsim.report import talk
from distsim.report.style import Style, style

if TYPE_CHECKING:
    from distsim.engine.memory import MemoryReport

NO_ARGS_IS_HELP = False


@job_command
def memory(
    job: Any,
    origins: dict[str, str],
    json: Annotated[bool, typer.Option("--json", help="print JSON (sizes in bytes) instead of tables")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="print every figure with its formula, numbers and source")
    ] = False,
    stage: Annotated[
        int | None,
        typer.Option("--stage", help="stage to explain [default: the fullest; --json: all]", show_default=False),
    ] = None,
    all_stages: Annotated[
        bool, typer.Option("--all-stages", help="list or explain every stage, identical ones too")
    ] = False,
) -> None:
    """Show where every byte on each GPU goes, per pipeline stage, whether it fits, and what would make it fit.

    Exit code 0: it fits; 1: it does not; 2: the input is wrong.

    Example: distsim memory llama-7b --gpu h100-sxm --gpus 16 --zero 2
    """
    from distsim.engine.advice.offered import unread_notes
    from distsim.engine.corrections.own_peaks import own_peak_note
    from distsim.engine.jobs.prepared import prepared_notes
    from distsim.engine.jobs.resolve import resolve
    from distsim.engine.memory import memory_of

    report = memory_of(resolve(job))
    _check_stage(stage, explain, all_stages, len(report.stages))
    own = own_peak_note(report.setup, report.peak)
    for note in filter(None, [*report.notes, *prepared_notes(report.setup), *unread_notes(report), own]):
        talk.note(note)
    if json:
        _print_json(report, explain, stage)
    elif explain:
        _print_explained(report, stage, all_stages, origins)
    else:
        _print_tables(report, all_stages)
    if not report.fits:
        raise typer.Exit(1)


def _check_stage(stage: int | None, explain: bool, every: bool, count: int) -> None:
    if every and stage is not None:
        raise DistsimError(f"--all-stages explains every stage, --stage {stage} one", "leave one of the two out")
    if stage is not None and not explain:
        raise DistsimError(f"--stage {stage} has no effect without --explain", "add --explain")
    if stage is not None and not 0 <= stage < count:
        raise DistsimError(f"there is no stage {stage}: the job has {count}", f"valid: 0 to {count - 1}")


def _print_json(report: MemoryReport, explain: bool, chosen: int | None) -> None:
    import json

    answer = report.to_dict()
    if explain:
        from distsim.report.explain import as_data

        for told, stage in zip(answer["stages"], report.stages, strict=True):
            if chosen in (None, stage.stage):
                told["figures"] = as_data(report, stage)
    if not report.fits:
        from distsim.engine.advice.mend import mend

        answer["mends"] = [found.to_dict() for found in mend(report).fitting]
    typer.echo(json.dumps(answer, indent=1))


def _print_explained(report: MemoryReport, stage: int | None, every: bool, origins: dict[str, str]) -> None:
    from distsim.report.explain import memory_lines
    from distsim.report.memory import verdict
    from distsim.report.options import option_lines

    term = style()
    chosen = report.stages if every else [report.worst if stage is None else report.stages[stage]]
    made = [line for one in chosen for line in memory_lines(report, one, term)]
    made.append(term.bold("Options and where they come from"))
    _print([*made, *option_lines(report.setup, origins), "", *verdict(report, term)])


def _print_tables(report: MemoryReport, every: bool) -> None:
    from distsim.engine.zero_stages import zero_stages
    from distsim.report.memory import barely, lines, mend_lines, zero_lines

    term = style()
    made = lines(report, term, every)
    if report.setup.layout.dp * report.setup.layout.cp > 1:
        made += ["", *zero_lines(zero_stages(report), report.setup.layout.zero, term)]
    if not report.fits:
        from distsim.engine.advice.mend import mend
        from distsim.report.usual_length import shorter_lines

        made += ["", *shorter_lines(report, term), *mend_lines(mend(report), term)]
    elif barely(report):
        made += _room_lines(report, term)
    _print(made)


def _room_lines(report: MemoryReport, term: Style) -> list[str]:
    """What leaves room for what a prediction misses."""
    from distsim.engine.advice.mend import mend
    from distsim.engine.footprint.peak_error import ROOM
    from distsim.report.memory import mend_lines

    found = mend(report, margin=ROOM)
    return ["", *mend_lines(found, term, f"What leaves {ROOM:.0%} free")] if found.fitting else []


def _print(lines: list[str]) -> None:
    typer.echo("\n".join(lines), color=True)
