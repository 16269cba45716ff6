"""``distsim search --vary FIELD RANGE``: the same search for each value of one field."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distsim.cli.app import INTERRUPTED
from distsim.errors import DistsimError
from distsim.report import talk
from distsim.report.style import style

if TYPE_CHECKING:
    from distsim.engine.counted import Pool
    from distsim.engine.layouts.report import Request

Vary = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--vary", metavar="FIELD RANGE", show_default=False,
        help="repeat the search, one field varied: gpu.memory 40GB..160GB, network.bandwidth 0.5..4, seq 4096..65536",
    ),
]  # fmt: skip


def run_varied(
    request: Request,
    asked: tuple[str, str],
    gpus: str | None,
    pool: AbstractContextManager[Pool | None],
    others: dict[str, Any],
    as_json: bool,
) -> None:
    """Print the report; ``others`` are options that ask for one search's own files or ranks."""
    from distsim.cli.progress import Progress
    from distsim.engine.layouts.varied import field_of
    from distsim.engine.layouts.vary import vary

    name, text = asked
    field_of(name)
    for flag, value in others.items():
        if value is not None:
            raise DistsimError(f"{flag} has no effect with --vary", f"leave {flag} out")
    stated = gpus if name == "gpus" else request.job.seq if name == "seq" else None
    if stated is not None:
        raise DistsimError(f"--{name} {stated} and --vary {name} {text} both set {name}", f"leave --{name} out")
    progress = Progress()
    with pool as workers:
        report = vary(request, name, text, progress.show, workers)
    progress.clear()
    for note in report.notes:
        talk.note(note)
    if as_json:
        import json

        typer.echo(json.dumps(report.to_dict(), indent=1))
    else:
        from distsim.report.search_vary import lines

        term = style()
        typer.echo("\n".join(term.plain(line) for line in lines(report, term)), color=True)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not any(point.best for point in report.points):
        raise typer.Exit(1)
