"""``distsim comm`` at the terminal: tables, JSON, explanations, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from distsim.cli.app import run


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(["comm", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return err if code == 2 else out


def test_tables_show_collectives_links_hierarchy_and_zero(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "llama-7b", "--gpus", "16", "--tp", "2", "--zero", "1")
    for heading in ("purpose", "algorithm", "utilisation", "Hierarchy", "ZeRO  gathered"):
        assert heading in text
    paper = re.findall(r"(\d\.\dx) +\d\.\d\dx", text)
    assert paper == ["1.0x", "1.0x", "1.0x", "1.5x"]
    assert "\x1b" not in text


def test_narrow_terminals_lose_columns_not_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = answer(capsys, "llama-7b", "--gpus", "16", "--zero", "3")
    monkeypatch.setenv("COLUMNS", "70")
    narrow = answer(capsys, "llama-7b", "--gpus", "16", "--zero", "3")
    for text in (wide, narrow):
        assert re.search(r"parameters +all_gather .*12\.1 GB", text)
    table = narrow.split("optimizer step:")[1].split("Links")[0]
    assert max(map(len, table.splitlines())) <= 70


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(answer(capsys, "llama-7b", "--gpus", "8", "--zero", "2", "--json"))
    assert data["schema"] == "distsim.comm/1"
    assert data["job"]["zero"] == 2 and data["job"]["no_sync"] is False
    assert {row["op"] for row in data["collectives"]} >= {"reduce_scatter", "all_gather"}
    assert data["wire_bytes_per_rank"] == pytest.approx(
        sum(r["wire_bytes_per_rank"] for r in data["collectives"]), abs=9
    )


def test_explain_fills_in_the_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "llama-7b", "--gpus", "8", "--framework", "torchtitan", "--zero", "3", "--explain")
    assert "all_gather_wire_bytes = (ranks - 1) / ranks * size_bytes" in text
    assert "(8 - 1) / 8 * 404,766,720" in text
    assert "source: Thakur" in text
    data = json.loads(answer(capsys, "llama-7b", "--gpus", "8", "--json", "--explain"))
    assert data["figures"][0]["unit"] == "B"


def test_one_gpu_exchanges_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Nothing crosses a link" in answer(capsys, "gpt2", "--gpus", "1")
    assert json.loads(answer(capsys, "gpt2", "--gpus", "1", "--json"))["collectives"] == []


def test_single_collective(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--collective", "all_reduce", "--bytes", "1GB", "--cluster", "dgx-h100", "--gpus", "16")
    assert "busbw" in answer(capsys, *words)
    data = json.loads(answer(capsys, *words, "--from", "1GB", "--json"))
    assert [one["bytes"] for one in data["sizes"]] == [10**9]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no model named"),
        (("llama-7b", "--bytes", "1GB"), "only with --collective"),
        (("--collective", "all_reduce", "--tp", "4"), "takes no --tp"),
        (("llama-7b", "--collective", "all_reduce"), "takes no"),
        (("--collective", "everything"), "unknown collective"),
        (("llama-7b", "--gpus", "8", "--cp-mode", "ring"), "no effect with cp 1"),
        (("llama-7b", "--gpus", "8", "--tp-mode", "4d"), "tp_mode"),
        (("llama-7b", "--gpus", "8", "--expert-imbalance", "0.5"), "expert_imbalance"),
        (("llama-7b", "--gpus", "8", "--sync", "local-sgd", "--sync-gbps", "-1"), "sync_gbps"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str) -> None:
    assert told in answer(capsys, *words, code=2)


def test_memory_takes_the_options_and_says_what_they_leave(capsys: pytest.CaptureFixture[str]) -> None:
    plain, stated = ["memory", "llama-7b", "--gpus", "16", "--json"], ["--zeropp", "qwz", "--zero", "0"]
    assert run(plain) in (0, 1)
    before = json.loads(capsys.readouterr().out)
    assert run([*plain, *stated]) in (0, 1)
    out, err = capsys.readouterr()
    after = json.loads(out)
    assert before["stages"] == after["stages"]
    assert "--zeropp is counted in traffic, not in memory" in err
