"""docs/json.md names the keys that answers have, and the README leads to every page."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.cli.app import run

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
COMMANDS = {
    "memory": "memory falcon-180b --gpus 4 --zero 3 --offload optimizer --offload-to nvme",
    "comm": "comm llama-7b --gpus 16 --tp 2",
    "pipeline": "pipeline --stages 2 --micro 2 --model llama-7b",
    "step": "step llama-7b --gpus 8 --zero 2",
}
EVERYWHERE = {"schema", "job", "notes"}


def documented(command: str) -> set[str]:
    """The keys in the first column of a command's table."""
    part = PAGE.split(f"## distsim {command}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([\w.]+)`", row)}


def keys(answer: dict[str, Any], depth: int = 2, prefix: str = "") -> set[str]:
    """Dotted keys; entries of a list under the list's key."""
    found: set[str] = set()
    for name, value in answer.items():
        found.add(prefix + name)
        inner = value[0] if isinstance(value, list) and value else None
        if isinstance(inner, dict) and depth > 1:
            found |= keys(inner, depth - 1, f"{prefix}{name}.")
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_keys_are_those_of_the_answer(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run([*COMMANDS[command].split(), "--json"]) in (0, 1)
    real, told = keys(json.loads(out.getvalue())), documented(command)
    assert told <= real, told - real
    assert {key for key in real if "." not in key} - EVERYWHERE <= told


def test_kinds_and_fields_of_actions_are_documented() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `actions` |"))
    fused = distsim.pipeline(stages=4, micro=8, schedule="dualpipe", optimizer=0.5).to_dict()["actions"]
    split = distsim.pipeline(stages=2, micro=4, schedule="zb-h1").to_dict()["actions"]
    assert {one["kind"] for one in (*fused, *split)} <= set(re.findall(r"\b[A-Z]{1,2}\b", row))
    assert {name for one in fused for name in one} <= set(re.findall(r"`(\w+)`", row))


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in readme]
    assert not missing


@pytest.mark.parametrize(
    ("options", "told"),
    [({"micro_batch": 0}, "micro_batch 0 is too small"), ({"tpp": 2}, "did you mean tp"), ({"tp": "x"}, "tp")],
)
def test_the_library_tells_mistakes_like_the_command_line(options: dict[str, Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError, match=told):
        distsim.memory(model="llama-7b", **options)


@pytest.mark.parametrize("ask", [distsim.memory, distsim.comm, distsim.step])
def test_options_beside_a_job_are_not_ignored(ask: Any) -> None:
    with pytest.raises(distsim.DistsimError, match="a Job and tp are given"):
        ask(distsim.Job(model="llama-7b"), tp=2)
