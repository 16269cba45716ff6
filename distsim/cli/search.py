"""``distsim search``: the best layouts out of all that rules and bounds allow."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distsim.cli import options as shared
from distsim.cli import search_options as own
from distsim.cli.app import INTERRUPTED
from distsim.cli.job_options import JOB_OPTIONS
from distsim.cli.pinned import tell_pinned
from distsim.cli.search_pool import ENOUGH_LAYOUTS, Dask, pool
from distsim.cli.search_varied import Vary, run_varied
from distsim.cli.signatures import splitting
from distsim.cli.workers import UsualJobs
from distsim.engine.layouts.searchable import FIXED
from distsim.errors import DistsimError
from distsim.report import talk
from distsim.report.style import style
from distsim.specs.flags import flag

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from distsim.engine.counted import Pool
    from distsim.engine.layouts.money import Wish
    from distsim.engine.layouts.report import Request, SearchReport
    from distsim.specs.job import Job

NO_ARGS_IS_HELP = False
BOUNDED: dict[str, str] = {
    "gpus": "how many accelerators; a range doubles up to and including its end: 64..512 [default: one node]",
    "tp": "tensor parallel degrees to try: 8, 1..8 or 1,2,4",
    "pp": "pipeline stages to try",
    "vpp": "model chunks per stage to try",
    "cp": "context parallel degrees to try",
    "ep": "expert parallel degrees to try",
    "etp": "expert tensor parallel degrees to try",
    "dp": "data parallel degrees to try",
    "zero": "ZeRO stages to try",
    "zero_group": "sharding group sizes to try",
    "micro_batch": "micro-batches to try",
    "recompute": "recomputation to try: none,selective,modules (cheap ones of experts),full",
    "recompute_layers": "numbers of layers per stage to try under full recomputation",
    "schedule": "pipeline schedules to try, or all [default: 1f1b, gpipe, interleaved-1f1b]",
    "sequence_parallel": "sequence parallelism to try: on,off",
    "global_batch": "sequences per step to try; a range doubles up to and including its end: 512..2048",
    "precision": "precision recipes to try: bf16,fp8, or all that GPU and framework run [default: one, as for step]",
    "offload": "offloading to try: none,optimizer,optimizer+activations, or all [default: none]",
}


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Give ``function(stated, **own)`` MODEL, the bounds and the job options that a search takes."""
    bounds = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[
            str | None, typer.Option(flag(name), help=text, show_default=False)
        ])
        for name, text in BOUNDED.items()
    ]  # fmt: skip
    fixed = [shared.parameter(name, *JOB_OPTIONS[name]) for name in FIXED]
    job = [shared.MODEL, *fixed[:2], *bounds, *fixed[2:], shared.JOB_FILE]
    return splitting(function, "stated", lambda own: [*job, *own])


@_command
def search(
    stated: dict[str, Any], objective: own.Objective = "throughput", within: own.Within = None,
    tokens: own.Tokens = None, deadline: own.Deadline = None, margin: own.Margin = "0", exclude: own.Exclude = None,
    top: own.Top = 10, all_ranks: own.AllRanks = False, diff: own.Diff = None, price: own.Price = None,
    provider: own.Provider = None, csv: own.Csv = None, all_file: own.All = None, vary: Vary = None,
    jobs: UsualJobs = None, dask: Dask = None, json: own.Json = False,
) -> None:  # fmt: skip
    """Find the best layouts for a number of GPUs: all that rules and bounds allow, evaluated as by distsim step.

    Exit code 0: found; 1: nothing is feasible (the nearest misses are shown); 2: the input is wrong; 130: interrupted.

    Example: distsim search llama-70b --gpu h100-sxm --gpus 512 --tp 1..8
    """
    from distsim.cli.search_files import check, write_ranked
    from distsim.engine.search import price_wish, training

    asked = stated.get("gpus")
    request = _request(stated, objective, within, margin, exclude or [], top, all_ranks, price_wish(price, provider))
    request = training(request, tokens, deadline)
    if vary is not None:
        run_varied(request, vary, asked, pool(jobs or 1, dask), {"--diff": diff, "--csv": csv, "--all": all_file}, json)
        return
    ranks = _ranks(diff, top)
    if all_file is not None and ((jobs or 1) > 1 or dask is not None):
        raise DistsimError(
            "--all cannot be shared among processes: it writes layouts in the order that one process evaluates them",
            "leave out --jobs and --dask, or --all",
        )
    check(csv, "--csv", (".csv",))
    check(all_file, "--all")
    sharing = pool(1 if all_file is not None else jobs, dask)
    report = _found(request, sharing, all_file, ENOUGH_LAYOUTS if jobs is None and dask is None else 0)
    if report.interrupted:
        for file in filter(None, (csv, all_file)):
            talk.note(f"{file} is not written: it would be incomplete")
    if csv is not None and not report.interrupted:
        write_ranked(csv, report)
    _print(report, json, ranks)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not report.best:
        raise typer.Exit(1)


def _found(
    request: Request, sharing: AbstractContextManager[Pool | None], all_file: Path | None, enough: int
) -> SearchReport:  # fmt: skip
    """The search, its progress and its notes told, and every layout written where a file is named for that."""
    from distsim.cli.progress import Progress
    from distsim.cli.search_files import every_layout, watching
    from distsim.engine.layouts.search import search as run

    progress = Progress()
    with sharing as workers, every_layout(all_file, request) as every:
        report = run(request, watching(progress.show, every), every.add if every else None, workers, partly=True,
                     enough=enough)  # fmt: skip
        if every:
            every.dropped = report.interrupted
    progress.clear()
    for note in report.notes:
        talk.note(note)
    return report


def _request(
    stated: dict[str, Any], objective: str, within: str | None, margin: str, exclude: list[str], top: int,
    all_ranks: bool, price: Wish | None,
) -> Request:  # fmt: skip
    from distsim.engine.search import request_of

    limits = {name: stated.pop(name) for name in BOUNDED}
    job, origins = shared.stated_job(stated)
    job = _without_others(job, origins)
    tell_pinned(origins, [name for name in BOUNDED if limits[name] is None])
    asked = request_of(job, limits, objective=objective, within=within, margin=margin, exclude=exclude)
    return replace(asked, top=top, all_ranks=all_ranks, price=price)


def _without_others(job: Job, origins: dict[str, str]) -> Job:
    """The job without options that a search does not have: an error in a job file, which is of this command, and a note
    on those of files that all commands read."""
    from distsim.engine.search import unsearched

    stray = {name: origins.get(name, "") for name in unsearched(job)}
    shared.refuse_others(stray, "search")
    return job.model_copy(update=dict.fromkeys(stray))


def _ranks(text: str | None, top: int) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.replace(",", " ").split()
    if len(parts) != 2 or not all(part.isdigit() and 1 <= int(part) <= top for part in parts):
        raise DistsimError(f"--diff {text} does not name two ranks from 1 to {top}", "write e.g. --diff 1,2")
    if int(parts[0]) == int(parts[1]):
        raise DistsimError(f"--diff {text} names one rank twice", "write two, e.g. --diff 1,2")
    return int(parts[0]), int(parts[1])


def _print(report: SearchReport, as_json: bool, ranks: tuple[int, int] | None) -> None:
    from distsim.engine.advice import search_settings
    from distsim.engine.advice.mend import Mended
    from distsim.engine.advice.offered import unread_notes
    from distsim.engine.advice.search import mends, plain

    mended, quicker = mends(report), search_settings.quicker(report)
    if isinstance(mended, Mended):
        for note in unread_notes(report.nearest[0].report.memory):
            talk.note(note)
    if as_json:
        import json

        typer.echo(json.dumps({**report.to_dict(), **search_settings.plain(quicker), **plain(mended)}, indent=1))
        return
    from distsim.report import search_mend
    from distsim.report import search_settings as settings_report
    from distsim.report.search import diff_lines, lines

    term = style()
    made = [*lines(report, term), *settings_report.lines(quicker), *search_mend.lines(report, mended, term)]
    if ranks is not None and max(ranks) <= len(report.best):
        made += ["", *diff_lines(report, *ranks)]
    typer.echo("\n".join(term.plain(line) for line in made), color=True)
