"""Answers of eighty columns whose longest lines depend on what was asked."""

from __future__ import annotations

import pytest

from distsim.cli.app import run


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("comm --collective all_to_all --gpus 2 --bytes 1e12", 0, "sizes double from 8 B to 1.00 TB"),
        ("plan qwen2.5-0.5b --tokens 1B --gpu h100-sxm --gpus 8 --deadline 1s", 1, "No option meets the limits."),
    ],
)
def test_of_eighty_columns(
    words: str, code: int, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(words.split()) == code
    out = capsys.readouterr().out
    assert told in out
    commands = [line for line in out.splitlines() if "distsim " in line]  # to be copied whole
    assert max(len(line) for line in out.splitlines() if line not in commands) <= 80
