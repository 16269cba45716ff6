"""Options that are not typed: errors name the file or variable, and values have the kinds that options have."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Done, piped

COMMANDS = {
    "memory": ("memory", "llama-7b"),
    "search": ("search", "llama-7b", "--gpus", "8"),
    "plan": ("plan", "llama-7b", "--tokens", "1B"),
    "pipeline": ("pipeline", "--stages", "4", "--micro", "8", "--model", "llama-7b"),
}


def told(folder: Path, text: str, *words: str, file: str = "distsim.toml", **environment: str) -> Done:
    """A command in a folder with that file, and with no user's own defaults."""
    (folder / file).write_text(text, encoding="utf-8")
    return piped(*words, folder=folder, XDG_CONFIG_HOME=str(folder / "none"), **environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_name_tells_its_file(tmp_path: Path, command: str) -> None:
    done = told(tmp_path, 'gpu = "nope"', *COMMANDS[command])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: distsim.toml: unknown gpu 'nope'\n"), done.stderr


def test_an_unknown_name_tells_its_job_file_or_variable(tmp_path: Path) -> None:
    done = told(tmp_path, 'gpu = "nope"', "memory", "llama-7b", "--job", "j.toml", file="j.toml")
    assert done.stderr.startswith("error: j.toml: unknown gpu 'nope'\n")
    done = told(tmp_path, "", "step", "llama-7b", DISTSIM_PRECISION="fp9")
    assert done.stderr.startswith("error: DISTSIM_PRECISION: unknown precision 'fp9'\n")
    done = told(tmp_path, "", "step", "llama-7b", DISTSIM_TP="0")
    assert done.stderr.startswith("error: DISTSIM_TP: tp 0 is too small\n")


def test_a_file_is_not_blamed_for_what_is_typed(tmp_path: Path) -> None:
    done = told(
        tmp_path, 'gpu = "h100-sxm"\nzero = 1', "memory", "llama-7b", "--job", "j.toml", "--tp", "0", file="j.toml"
    )
    assert done.stderr.startswith("error: --tp 0 is too small\n")
    done = told(tmp_path, 'gpu = "nope"', "memory", "llama-7b", "--gpu", "nape")
    assert done.stderr.startswith("error: unknown gpu 'nape'\n")


def test_a_number_that_breaks_a_rule_tells_its_file(tmp_path: Path) -> None:
    done = told(tmp_path, "tp = 6", "memory", "llama-7b")
    assert done.stderr.startswith("error: tensor parallel degree 6 does not divide 32")
    assert done.stderr.endswith("\n  tp = 6 is stated in distsim.toml\n")


def test_a_misspelled_variable_is_told(tmp_path: Path) -> None:
    done = told(tmp_path, "", "memory", "llama-7b", DISTSIM_GPUSS="4", DISTSIM_PRESETS="")
    assert done.returncode != 2
    assert done.stderr.count("note: DISTSIM_GPUSS was not used: it is no option; did you mean DISTSIM_GPUS") == 1
    assert "DISTSIM_PRESETS" not in done.stderr
    done = told(tmp_path, "", *COMMANDS["pipeline"], "--compare", DISTSIM_GPUSS="4")
    assert done.stderr.count("DISTSIM_GPUSS") == 1
