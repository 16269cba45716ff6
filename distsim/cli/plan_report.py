"""``distsim plan --report FILE``: where the page goes, and the command that it tells of."""

from __future__ import annotations

import datetime
import inspect
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distsim.cli.whole_file import check_suffix, whole
from distsim.errors import DistsimError
from distsim.report import talk
from distsim.specs.flags import words as option

if TYPE_CHECKING:
    from distsim.engine.plans.planner import Plan

KINDS = (".html", ".htm")


def check(text: str | None) -> Path | None:
    """The file, once a page could be written there; said before anything is computed."""
    if text is None:
        return None
    path = Path(text)
    if not text.strip() or path.is_dir():
        raise DistsimError(f"--report {text!r} is not a file", "name one, e.g. --report plan.html")
    if not path.parent.is_dir():
        raise DistsimError(f"--report {text}: there is no folder {path.parent}", f"create it: mkdir -p {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise DistsimError(f"--report {text}: the folder {path.parent} is not writable", "name another file")
    check_suffix(path, "--report", KINDS)
    return path


def write(path: Path, made: Plan, command: Callable[..., None], given: Mapping[str, Any]) -> None:
    """The page, whole or not at all."""
    from distsim.report.html import page

    text = page(made, given["seed"], given["top"], datetime.date.today(), asked(command, given))
    replace(path, text)
    talk.note(f"page written to {path}")


def replace(path: Path, text: str) -> None:
    """Put a whole file in the place of another; a write that fails leaves the old one as it was."""
    with whole(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def asked(command: Callable[..., None], given: Mapping[str, Any]) -> str:
    """The command that asks for the same page again."""
    words = ["distsim", command.__name__, str(given["model"])]
    for name, parameter in inspect.signature(command).parameters.items():
        value = given[name]
        if name == "model" or value == parameter.default or name in ("json", "csv", "jobs"):
            continue
        words += option(name, value)
    return shlex.join(words)
