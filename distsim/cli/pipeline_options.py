"""Reads the texts of ``distsim pipeline``'s options: times, chains, order files, layer lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distsim.errors import DistsimError
from distsim.plain_files import text_of
from distsim.report import talk
from distsim.specs.flags import flag

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.engine.pipeline_compare import TimesOf

TIMES = ("forward", "backward", "input_gradient", "weight_gradient", "hop")
"""The five kinds of times by the simulation's names."""
_MOST_TIMES = 100_000
_MOST_BYTES = 200_000_000


def times(text: str | None, option: str) -> float | list[float] | None:
    """``1.5`` or ``1,1,2`` or ``0.5,1*32``; a single number stays a number."""
    if text is None:
        return None
    values = _list(text, option)
    return values[0] if len(values) == 1 and "," not in text and "*" not in text else values


def all_times(
    forward: str | None, backward: str | None, input_gradient: str | None, weight_gradient: str | None, hop: str | None
) -> dict[str, Any]:
    """The five kinds of times by the simulation's names."""
    return {
        "forward": times(forward, "--forward"),
        "backward": times(backward, "--backward"),
        "input_gradient": times(input_gradient, "--input-gradient"),
        "weight_gradient": times(weight_gradient, "--weight-gradient"),
        "hop": 0.0 if hop is None else times(hop, "--hop"),
    }


def _list(text: str, option: str) -> list[float]:
    values: list[float] = []
    for part in text.replace(" ", "").split(","):
        number, _, repeat = part.partition("*")
        try:
            value, count = float(number), int(repeat or 1)
        except ValueError:
            raise DistsimError(
                f"{option}: {part!r} is not a time", "write numbers separated by commas, e.g. 1,1,1.5,1 or 0.5,1*32"
            ) from None
        if count < 1 or len(values) + count > _MOST_TIMES:
            raise DistsimError(f"{option}: {part!r} is {count:,} times", f"list 1 to {_MOST_TIMES:,} times in total")
        values += [value] * count
    return values


def layer_times(text: str | None) -> list[float] | None:
    """``0.5,1*32,2``."""
    return None if text is None else _list(text, "--balance")


def integers(text: str | None, option: str) -> list[int] | None:
    """``0,1,2,3``."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise DistsimError(f"{option}: {text!r} is not a list of whole numbers", "e.g. 0,1,1,0") from None


def chains(text: str | None) -> list[list[int]] | None:
    """``0,1,2,3;4,5,6,7``."""
    if text is None:
        return None
    return [integers(part, "--chains") or [] for part in text.split(";")]


def order(path: Path | None) -> list[str] | None:
    """The lines of an order file."""
    if path is None:
        return None
    try:
        if path.stat().st_size > _MOST_BYTES:
            told = f"the order file has {path.stat().st_size:,} bytes"
            raise DistsimError(told, f"at most {_MOST_BYTES:,} are read", where=str(path))
        return text_of(path).splitlines()
    except OSError as error:
        raise DistsimError(f"cannot read the order file: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise DistsimError("the order file is not text", where=str(path)) from None


def write(path: Path, text: str) -> None:
    """Write an exported file, whole or not at all."""
    from distsim.cli.whole_file import whole

    with whole(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def check_svg(path: Path | None) -> None:
    """Refuses a name whose ending says that the drawing is something else."""
    if path is not None and path.suffix:
        from distsim.cli.whole_file import check_suffix

        check_suffix(path, "--svg", (".svg",))


def times_of_model(
    model: str | None, given: dict[str, Any], chunks: int | None, schedule: str | None, job: dict[str, Any]
) -> tuple[dict[str, Any], Setup | None]:
    """What is ``given`` with the times of ``--model``, and its setup; the same where no model is named. Times of one's
    own beside it are refused."""
    if model is None:
        return given, None
    if given["loss"]:
        raise DistsimError("--model and --loss exclude each other: the model's times include its loss", "leave it out")
    own = [flag(name) for name in (*TIMES, "balance") if given.get(name)]
    if own:
        raise DistsimError(f"--model and {', '.join(own)} exclude each other", "leave one of them out")
    lacking = [f"--{name}" for name in ("stages", "micro") if not given[name]]
    if lacking:
        raise DistsimError(f"--model needs {' and '.join(lacking)}", "e.g. --stages 4 --micro 16")
    from distsim.engine.steps.pass_times import model_setup, pass_times

    with _own_words():
        setup = model_setup(model, given["stages"], given["micro"], chunks, schedule, **job)
    for note in setup.notes:
        talk.note(note)
    return {**given, **pass_times(setup, schedule)}, setup


_HERE = {
    r"leave --pp( and --cp)? out": "use --stages 1", r"--pp\b|(?<!-)\bpp\b": "--stages",
    r"--vpp\b|(?<!-)\bvpp\b": "--chunks",
}  # fmt: skip
"""What a job calls otherwise, with its name in this command."""


@contextmanager
def _own_words() -> Iterator[None]:
    """While it lasts, errors of a job have the names that ``distsim pipeline`` has for its degrees."""

    def renamed(text: str) -> str:
        for other, here in _HERE.items():
            text = re.sub(other, here, text)
        return text

    try:
        yield
    except DistsimError as error:
        raise DistsimError(renamed(error.problem), *map(renamed, error.hints), where=error.where) from None


def times_by_schedule(model: str | None, given: dict[str, Any], job: dict[str, Any]) -> TimesOf | None:
    """The function that gives a model's times under each compared schedule, whose chunks are on stages of its own; None
    without a model."""
    if model is None:
        return None
    from distsim.engine.steps.pass_times import model_times

    def timed(schedule: str, chunks: int | None) -> dict[str, Any]:
        with _own_words():
            return model_times(model, given["stages"], given["micro"], chunks, schedule, **job)

    return timed


OF_THE_PIPELINE = ("model", "pp", "vpp", "gpus", "dp", "global_batch", "schedule")
"""Job options that ``distsim pipeline`` sets itself."""


def complete(model: str | None, job: dict[str, Any]) -> dict[str, Any]:
    """Job options as typed, and under them those that stay; none without a model."""
    if model is None:
        typed = [flag(name, value) for name, value in job.items() if value is not None]
        if typed:
            raise DistsimError(f"{', '.join(typed)}: only valid with --model", "e.g. --model llama-70b")
        return {}
    from distsim.cli.options import with_places

    merged, _ = with_places(job)
    return {name: value for name, value in merged.items() if name not in OF_THE_PIPELINE}


def refuse_idle(
    sync: bool | None, optimizer: float | None, p2p: str, blocking: bool, contention: bool, delayed: bool
) -> None:
    """Refuses what cannot have an effect: ways of transfers need some that are ``delayed``."""
    if sync is not None and optimizer is None:
        named = "--sync" if sync else "--no-sync"
        raise DistsimError(f"{named} has no effect without an optimizer step", "give its time, e.g. --optimizer 0.5")
    ways = {"--p2p rendezvous": p2p == "rendezvous", "--blocking": blocking, "--contention": contention}
    idle = [way for way, stated in ways.items() if stated and not delayed]
    if idle:
        does = "has" if len(idle) == 1 else "have"
        raise DistsimError(
            f"{' and '.join(idle)} {does} no effect on transfers that take no time", "give their time, e.g. --hop 0.1"
        )


def refuse_with_compare(given: dict[str, Any]) -> None:
    """``--compare`` runs all schedules, so options of a single one would say nothing."""
    named = [flag(name) for name, value in given.items() if value is not None]
    if named:
        raise DistsimError(f"{', '.join(named)} and --compare exclude each other", "leave one of them out")
