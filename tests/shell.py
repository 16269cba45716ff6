"""A command line as a shell runs it, but in this process: loading the libraries anew takes longer than most answers."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import NamedTuple

import pytest

from distsim.cli import app


class Done(NamedTuple):
    """What a shell sees of a command."""

    returncode: int
    stdout: str
    stderr: str


def piped(*words: str, folder: Path | None = None, **environment: str) -> Done:
    """``distsim`` with these words, its output piped and without colours, in a folder."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as shell, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for name in ("FORCE_COLOR", "COLUMNS"):
            shell.delenv(name, raising=False)
        for name, value in {"NO_COLOR": "1", **environment}.items():
            shell.setenv(name, value)
        if folder is not None:
            shell.chdir(folder)
        code = app.run(list(words))
    return Done(code, out.getvalue(), err.getvalue())
