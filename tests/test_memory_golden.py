"""What the terminal shows for ``distsim memory``, held against snapshots; UPDATE_GOLDEN=1 writes them anew.

Presets of the test's own keep the snapshots still when a shipped figure is mended.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
RUN = [sys.executable, "-c", "from distsim.cli import main; main()", "memory"]
MODEL = str(GOLDEN / "plain-7b.toml")
FRAMEWORK = ["--framework", str(GOLDEN / "plain-framework.toml")]
MEASURED = re.compile(r"by [\d,]+ measured runs.*?would fit", re.DOTALL)
"""What changes with every run that is added."""
CASES = {
    "fits": ["--zero", "2", "--gpus", "8"],
    "too_big": ["--pp", "4", "--gpus", "8", "--micro-batch", "4", "--global-batch", "32", "--gpu", "v100-sxm2-32gb"],
    "stages": ["--pp", "8", "--tp", "2", "--gpus", "16", "--schedule", "gpipe", "--zero", "1", "--global-batch", "16"],
    "explain": ["--zero", "2", "--gpus", "8", "--explain"],
}


def shown(tmp_path: Path, words: list[str], **environment: str) -> str:
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "COLORTERM")
    mine = {key: value for key, value in os.environ.items() if key not in dropped}
    kept = {key: value for key, value in mine.items() if not key.startswith(("DISTSIM_", "LC_"))}
    kept["XDG_CONFIG_HOME"] = str(tmp_path)
    done = subprocess.run(
        [*RUN, MODEL, *FRAMEWORK, *words], capture_output=True, text=True, cwd=tmp_path, env={**kept, **environment},
        encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return MEASURED.sub("by measured runs ... would fit", done.stdout.replace(str(GOLDEN) + os.sep, ""))


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
    assert shown(tmp_path, CASES[name], PYTHONIOENCODING="ascii").isascii()
