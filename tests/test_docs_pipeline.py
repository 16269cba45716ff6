"""Runs every example of docs/pipeline.md; where the page shows an answer, it must be that answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distsim.cli.app import run

PAGE = (Path(__file__).parent.parent / "docs" / "pipeline.md").read_text(encoding="utf-8")
FILES = re.findall(r"```text (\S+)\n(.*?)```", PAGE, re.DOTALL)
BLOCKS = re.findall(r"```console\n\$ (?:COLUMNS=(\d+) )?distsim ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("columns", "command", "answer"), BLOCKS, ids=[command for _, command, _ in BLOCKS])
def test_documented_commands(
    columns: str, command: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, text in FILES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", columns or "80")
    monkeypatch.setenv("NO_COLOR", "1")
    code = run(command.split())
    out, err = capsys.readouterr()
    assert code == (2 if answer.startswith("error") else 0)
    if answer:
        assert out + err == answer


def test_documented_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) >= 10 and SNIPPETS
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/pipeline.md", "exec"), {})
    assert "kind='F'" in capsys.readouterr().out
