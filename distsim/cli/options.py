"""The job options that memory, comm, step, search and plan share, stated once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer

from distsim.cli.job_options import JOB_OPTIONS
from distsim.cli.signatures import with_signature
from distsim.errors import DistsimError
from distsim.specs.flags import flag, switch


def parameter(name: str, kind: Any, text: str) -> inspect.Parameter:
    """One job option as a parameter of a command."""
    typed = switch(name) if kind is bool else flag(name)
    annotation = Annotated[kind | None, typer.Option(typed, help=text, show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _own(name: str, typed: str, kind: Any, text: str) -> inspect.Parameter:
    option = typer.Option(typed, help=text, show_default=False)
    default = False if kind is bool else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


MODEL_HELP = "preset (distsim show models), TOML, Hugging Face config.json, Megatron script, NeMo or nanotron YAML"
MODEL = inspect.Parameter(
    "model", inspect.Parameter.KEYWORD_ONLY, default=None,
    annotation=Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=False)],
)  # fmt: skip
JOB_FILE = _own(
    "job", "--job", Path | None,
    "TOML file of MODEL and job options, one value each, as distsim step takes them, or a script of Megatron or YAML "
    "of NeMo or nanotron with the model's sizes; the command line wins",
)  # fmt: skip
SHOW_CONFIG = _own("show_config", "--show-config", bool, "print every option and where it comes from, then exit")


JOBLESS = ("collective", "bytes", "sweep_from")
"""Options of a command that answers without a job, too."""


def job_command(function: Callable[..., None]) -> Callable[..., None]:
    """Give ``function(job, **own)`` the MODEL argument and all job options; it is called with a Job and its own.

    A function that takes ``origins`` is also told where each stated option comes from. One that takes ``stated`` also
    answers without a job, when one of its options ``JOBLESS`` is given: then it gets None and the options as stated.
    """
    taken = inspect.signature(function, eval_str=True).parameters
    own = [p.replace(kind=p.KEYWORD_ONLY) for name, p in taken.items() if name not in ("job", "origins", "stated")]
    own_names = {p.name for p in own}

    def command(**values: Any) -> None:
        from distsim import catalog

        with catalog.settled():  # one look at each preset for all that a command does
            answer(values)

    def answer(values: dict[str, Any]) -> None:
        mine = {name: value for name, value in values.items() if name in own_names}
        rest = {name: value for name, value in values.items() if name not in own_names}
        show = rest.pop("show_config", False)
        if "stated" in taken and any(mine.get(name) is not None for name in JOBLESS):
            if show:
                raise DistsimError("--show-config shows a job, but a single collective has none", "leave it out")
            function(None, {}, rest, **mine)
            return
        job, origins = stated_job(rest)
        if show:
            _show_config(job, origins, bool(mine.get("json")))
            return
        if "origins" in taken:
            mine["origins"] = origins
        if "stated" in taken:
            mine["stated"] = {}
        function(job, **mine)

    shared = [parameter(name, kind, text) for name, (kind, text) in JOB_OPTIONS.items()]
    parameters = [MODEL, *shared, JOB_FILE, SHOW_CONFIG, *own]
    return with_signature(command, parameters, function)


def with_places(typed: dict[str, Any], file: Path | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Job options as typed, under them those of a job file, the environment, the project's file and the user's; and
    where each comes from."""
    from distsim.cli import config, places

    known = {"model": str, **{name: kind for name, (kind, _) in JOB_OPTIONS.items()}}
    under = config.places(known, file, typed.get("model"))
    merged, origins = config.merge(typed, under)
    places.remember(merged, origins)
    config.tell_job(typed.get("model"), file)
    if file is not None:
        _tell_replaced(under[0].options, merged, file)
    return merged, origins


def _tell_replaced(stated: dict[str, Any], merged: dict[str, Any], file: Path) -> None:
    """Note a job file's number of GPUs or replicas that gives way to the other as typed, where they disagree."""
    from distsim.report import talk

    for name, typed in (("dp", "gpus"), ("gpus", "dp")):
        if stated.get(name) is None or name in merged or typed not in merged:
            continue
        degrees = [one for one in (merged.get(degree) for degree in ("tp", "pp", "cp")) if isinstance(one, int)]
        replicas, gpus = (stated[name], merged[typed]) if name == "dp" else (merged[typed], stated[name])
        if str(gpus) != str(replicas * prod(degrees)):
            talk.note(f"{name} {stated[name]} of {file} gives way to {flag(typed)} {merged[typed]}")


def tell_unused(origins: dict[str, str], command: str) -> None:
    """Note options of files and variables that one of the commands that read them does not have."""
    from distsim.report import talk

    for name, origin in origins.items():
        talk.note(f"{name} ({origin}) was ignored: distsim {command} has no such option")


def refuse_others(origins: dict[str, str], command: str) -> None:
    """Raise options of a job file, which is of one command, that this command does not have; note those of files and
    variables that all commands read."""
    from distsim.cli import places

    if own := {name: origin for name, origin in origins.items() if origin.startswith("job file")}:
        raise DistsimError(
            f"a {command} does not take {', '.join(own)}",
            "leave it out; distsim step takes it for one layout",
            where=places.place_of(next(iter(own.values()))),
        )
    tell_unused(origins, command)


def unnamed() -> DistsimError:
    """That no model is named."""
    return DistsimError(
        "no model named", "give one after the command, e.g. llama-7b", "list them with: distsim show models"
    )


def stated_job(values: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """A Job from the command line and what lies under it, and where each stated option comes from."""
    from distsim.specs.job import Job

    options = dict(values)
    file = options.pop("job", None)
    merged, origins = with_places(options, Path(file) if file is not None else None)
    if "model" not in merged:
        raise unnamed()
    try:
        return Job.read(merged), origins
    except DistsimError as error:
        raise as_typed(error, options) from None


def as_typed(error: DistsimError, typed: dict[str, Any]) -> DistsimError:
    """An error that begins with an option of the command line, with its flag as it was typed."""
    first, _, rest = error.problem.partition(" ")
    name = first.rstrip(":")
    if name not in JOB_OPTIONS or typed.get(name) is None:
        return error
    return DistsimError(f"{flag(name, typed[name])}{first[len(name) :]} {rest}", *error.hints)


def _show_config(job: Any, origins: dict[str, str], json: bool) -> None:
    from distsim.engine.jobs.resolve import resolve
    from distsim.report.options import option_lines, options_data

    setup = resolve(job)
    if json:
        import json as jsonlib

        typer.echo(jsonlib.dumps(options_data(setup, origins)))
        return
    for line in option_lines(setup, origins):
        typer.echo(line)
