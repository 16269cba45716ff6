"""``distsim show`` as a user types it: tables, JSON, terminals of every manner, and misspelt names."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distsim import catalog, preset_kinds
from distsim.cli.app import run
from distsim.report.console import trimmed
from distsim.report.prices import SPARE
from tests.shell import Done, piped

RUN = [sys.executable, "-c", "from distsim.cli import main; main()", "show"]


def show(*words: str, **environment: str) -> Done:
    return piped("show", *words, **environment)


@functools.cache
def whole(kind: str) -> str:
    """The list of a kind as wide as it is, asked once."""
    return show(kind).stdout


def at_a_shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, whose output may have colours."""
    terminal = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
    kept = {key: value for key, value in os.environ.items() if key not in terminal}
    return subprocess.run([*RUN, *words], capture_output=True, text=True, env={**kept, **environment}, check=False)


def test_kinds_are_counted() -> None:
    answer = json.loads(show("--json").stdout)
    assert answer["schema"] == "distsim.show/1"
    assert answer["kinds"]["gpus"] == len(catalog.names("gpus")) >= 49
    assert answer["kinds"]["clusters"] >= 40


def test_names_of_a_kind_with_main_figures() -> None:
    out = whole("gpus")
    line = next(line for line in out.splitlines() if line.startswith("h100-sxm "))
    assert line.split()[:7] == ["h100-sxm", "79.2", "GiB", "3350", "GB/s", "989", "TFLOP/s"]
    assert "h100-sxm5-80gb" in line  # nothing is cut when the output is piped
    assert all(name in out for name in catalog.names("gpus"))
    assert "192.0 GiB *" in out  # a label that no driver confirmed


@pytest.mark.parametrize("words", [("gpu", "h100-sxm"), ("gpus", "H100"), ("GPU", "h100 sxm")])
def test_one_preset_with_sources(words: tuple[str, str]) -> None:
    out = show(*words).stdout
    assert "989 TFLOP/s" in out
    assert "81082 MiB" in out
    assert "ml-engineering" in out
    assert "checked 2026-11-21" in out


def test_a_part_of_names_lists_those_that_hold_it() -> None:
    told = json.loads(show("models", "Qwen3_VL", "--json").stdout)
    found = {one["name"] for one in told["presets"]}
    assert "qwen3-vl-8b" in found and all("qwen3-vl" in name for name in found)
    by_alias = json.loads(show("models", "hermes-3", "--json").stdout)
    assert "llama-3.1-405b" in {one["name"] for one in by_alias["presets"]}
    assert json.loads(show("gpus", "h100", "--json").stdout)["name"] == "h100-sxm"  # a preset's alias goes first
    assert show("models", "no-such").returncode == show("model", "qwen3-vl").returncode == 2


def test_a_model_is_shown_by_every_name_that_other_commands_take() -> None:
    for name in ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b-instruct"):
        assert json.loads(show("model", name, "--json").stdout)["name"] == "llama-3.1-8b"
    done = show("model", "unsloth/Qwen3-8B-bnb-4bit", "--json")
    assert json.loads(done.stdout)["name"] == "qwen3-8b" and "weights follow --precision" in done.stderr


def test_json_is_in_si_units() -> None:
    answer = json.loads(show("gpu", "h100", "--json").stdout)
    assert (answer["kind"], answer["name"], answer["origin"]) == ("gpus", "h100-sxm", "shipped")
    assert answer["spec"]["usable_memory"] == 81082 * 2**20
    assert answer["spec"]["peak"]["bf16"] == 989e12
    assert answer["spec"]["peak"]["fp4"] is None
    listed = json.loads(show("clusters", "--json").stdout)["presets"]
    assert {"name": "dgx-h100", "origin": "shipped", "aliases": ["h100-node"]} in listed


def test_misspelt_name_is_answered_with_the_nearest() -> None:
    answer = show("gpu", "h10-sxm")
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "did you mean h100-sxm" in answer.stderr
    assert "Traceback" not in answer.stderr
    kind = show("gpuz")
    assert (kind.returncode, "did you mean gpus" in kind.stderr) == (2, True)


def test_user_preset_tells_where_it_was_found(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    text = catalog.path("gpus", "h100").read_text(encoding="utf-8").replace('"h100-sxm"', '"mine"', 1)
    (tmp_path / "gpus" / "mine.toml").write_text(text.replace("989 TFLOP/s", "990 TFLOP/s"), encoding="utf-8")
    assert "mine: DISTSIM_PRESETS preset" in show("gpu", "mine", DISTSIM_PRESETS=str(tmp_path)).stdout
    assert "DISTSIM_PRESETS" in show("gpus", DISTSIM_PRESETS=str(tmp_path)).stdout


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "60"}, {}])
def test_no_escape_codes_when_piped(environment: dict[str, str]) -> None:
    assert "\x1b" not in at_a_shell("gpu", "t4", **environment).stdout


def test_colour_can_be_forced() -> None:
    assert "\x1b[" in at_a_shell("gpu", "t4", FORCE_COLOR="1", TERM="xterm-256color").stdout


def test_width_is_obeyed_and_numbers_stay_whole() -> None:
    out = show("gpu", "t4", COLUMNS="64").stdout
    assert max(map(len, out.splitlines())) <= 64
    assert "8.1 TFLOP/s" in out
    assert "…" not in out


def test_names_stay_whole_on_a_narrow_terminal() -> None:
    told = show("gpus", COLUMNS="80").stdout
    assert "a100-pcie-40gb " in told
    assert "not shown (use a wider terminal or --json): aliases" in told and "aliases" not in told.splitlines()[0]
    assert "aliases" in show("gpus", COLUMNS="100").stdout.partition("\u2500")[0]


@pytest.mark.parametrize("kind", [kind for kind in preset_kinds.KINDS if kind not in preset_kinds.SUFFIXES])
def test_lists_fit_eighty_columns_with_every_number_whole(kind: str) -> None:
    narrow, wide = show(kind, COLUMNS="80").stdout, whole(kind)
    assert max(map(len, narrow.splitlines())) <= 80
    number = r"(?<![\w.-])\d[\d.]*(?![\w-])"
    assert set(re.findall(number, narrow)) <= set(re.findall(number, wide))


@pytest.mark.parametrize("kind", [kind for kind in preset_kinds.KINDS if kind not in preset_kinds.SUFFIXES])
def test_lists_break_no_word_at_any_width(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(columns: str) -> str:
        monkeypatch.setenv("COLUMNS", columns)
        assert run(["show", kind]) == 0
        return capsys.readouterr().out

    wide = told("4096")
    assert "not shown" not in wide
    for columns in (80, 100, 120, 140):
        narrow = told(str(columns))
        assert max(map(len, narrow.splitlines())) <= columns
        body, _, left_out = narrow.partition("not shown (use a wider terminal or --json): ")
        assert set(body.split()) <= {*wide.split(), *re.findall("─+", body)}, columns
        words = [line.split() for line in body.splitlines()]
        assert len(words) < 2.5 * len(wide.splitlines()) + 3, columns
        assert set(re.split(r"[ ,\n]+", left_out.split("\n\n")[0])) <= set(re.split(r"[ ,\n]+", wide)), columns


@pytest.mark.parametrize("name", catalog.names("prices"))
def test_price_lists_fit_eighty_columns_with_every_word_whole(name: str) -> None:
    narrow, wide = show("prices", name, COLUMNS="80").stdout, show("prices", name).stdout
    assert max(map(len, narrow.splitlines())) <= 80
    left_out = {word + comma for word in ("not shown (use a wider terminal or --json):", *SPARE) for comma in ("", ",")}
    allowed = {*wide.split(), *re.findall("─+", narrow), *" ".join(left_out).split()}
    assert set(narrow.split()) <= allowed
    assert "not shown" not in wide


def test_headings_and_figures_are_not_broken_within_words() -> None:
    assert "bandwidth" in show("gpus", COLUMNS="80").stdout.replace("\n", " ")
    assert "overhead.compiled_fragmentation_fraction " in show("framework", "torchtitan", COLUMNS="80").stdout


def test_models_tell_their_parameters() -> None:
    assert re.search(r"^mixtral-8x7b +46\.7B .*2 of 8", whole("models"), re.MULTILINE)
    assert "671B (671,026,404,352)" in show("model", "deepseek-v3").stdout
    told = json.loads(show("model", "deepseek-v3", "--json").stdout)
    assert told["parameters"] == sum(told["parts"].values()) == 671_026_404_352
    assert 36e9 < told["parameters_per_token"] < 38e9


def test_sources_follow_below_on_a_narrow_terminal() -> None:
    out = show("gpu", "h100-sxm", COLUMNS="80").stdout
    numbers = {int(line.split()[-1]) for line in out.splitlines() if line.startswith(("peak.", "link.", "memory"))}
    assert all(re.search(rf"^ *{number}  +\S", out, re.MULTILINE) for number in numbers)


def test_a_folder_without_a_configuration_is_told_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    shown = piped("show", "model", "mine", folder=tmp_path)
    assert shown == piped("memory", "mine", folder=tmp_path)
    assert shown == Done(2, "", "error: mine: the folder holds no config.json\n")


def test_a_configuration_is_shown_as_it_is_read(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
              "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 8192,
              "tie_word_embeddings": True}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in (tmp_path, tmp_path / "config.json"):
        assert "1.24B (1,235,814,400)" in show("model", str(name), COLUMNS="100").stdout
        assert json.loads(show("model", str(name), "--json").stdout)["parameters"] == 1_235_814_400


def test_a_list_with_own_presets_fits_too(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "broken.toml").write_text('name = "broken"', encoding="utf-8")
    out = show("models", COLUMNS="80", DISTSIM_PRESETS=str(tmp_path)).stdout
    assert re.search(r"^broken +- .*DISTSIM_PRESETS", out, re.MULTILINE)
    assert re.search(r"^gpt2 +124M .*shipped", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", catalog.names("runs"))
def test_measured_runs_as_data(name: str) -> None:
    answer = json.loads(show("runs", name, "--json").stdout)
    assert (answer["schema"], answer["kind"], answer["name"]) == ("distsim.show/1", "runs", name)
    table = show("runs", name).stdout
    assert list(answer["rows"][0]) == table.splitlines()[0].split(",")
    assert all(isinstance(row["gpu"], str | None) for row in answer["rows"])
    first = answer["rows"][0]
    count = first.get("n_gpus", first.get("gpus"))
    assert isinstance(count, int) and "" not in first.values()


def test_runs_of_ones_own_as_data(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text('id,model,step_time_s,year\n007,"a, b",1.5,2024\n8,,,2024\n', encoding="utf-8-sig")
    rows = json.loads(show("runs", str(file), "--json").stdout)["rows"]
    assert rows == [
        {"id": "007", "model": "a, b", "step_time_s": 1.5, "year": 2024},
        {"id": "8", "model": None, "step_time_s": None, "year": 2024},
    ]
    file.write_bytes(b"id\n\xff\n")
    broken = show("runs", str(file), "--json")
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "not a CSV table in UTF-8\n  save it as CSV" in broken.stderr


def test_prices_of_one_accelerator_over_all_lists() -> None:
    """Lowest on-demand rate first, then rows without one; an alias of a chip will do."""
    told = show("prices", "h200", COLUMNS="200").stdout
    assert told == show("price", "h200-sxm", COLUMNS="200").stdout
    assert all(name in told for name in ("AWS", "GCP", "Nebius", "8x H200 server", "not used in plans"))
    rows = json.loads(show("prices", "h200-sxm", "--json").stdout)["prices"]
    rents = [row["on_demand"] * row["usd_per_unit"] for row in rows if row.get("on_demand")]
    assert rents == sorted(rents) and len(rents) > 20
    assert {row["row"] for row in rows} == {"rent", "purchase"}
    assert all(row["gpu"] == "h200-sxm" for row in rows)
    assert "error: no price list has trainium2" in show("prices", "trainium2").stderr
    assert "unknown price list 'h201'" in show("prices", "h201").stderr
    assert "did you mean h100-sxm? These are accelerators" in show("prices", "h100-sxx").stderr


def test_schedules_are_listed_elsewhere() -> None:
    done = show("schedules")
    assert (done.returncode, "distsim pipeline --list" in done.stderr) == (2, True)


@pytest.mark.parametrize("words", [["show", "gpus"], ["show", "gpus", "h100-sxm"], ["show", "families"]])
@pytest.mark.parametrize("colour", ["", "1"])
def test_no_line_ends_in_blanks(words: list[str], colour: str) -> None:
    """Every cell of the last column was padded to its width."""
    told = piped(*words, COLUMNS="140", **({"NO_COLOR": "", "FORCE_COLOR": "1"} if colour else {})).stdout
    assert ("\x1b[" in told) is bool(colour)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in told.splitlines()]
    assert len(plain) > 10 and not any(line.endswith(" ") for line in plain)


def test_blanks_before_the_end_of_a_colour_go_too() -> None:
    assert trimmed("a \x1b[1mb  \x1b[0m  ") == "a \x1b[1mb\x1b[0m" and trimmed("  ") == ""
