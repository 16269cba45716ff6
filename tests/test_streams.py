"""What the terminal's encoding lacks: help has none of it, and whatever else is written is spelt."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distsim.cli.app import COMMANDS, available, help_text, run
from distsim.cli.streams import PLAIN, open_streams


@pytest.mark.parametrize("name", available())
def test_help_is_plain_ascii(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So that latin-1, cp437 and ascii have all of it."""
    assert run([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert told and told.isascii(), [line for line in told.splitlines() if not line.isascii()]


def test_the_overview_is_plain_ascii() -> None:
    assert help_text().isascii() and all(name in help_text() for name in COMMANDS)


@pytest.mark.parametrize("encoding", ["latin-1", "cp437", "ascii"])
def test_a_command_tells_its_help_in_any_encoding(encoding: str) -> None:
    command = [sys.executable, "-m", "distsim", "plan", "--help"]
    told = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert told.returncode == 0 and told.stderr == b""
    assert "nf4+experts ..." in " ".join(told.stdout.decode(encoding).split())


@pytest.mark.parametrize("encoding", ["latin-1", "cp437", "ascii"])
def test_signs_that_an_encoding_lacks_are_spelt(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out"
    with file.open("wb") as raw:
        given = io.TextIOWrapper(raw, encoding)
        monkeypatch.setattr(sys, "stdout", given)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        open_streams()
        sys.stdout.write("a \u2026 b \u2192 \u4e2d")
        sys.stdout.flush()
        assert sys.stdout is not given
    assert file.read_text(encoding) == "a ... b -> \\u4e2d"
    assert all(one.isascii() for one in PLAIN.values())
