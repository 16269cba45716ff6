"""Files that are no job or no model for what they are: JSON of a model or of an answer, YAML that is malformed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError
from distsim.plain_files import text_of
from distsim.specs.flags import typed
from distsim.specs.written import STATED

_KEY = re.compile(r"^( *)(?:- +)*([A-Za-z_][\w.-]*):(?:\s+(.*?))?\s*$")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_OPENS = {"[": "]", "{": "}"}
_OF_MODELS = ("model_type", "architectures", "num_hidden_layers", "hidden_size", "n_layers", "dim")
"""Keys of a model's configuration, one of which each has."""


def refuse_json(path: Path, as_job: bool) -> None:
    """Raise for an answer of distsim, or its job, with the command that asks the same; and for any other JSON that is
    named ``as_job``."""
    try:
        data = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError, DistsimError):
        return
    found = _job_of(data)
    if found is not None:
        options = {name: value for name, value in found.items() if name != "model"}
        model = found.get("model")
        asked = f"distsim step {model if isinstance(model, str) else 'MODEL'} {typed(_plain(options))}".strip()
        raise DistsimError("is an answer of distsim, or the job of one", f"the same job is: {asked}", where=str(path))
    if not as_job:
        return
    if isinstance(data, dict) and any(key in data for key in _OF_MODELS):
        raise DistsimError("is a model, not a job", f"give it as MODEL: distsim step {path}", where=str(path))
    raise DistsimError("is JSON; a job file is a TOML of MODEL and job options",
                       'write e.g. model = "llama-7b" and tp = 2, a line each', where=str(path))  # fmt: skip


def _job_of(data: Any) -> dict[str, Any] | None:
    """The options that the job of an answer states; None of any other data."""
    job = data.get("job", data) if isinstance(data, dict) else None
    stated = job.get(STATED) if isinstance(job, dict) else None
    return stated if isinstance(stated, dict) else None


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options with lists as they are typed."""
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in options.items()
        if not isinstance(value, dict)
    }


def yaml_fault(text: str) -> str:
    """What is malformed in a YAML file, and on which line; empty where nothing of the plain kinds is."""
    opened: list[tuple[int, str]] = []
    above: tuple[int, int, str] | None = None
    for number, line in _own_lines(text):
        match = _KEY.match(line) if not opened else None
        if line[: len(line) - len(line.lstrip())].count("\t") and not opened:
            return f"line {number} is indented by a tab"
        indent = match.start(2) if match is not None else 0
        if match is not None and above is not None and indent > above[0]:
            return f"{match[2]} on line {number} stands inside of {above[2]} on line {above[1]}, which has a value"
        was_open = bool(opened)
        for letter in line:
            if letter in _OPENS:
                opened.append((number, letter))
            elif opened and letter == _OPENS[opened[-1][1]]:
                opened.pop()
            elif opened and letter in _OPENS.values():
                return f"{opened[-1][1]} on line {opened[-1][0]} is closed by {letter} on line {number}"
        if not was_open:
            valued = match is not None and match[3] and not re.match(r"[&!*|>]", match[3])
            above = (indent, number, match[2]) if match is not None and valued else None
    return f"{opened[0][1]} on line {opened[0][0]} is not closed" if opened else ""


def _own_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, but for comments, quoted text and blocks of text."""
    block: int | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", _QUOTED.sub("''", raw)).rstrip()
        indent = len(line) - len(line.lstrip())
        if not line.strip() or (block is not None and indent > block):
            continue
        block = indent if re.search(r":\s+[|>][+-]?\d*$", line) else None
        yield number, line
