"""Where options come from when the command line does not state them: a job file, the environment, two TOML files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distsim.errors import DistsimError, nearest
from distsim.plain_files import handed_over, text_of
from distsim.preset_files import no_toml, toml_of, unquoted

PROJECT_FILE = "distsim.toml"
# Either of two says what the other would: the one stated closer to the command line silences the other.
RIVALS = {"gpu": "cluster", "cluster": "gpu", "gpus": "dp", "dp": "gpus"}
PREFIX = "DISTSIM_"
OTHERS = {"DISTSIM_PRESETS"}
"""Variables that are no options."""
MEANT = 0.6
"""How like an option's name a variable must be for the option to be hinted at."""
TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


PATHS = ("model", "gpu", "cluster", "profile", "framework", "precision", "optimizer", "quantize", "loss")
"""Options that may be paths."""
HOLDS = "such a file holds MODEL and job options, named as distsim step has them, e.g. gpu, gpus, tp, zero"


class Stated(NamedTuple):
    """Options from one place."""

    origin: str
    options: dict[str, Any]


def user_file() -> Path:
    """The user's own defaults."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "distsim" / "config.toml"


def read_options(path: Path, known: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
    """Job options of a TOML file, with underscores or hyphens; anything else in it is an error. ``model`` is the one
    that was typed beside it."""
    try:
        data = toml_of(text_of(path))
    except OSError as error:
        raise DistsimError(f"cannot read the file: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise DistsimError("is not a text file; TOML is expected", where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        if (read := _other_job(path, known)) is not None:
            return read
        _refuse_other(path, model)
        raise _no_toml(path, error) from None
    named: dict[str, Any] = {}
    for spelling, value in data.items():
        name = spelling.replace("-", "_")
        if name in named:
            raise DistsimError(f"{name} is set twice, also as {name.replace('_', '-')}", "keep one of them",
                               where=str(path))  # fmt: skip
        named[name] = value
    for name in named:
        if name not in known:
            if not any(one in known and not isinstance(value, dict) for one, value in named.items()):
                if (read := _other_job(path, known)) is not None:
                    return read
                _refuse_other(path, model)
            from distsim.cli.misuse import OF_MODELS, SHAPE

            if named.keys() >= {"layers", "hidden", "heads"}:
                raise DistsimError("is a model, not a job", f"give it as MODEL: distsim step {path}", where=str(path))
            from distsim.other_names import here, meant

            hint = (
                OF_MODELS if name in SHAPE or (here(name, SHAPE) and not here(name, known)) else meant(name, known)
            ) or HOLDS
            raise DistsimError(f"unknown option {name!r}", hint, where=str(path))
    folder = "" if handed_over(path) else os.path.dirname(path)
    return {name: _anchored(value, folder) if folder and name in PATHS else value for name, value in named.items()}


def _no_toml(path: Path, error: tomllib.TOMLDecodeError) -> DistsimError:
    """What is wrong with a text that is no TOML and no other tool's; raises where it is malformed JSON."""
    if path.suffix.lower() == ".json":
        from distsim.interop.json_file import read_json

        read_json(path)
    kinds = f"{HOLDS}; scripts of Megatron and YAML of NeMo or nanotron are read where they state the model's sizes"
    hint = unquoted(path, error) if path.suffix.lower() == ".toml" else kinds
    return DistsimError(no_toml(path, str(error)), hint, where=str(path))


def _other_job(path: Path, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of another tool's file that states a network by its sizes, with notes on how it was read."""
    from distsim.interop.other_jobs import job_in
    from distsim.report import talk

    read = job_in(path, known)
    if read is None:
        return None
    for note in read.notes:
        talk.note(note)
    return read.options


def tell_job(model: Any, job_file: Path | None) -> None:
    """Note that a file which is named as a model states a whole job, too."""
    if not isinstance(model, str) or not os.path.isfile(model) or model.lower().endswith((".toml", ".json")):
        return
    from distsim.interop.other_jobs import states_network
    from distsim.report import talk

    if (job_file is None or not os.path.samefile(model, job_file)) and states_network(Path(model)):
        talk.note(f"{model} is taken as a model alone: --job {model} also takes its degrees, batch and precision")


def _refuse_other(path: Path, model: str | None) -> None:
    from distsim.interop.other_files import refuse_other

    refuse_other(path, model, as_job=True)


def _anchored(value: Any, folder: str) -> Any:
    """A relative path that a file states: in the file's own folder, or where nothing is there, in the working one."""
    suffixed = isinstance(value, str) and value.lower().endswith((".toml", ".json"))
    if not isinstance(value, str) or not (suffixed or "/" in value or os.sep in value) or value.startswith("~"):
        return value
    beside = os.path.join(folder, value.removeprefix("./"))
    if os.path.exists(beside):
        return beside
    meant = suffixed or value.startswith(".")  # others may be names of the Hub
    return beside if meant and not os.path.exists(value) else value


def from_environment(known: Mapping[str, Any]) -> dict[str, Any]:
    """``DISTSIM_GPU``, ``DISTSIM_TP`` and so on: one variable per option of ``known`` (name -> type)."""
    _tell_unknown(known)
    found: dict[str, Any] = {}
    for name, kind in known.items():
        variable = f"{PREFIX}{name.upper()}"
        text = os.environ.get(variable, "").strip()
        if text:
            found[name] = _value(text, kind, variable)
    return found


def _tell_unknown(known: Mapping[str, Any]) -> None:
    """A note on each variable that is named like an option and is none."""
    variables = {f"{PREFIX}{name.upper()}" for name in known} | OTHERS
    for name in sorted(name for name in os.environ if name.startswith(PREFIX) and name not in variables):
        from distsim.report import talk

        near = nearest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in variables], least=MEANT)
        meant = f"; did you mean {', '.join(PREFIX + one for one in near)}?" if near else ""
        talk.note(f"{name} was ignored: it is not an option{meant}")


def _value(text: str, kind: Any, variable: str) -> Any:
    lower = text.lower()
    if kind is bool and lower in (*TRUE, *FALSE):
        return lower in TRUE
    if kind is bool:
        raise DistsimError(f"{text!r} is neither true nor false", "write 1 or 0", where=variable)
    if kind not in (int, float):
        return text
    try:
        return kind(text)
    except ValueError:
        raise DistsimError(f"{text!r} is not a {'whole ' * (kind is int)}number", where=variable) from None


def places(known: Mapping[str, Any], job_file: Path | None, model: str | None = None) -> list[Stated]:
    """Everything stated beside the command line, strongest first; ``model`` is the one that was typed there."""
    found = [Stated(f"job file {job_file}", _job_options(job_file, known, model))] if job_file is not None else []
    found.append(Stated("environment", from_environment(known)))
    for label, path in (("project", Path(PROJECT_FILE)), ("user config", user_file())):
        if path.is_file():
            found.append(Stated(f"{label} {path}", read_options(path, known)))
    return found


def _job_options(path: Path, known: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """What a job file states; one that states nothing was named by mistake, or is what a failed command left."""
    if not (options := read_options(path, known, model)):
        raise DistsimError("states no option", HOLDS, where=str(path))
    return options


def merge(command_line: Mapping[str, Any], under: list[Stated]) -> tuple[dict[str, Any], dict[str, str]]:
    """Each option's value from the strongest place that states it, and that place."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, options in (Stated("command line", dict(command_line)), *under):
        silenced = {RIVALS[name] for name in merged if name in RIVALS}
        for name, value in options.items():
            if value is not None and name not in merged and name not in silenced:
                merged[name] = value
                origins[name] = f"environment {PREFIX}{name.upper()}" if origin == "environment" else origin
    return merged, origins
