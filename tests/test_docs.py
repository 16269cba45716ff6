"""Every console example of the docs is run, and what it shows must be what comes out; generated pages are current."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = ("pipeline.md",)  # its examples need files of their own: tests/test_docs_pipeline.py
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELLIPSIS = "..."


def examples() -> list[tuple[str, str, str]]:
    """(page, command, output shown) of every ``$ distsim`` in a console block."""
    found = []
    for page in PAGES:
        if page.name in ELSEWHERE:
            continue
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                if command.startswith("distsim "):
                    found.append((page.name, command, output.strip("\n")))
    return found


def matches(shown: str, real: str) -> bool:
    """Whether the output is as shown; a line of ``...`` stands for any lines, one within a line for any text."""
    lines = [line.rstrip() for line in shown.splitlines()]
    pattern = ""
    for line in lines:
        if line.strip() == ELLIPSIS:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r".*?".join(re.escape(part) for part in line.split(ELLIPSIS)) + r"\s*\n"
    return re.fullmatch(pattern + r"\s*", real + "\n") is not None


@pytest.mark.parametrize(("page", "command", "shown"), examples(), ids=lambda text: str(text).partition("\n")[0][:60])
def test_examples(page: str, command: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")  # so that it is put back afterwards
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    out = generator().example(command.partition(" |")[0])
    assert out
    assert "Traceback" not in out
    if shown and " |" not in command:
        assert matches(shown, out), out


def test_there_are_examples() -> None:
    assert len(examples()) >= 4


def generator() -> ModuleType:
    return load("docs/generate.py")


@pytest.mark.parametrize("name", ["cli", "formulas"])
def test_generated_pages_are_current(name: str) -> None:
    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert written == getattr(generator(), name)(), "run: make docs"
