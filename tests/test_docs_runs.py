"""docs/runs.md lists the columns that the shipped runs have, and its example is a table that can be validated."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from distsim.engine.validate import validate_file

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
INTERNAL = {"tier"}  # how the shipped runs were collected


def test_every_column_is_told() -> None:
    with (ROOT / "presets" / "runs" / "published.csv").open(encoding="utf-8") as file:
        columns = set(next(csv.reader(file))) - INTERNAL
    table = "".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", table)) == columns | {
        "capacity_factor",
        "decoder_seq",
        "cp_mode",
        "lora_targets",
        "gpu_power",
        "gpu_memory",
    }  # which no shipped run needs


def test_the_example_is_replayed(tmp_path: Path) -> None:
    found = re.search(r"```csv\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    file = tmp_path / "mine.csv"
    file.write_text(found[1], encoding="utf-8")
    replays = validate_file(file).replays
    assert [one.reason for one in replays] == ["", ""]
    told = validate_file(file).to_dict()["rows"][0]
    assert type(told["measured"]["peak_memory"]) is type(told["predicted"]["peak_memory"]) is int


def test_pages_that_messages_name_exist() -> None:
    for file in (ROOT / "distsim").rglob("*.py"):
        for page in re.findall(r"\bdocs/[\w-]+\.md", file.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), f"{file}: {page}"


def test_rows_have_every_key_of_the_contract(tmp_path: Path) -> None:
    found = re.search(r"```csv\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    file = tmp_path / "mine.csv"
    lines = found[1].splitlines()
    columns = lines[0].split(",")
    blank = ["bare" if name == "id" else "" for name in columns]
    file.write_text("\n".join([*lines, ",".join(blank)]), encoding="utf-8")
    *answered, bare = validate_file(file).to_dict()["rows"]
    keys = {"id", "status", "reason", "measured", "predicted", "interval", "error", "memory_error"}
    assert all(keys <= row.keys() and row["status"] == "ok" and row["reason"] is None for row in answered)
    assert bare["status"] == "skipped" and bare["reason"]
    assert {key for key in keys if bare[key] is None} == keys - {"id", "status", "reason"}
