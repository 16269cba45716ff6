"""What the terminal shows for ``distsim memory``, held against snapshots; UPDATE_GOLDEN=1 writes them anew.

Presets of the test's own keep the snapshots still when a shipped figure is mended.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distsim.cli.app import run

GOLDEN = Path(__file__).parent / "golden"
WORDS = [str(GOLDEN / "plain-7b.toml"), "--framework", str(GOLDEN / "plain-framework.toml")]
MEASURED = re.compile(r"from [\d,]+ measured runs.*?would fit", re.DOTALL)
"""What changes with every run that is added."""
CASES = {
    "fits": ["--zero", "2", "--gpus", "8"],
    "too_big": ["--pp", "4", "--gpus", "8", "--micro-batch", "4", "--global-batch", "32", "--gpu", "v100-sxm2-32gb"],
    "stages": ["--pp", "8", "--tp", "2", "--gpus", "16", "--schedule", "gpipe", "--zero", "1", "--global-batch", "16"],
    "explain": ["--zero", "2", "--gpus", "8", "--explain"],
}


def shown(folder: Path, words: list[str], encoding: str = "utf-8", **environment: str) -> str:
    """What a terminal with this encoding gets to see, in a folder and with no more environment than is named."""
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding=encoding)
    with pytest.MonkeyPatch.context() as shell, contextlib.redirect_stdout(out):
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "COLORTERM"):
            shell.delenv(name, raising=False)
        for name, value in environment.items():
            shell.setenv(name, value)
        shell.chdir(folder)
        assert run(["memory", *WORDS, *words]) in (0, 1)
        out.flush()
    return plain(written.getvalue().decode(encoding))


def plain(text: str) -> str:
    """A page without what changes with every run that is added, and without where the presets lie."""
    return MEASURED.sub("from measured runs ... would fit", text.replace(str(GOLDEN) + os.sep, ""))


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", CASES)
def test_terminal_output(name: str, width: int, tmp_path: Path) -> None:
    out = shown(tmp_path, CASES[name], COLUMNS=str(width))
    file = GOLDEN / f"memory_{name}_{width}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(out, encoding="utf-8")
    assert out == file.read_text(encoding="utf-8")
    assert max(map(len, out.splitlines())) <= width


@pytest.mark.parametrize("manners", [{"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_no_escape_codes_unless_wanted(manners: dict[str, str], tmp_path: Path) -> None:
    assert "\x1b" not in shown(tmp_path, CASES["too_big"], **manners)


def test_colour_adds_only_colour(tmp_path: Path) -> None:
    painted = shown(tmp_path, CASES["too_big"], FORCE_COLOR="1", COLUMNS="80")
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == shown(tmp_path, CASES["too_big"], COLUMNS="80")


@pytest.mark.parametrize("name", CASES)
def test_ascii_where_the_encoding_has_no_more(name: str, tmp_path: Path) -> None:
    assert shown(tmp_path, CASES[name], "ascii").isascii()


def test_a_shell_shows_the_same(tmp_path: Path) -> None:
    """A process of its own, told its encoding by the environment."""
    command = [sys.executable, "-c", "from distsim.cli import main; main()", "memory", *WORDS, *CASES["fits"]]
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    mine = {**kept, "COLUMNS": "80", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, encoding="ascii", cwd=tmp_path, env=mine, check=True)
    assert plain(done.stdout) == shown(tmp_path, CASES["fits"], "ascii", COLUMNS="80")
