"""``distsim search`` at the terminal: tables, JSON, files, misses, refusals."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distsim.cli.app import run
from distsim.cli.whole_file import whole
from distsim.engine.campaigns.pace import campaign_pace

SMALL = ("llama-7b", "--gpu", "h100-sxm", "--gpus", "8", "--global-batch", "64", "--schedule", "1f1b", "--cp", "1")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(["search", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return err if code == 2 else out


def test_tables_show_rank_limits_front_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, *SMALL, "--diff", "1,2")
    plot = "Step time against memory"
    for part in ("limited by", plot, "Best: distsim step llama-7b", "peak memory, GiB", "difference"):
        assert part in text
    assert "\x1b" not in text
    command = text.split("Best: distsim ")[1].splitlines()[0].split()
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert run(["search", *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert told["seconds"] == pytest.approx(found["layouts"][0]["seconds"], rel=1e-12)
    assert told["peak_memory"] == found["layouts"][0]["peak_memory"]


def test_figures_of_two_layouts_that_do_not_differ_are_told_as_equal(capsys: pytest.CaptureFixture[str]) -> None:
    """Sums in another order differ by hundredths of a microsecond; and how many stand on the front."""
    asked = ["mixtral-8x7b", "--gpu", "h200-sxm", "--gpus", "16", "--seq", "4096", "--global-batch", "128"]
    text = answer(capsys, *asked, "--recompute", "none,selective", "--diff", "1,2")
    assert "+0 s (" not in text and re.search(r"^optimizer .* ms +0$", text, re.MULTILINE)
    (shown, every) = map(int, re.findall(r"memory: (\d+) of (\d+) layouts on the Pareto front", text)[0])
    assert shown == 24 < every


def test_a_schedule_that_is_left_out_is_not_told_to_be_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("llama-7b", "--gpus", "8", "--global-batch", "64", "--pp", "4", "--framework", "megatron-core", "--json")
    told = " ".join(json.loads(answer(capsys, *asked, "--schedule", "1f1b,dualpipe,v-half"))["notes"])
    assert "no pipeline schedule dualpipe, v-half: left out" in told and "simulated only" not in told


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(answer(capsys, *SMALL, "--json", "--top", "3"))
    assert found["schema"] == "distsim.search/1"
    assert found["evaluated"] >= found["feasible"] > 0
    assert found["ranked"] == 3
    times = [one["seconds"] for one in found["layouts"][:3]]
    assert times == sorted(times)
    assert all(0 <= index < len(found["layouts"]) for index in found["pareto"])


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = (*SMALL, "--recompute", "none,selective", "--zero", "0,1", "--top", "5", "--json")
    found = json.loads(answer(capsys, *words, "--csv", "ranked.csv", "--all", "all.csv"))
    with open(tmp_path / "ranked.csv", encoding="utf-8") as file:
        ranked = list(csv.DictReader(file))
    with open(tmp_path / "all.csv", encoding="utf-8") as file:
        every = list(csv.DictReader(file))
    assert [float(row["seconds"]) for row in ranked] == [one["seconds"] for one in found["layouts"][:5]]
    assert len(every) == found["evaluated"]
    assert len({tuple(row.values()) for row in every}) == len(every)
    limit = found["memory_limit"]
    fitting = [float(row["seconds"]) for row in every if int(row["peak_memory_bytes"]) <= limit]
    assert len(fitting) == found["feasible"]
    assert min(fitting) == pytest.approx(found["layouts"][0]["seconds"], rel=1e-9)
    assert {row["recompute"] for row in every} == {"none", "selective"}


def test_cheap_modules_of_experts_are_tried(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Tables and files call them modules, and the command below names them; a step of it is the layout's."""
    mixture = ("mixtral-8x7b", "--gpu", "h100-sxm", "--gpus", "64", "--seq", "8192", "--global-batch", "512",
               "--tp", "1", "--cp", "1", "--pp", "2", "--ep", "8", "--zero", "1", "--top", "1")  # fmt: skip
    text = answer(capsys, *mixture, "--csv", "ranked.csv", "--all", "all.csv")
    with open(tmp_path / "ranked.csv", encoding="utf-8") as file:
        (best,) = csv.DictReader(file)
    with open(tmp_path / "all.csv", encoding="utf-8") as file:
        assert {row["recompute"] for row in csv.DictReader(file)} == {"none", "selective", "modules", "full"}
    assert best["recompute"] == "modules" and " modules " in text.split("limited by")[1].splitlines()[1]
    command = text.split("Best: distsim ")[1].splitlines()[0].split()
    assert command[command.index("--recompute-modules") + 1] == "moe_act,layernorm"
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] == pytest.approx(float(best["seconds"]), rel=1e-9)
    slower = answer(capsys, *mixture, "--recompute", "none,selective,full", "--csv", "without.csv")
    with open(tmp_path / "without.csv", encoding="utf-8") as file:
        (other,) = csv.DictReader(file)
    assert float(other["seconds"]) > float(best["seconds"]) and "--recompute-modules" not in slower
    assert "has no experts" in answer(capsys, *SMALL, "--recompute", "modules", code=2)


def test_what_all_layouts_share_is_in_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    """What is offloaded is told once, or in a column where layouts differ in it."""
    command = ["mixtral-8x7b", "--gpu", "h100-sxm", "--gpus", "16", "--seq", "4096", "--pp", "1", "--cp", "1"]
    shared = ["--offload", "activations", "--offload-modules", "moe_act", "--cuda-graphs", "modules"]
    assert run(["search", *command, *shared]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "CUDA graphs of modules, activations of moe_act in host memory" in told
    assert run(["search", *command, "--offload", "none,optimizer"]) == 0
    assert "in host memory" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("named", "bound", "told"),
    [
        (("--recompute-modules", "moe_act"), ("--recompute", "none,full"), "is for selective recomputation"),
        (("--remat-policy", "minimal"), ("--recompute", "full"), "is for selective recomputation"),
        (("--offload-modules", "moe_act"), ("--offload", "none,optimizer"), "--offload has no activations"),
    ],
)
def test_modules_that_no_layout_would_have_are_refused(
    named: tuple[str, str], bound: tuple[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = answer(capsys, "mixtral-8x7b", "--gpu", "h100-sxm", "--gpus", "64", *named, *bound, code=2)
    assert error.startswith(f"error: {' '.join(named)} ") and told in error and len(error.splitlines()) == 2


def test_nothing_fits_is_exit_1_with_misses_and_mends(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-70b", "--gpu", "h100-sxm", "--gpus", "8", "--global-batch", "64", "--tp", "8", "--pp", "1")
    text = answer(capsys, *words, code=1)
    assert "No layout fits" in text and "over by" in text and "What makes it fit" in text
    found = json.loads(answer(capsys, *words, "--json", code=1))
    assert found["feasible"] == 0 and found["layouts"] == [] and found["nearest"]
    assert found["mends"] and all(one["fits"] for one in found["mends"])


def test_no_layout_is_quick_enough(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL, "--recompute", "none", "--zero", "1", "--tp", "1,2")
    text = answer(capsys, *words, "--within", "800ms", code=1)
    assert "stays within 800 ms" in text and "fast enough: --gpus " in text
    command = text.split("  distsim ")[1].splitlines()[0].split()
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] <= 0.8
    found = json.loads(answer(capsys, *words, "--within", "1ms", "--json", code=1))
    assert found["quick_enough"]["gpus"] is None and found["quick_enough"]["seconds"] > 0.001


@pytest.mark.parametrize(("gpus", "told"), [
    ("8", "More GPUs do not make it faster (up to 32 were searched)."),
    ("20000", "More than 32,768 GPUs are not searched."),
])  # fmt: skip
def test_how_many_gpus_were_searched_is_told(gpus: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpt2", "--gpu", "h100-sxm", "--gpus", gpus, "--global-batch", gpus, "--within", "1us", "--tp", "1",
             "--pp", "1", "--cp", "1", "--zero", "1", "--recompute", "none")  # fmt: skip
    assert told in answer(capsys, *words, code=1)


def test_prices_fold_to_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = answer(capsys, *SMALL[:3], "--gpus", "12", "--global-batch", "48", "--price", "on-demand", "--top", "1")
    price = text.split("price: ")[1].split("\n\n")[0]
    assert "whole instances: 12 GPUs billed as 16" in " ".join(price.split())
    assert max(map(len, f"price: {price}".splitlines())) <= 80


def test_a_deadline_is_met_by_the_fewest_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-7b", "--gpu", "h100-sxm", "--gpus", "8..64", "--global-batch", "512", "--recompute", "none",
             "--zero", "1", "--schedule", "1f1b", "--cp", "1", "--tp", "1,2", "--objective", "fewest-gpus",
             "--tokens", "100B")  # fmt: skip
    free = json.loads(answer(capsys, *words, "--json", "--price", "2"))
    days = {one["layout"]["gpus"]: one["training_days"] for one in free["layouts"][:1]}
    assert list(days) == [8]
    found = json.loads(answer(capsys, *words, "--json", "--price", "2", "--deadline", f"{days[8] * 0.4:.3f}d"))
    best = found["layouts"][0]
    assert best["layout"]["gpus"] == 32 and best["training_days"] <= days[8] * 0.4
    assert best["training_days"] * 86400 * best["tokens_per_second"] == pytest.approx(100e9 * campaign_pace())
    assert best["usd"] == pytest.approx(best["training_days"] * 24 * 32 * 2)
    text = answer(capsys, *words, "--deadline", "1d", "--gpus", "8", code=1)
    assert "for 100B tokens" in text and "fast enough: --gpus 128" in text


def test_batches_meet_a_deadline_by_their_own_steps(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL[:5], "--global-batch", "64,128", "--recompute", "none", "--tokens", "10B", "--json")
    deadline = 4.0
    found = json.loads(answer(capsys, *words, "--all", "all.csv", "--deadline", f"{deadline}d"))
    with open("all.csv", encoding="utf-8") as file:
        fitting = [row for row in csv.DictReader(file) if int(row["peak_memory_bytes"]) <= found["memory_limit"]]
    seconds = deadline * 86400 / campaign_pace()
    quick = [row for row in fitting if 10e9 / float(row["tokens_per_second"]) <= seconds]
    assert 0 < len(quick) == found["feasible"] < len(fitting)
    assert {row["global_batch"] for row in quick} == {"64", "128"}
    assert all(one["training_days"] <= deadline for one in found["layouts"][: found["ranked"]])


def test_what_only_the_margin_forbids_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "fits without --margin 0.95" in answer(capsys, *SMALL, "--margin", "95%", code=1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tp", "7"), "1, 2, 4, 8"),
        (("--tp", "4", "--pp", "4", "--dp", "4"), "--pp 4"),
        (("--tp", "8..1"), "empty"),
        (("--tp", "many"), "neither a whole number nor a range"),
        (("--schedule", "interleavd"), "interleaved-1f1b"),
        (("--exclude", "tq=3"), "--exclude"),
        (("--exclude", "tp=1..8"), "without --exclude"),
        (("--objective", "speed"), "throughput"),
        (("--margin", "2"), "margin"),
        (("--margin", "100%"), "0.05 or 5%"),
        (("--margin", "lots"), "0.05 or 5%"),
        (("--within", "soon"), "--within"),
        (("--within", "0s"), "--within"),
        (("--diff", "1"), "two ranks"),
        (("--all", "all.xlsx"), ".csv or .parquet"),
        (("--csv", "all.parquet"), "does not end in .csv"),
        (("--csv", "no/such/folder.csv"), "mkdir"),
        (("--gpus", "8.."), "no end"),
        (("--deadline", "3d"), "--tokens 300B"),
        (("--tokens", "0"), "--tokens"),
        (("--tokens", "many"), "--tokens"),
        (("--price", "spto"), "spot"),
        (("--price", "-1"), "not a rate per GPU-hour"),
        (("--price", "2.5", "--provider", "aws"), "both set the price"),
        (("--provider", "nobody"), "nobody"),
        (("--provider", ","), "names no price list"),
        (("--gpus", "0"), "out of range"),
        (("--global-batch", "0"), "global"),
    ],
)
def test_wrong_input_is_told(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str) -> None:
    assert told in answer(capsys, *SMALL[:5], *words, code=2)


def test_a_job_file_fixes_dimensions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('model = "llama-7b"\ngpus = 8\ntp = 2\nglobal_batch = 64\n', encoding="utf-8")
    found = json.loads(answer(capsys, "--job", "job.toml", "--schedule", "1f1b", "--json"))
    assert {one["layout"]["tp"] for one in found["layouts"]} == {2}
    (tmp_path / "job.toml").write_text('model = "llama-7b"\ngpus = 8\nstage_layers = "16,16"\n', encoding="utf-8")
    assert "stage_layers" in answer(capsys, "--job", "job.toml", code=2)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_narrow_terminals_lose_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    table = answer(capsys, *SMALL, "--top", "3").split("\n\n")[1].splitlines()
    assert len(table) in (5, 6) and max(map(len, table)) <= width
    assert all(name in table[0] for name in ("step", "MFU", "GiB", "tp", "dp", "zero", "micro", "limit"))
    assert "--all-ranks" in table[-1]


def test_progress_has_a_bar_a_rate_and_the_time_left_and_fits_the_line() -> None:
    from distsim.cli.progress import BAR, line

    wide = line(2_500_000, 10_000_000, 2.0, "layouts", 120, True)
    assert wide == "█" * (BAR // 4) + "░" * (BAR * 3 // 4) + (
        "  25%  2,500,000 of 10,000,000 layouts, 1,250,000 per second, 6 s left"
    )
    assert line(1, 2, 1.0, "layouts", 120, False).isascii()
    for width in (10, 40, 79):
        assert len(line(2_500_000, 10_000_000, 2.0, "layouts", width, True)) <= width
    assert line(999, 1000, 9.0, "layouts", 120, True).endswith(", 1 s left")  # it was 9.01 ms
    assert line(0, 0, 0.0, "layouts", 80, True)  # nothing is known yet


def test_what_was_asked_for_stays_in_narrow_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = (*SMALL[:7], "--pp", "2", "--recompute", "none", "--top", "2")
    assert "schedule" not in answer(capsys, *words).split("\n\n")[1]
    table = answer(capsys, *words, "--schedule", "1f1b,gpipe,zb-h1").split("\n\n")[1].splitlines()
    assert "schedule" in table[0] and max(map(len, table)) <= 80


def test_what_is_alike_is_ranked_once_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    def degrees(one: dict[str, Any]) -> tuple[Any, ...]:
        own = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro_batch", "schedule", "precision", "offload")
        return tuple(one["layout"][name] for name in own)

    once = json.loads(answer(capsys, *SMALL, "--json"))
    each = json.loads(answer(capsys, *SMALL, "--json", "--all-ranks", "--top", "150"))
    kept = [degrees(one) for one in once["layouts"][:10]]
    assert len(set(kept)) == len(kept) == 10
    first: dict[tuple[Any, ...], float] = {}
    for one in each["layouts"][:150]:
        first.setdefault(degrees(one), one["seconds"])
    assert [one["seconds"] for one in once["layouts"][:10]][: len(first)] == list(first.values())[:10]
    for one in once["layouts"][:10]:  # those as good as it, counted among all
        near = [1 for other in each["layouts"][:150]
                if degrees(other) == degrees(one) and other["seconds"] <= 1.02 * one["seconds"]]  # fmt: skip
        if 1.02 * one["seconds"] < each["layouts"][149]["seconds"]:
            assert len(near) - 1 == one["alike"]["near"]


def test_dollars_per_token_are_rent_over_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL, "--recompute", "none", "--json")
    found = json.loads(answer(capsys, *words, "--price", "2.50", "--csv", "ranked.csv", "--all", "all.csv"))
    for one in found["layouts"]:
        assert one["usd_per_million_tokens"] == pytest.approx(
            8 * 2.5 / 3600 / one["tokens_per_second"] * 1e6 * campaign_pace()
        )
    with open("ranked.csv", encoding="utf-8") as file:
        told = [float(row["usd_per_million_tokens"]) for row in csv.DictReader(file)]
    assert told == [one["usd_per_million_tokens"] for one in found["layouts"][: found["ranked"]]]
    with open("all.csv", encoding="utf-8") as file:
        assert min(float(row["usd_per_million_tokens"]) for row in csv.DictReader(file)) <= told[0]
    assert "usd_per_million_tokens" not in json.loads(answer(capsys, *words))["layouts"][0]


def test_known_prices_are_taken_from_the_nodes_themselves_where_there_are_any(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("llama-7b", "--cluster", "p5.48xlarge", "--global-batch", "64", "--schedule", "1f1b", "--recompute",
             "none", "--objective", "cost-per-token")  # fmt: skip
    found = json.loads(answer(capsys, *words, "--gpus", "4,8", "--json"))
    assert [(one["gpus"], one["billed_gpus"], one["provider"]) for one in found["prices"]] == [
        (4, 8, "AWS"), (8, 8, "AWS"),
    ]  # fmt: skip
    assert not any("network may differ" in note for note in found["notes"])
    assert found["layouts"][0]["layout"]["gpus"] == 8  # half an instance costs as much as a whole one
    text = answer(capsys, *words, "--gpus", "8", "--price", "spot")
    assert "$/M tokens" in text and "spot from" in text and "old)" in text


def test_parquet_holds_what_csv_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra distsim[parquet] is not installed")
    from distsim.engine.layouts import parquet as search_parquet

    monkeypatch.setattr(search_parquet, "ROWS", 100)
    words = (*SMALL, "--recompute", "none,selective", "--zero", "0,1", "--price", "3", "--json")
    found = json.loads(answer(capsys, *words, "--all", "all.csv"))
    answer(capsys, *words, "--all", "all.parquet")
    file = parquet.ParquetFile("all.parquet")
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert set(sizes[:-1]) == {100} and sum(sizes) == found["evaluated"]
    told = file.read()
    with open("all.csv", encoding="utf-8") as lines:
        every = list(csv.DictReader(lines))
    assert told.column_names == list(every[0])
    assert [{name: str(value) for name, value in row.items()} for row in told.to_pylist()] == every
    units = {field.name: (field.metadata or {}).get(b"unit") for field in told.schema}
    assert units["seconds"] == b"s" and units["peak_memory_bytes"] == b"B" and units["tp"] is None
    assert json.loads(told.schema.metadata[b"distsim.search"])["gpu"] == "h100-sxm"


def test_without_pyarrow_the_extra_is_named_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = answer(capsys, *SMALL, "--all", "all.parquet", code=2)
    assert "pip install 'distsim[parquet]'" in told and not list(tmp_path.iterdir())


@pytest.mark.parametrize("blocks", [0, 1])
def test_an_interrupt_tells_what_there_is_and_writes_no_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blocks: int
) -> None:
    from distsim.engine.layouts.best import Kept

    seen, add = [], Kept.add

    def stopped(kept: Kept, block: Any) -> None:
        if len(seen) == blocks:
            raise KeyboardInterrupt
        seen.append(block)
        add(kept, block)

    monkeypatch.setattr(Kept, "add", stopped)
    assert run(["search", *SMALL, "--all", "all.csv", "--csv", "ranked.csv"]) == 130
    out, err = capsys.readouterr()
    assert "until interrupted" in out and not list(tmp_path.iterdir())
    assert "all.csv is not written" in err and "ranked.csv is not written" in err
    assert ("Best: distsim step" if blocks else "Interrupted before") in out
    seen.clear()
    assert run(["search", *SMALL, "--vary", "gpu.memory", "40GB,80GB", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["interrupted"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_large_file_is_told_before_it_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """A file of gigabytes came without a word, and filled its drive."""
    from distsim.cli import search_files
    from distsim.engine.layouts import parquet

    monkeypatch.setattr(search_files, "LARGE", 1000)
    monkeypatch.setattr(parquet, "ROWS", 4096)
    file = tmp_path / f"all.{kind}"
    assert run(["search", *SMALL, "--all", str(file)]) == 0
    out, err = capsys.readouterr()
    found = re.search(r"will have about ([\d.]+) ([kM])B for ([\d,]+) layouts", err)
    assert found is not None
    size, prefix, layouts = found.groups()
    assert f"{layouts} layouts in" in out and err.count("will have") == 1
    assert float(size) * {"k": 1e3, "M": 1e6}[prefix] == pytest.approx(
        file.stat().st_size, rel=0.1 if kind == "csv" else 1
    )


def test_a_file_that_its_drive_has_no_room_for_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 0, 0))  # type: ignore[attr-defined]
    told = answer(capsys, *SMALL, "--all", "all.csv", code=2)
    assert "its drive has 0 B left" in told and ".parquet" in told and not list(tmp_path.iterdir())


def test_the_command_states_what_was_stated(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--framework", "torchtitan", "--no-dropout", "--compile", "--sync-every-micro-batch", "--seq", "1024")
    text = answer(capsys, *SMALL[:3], "--gpus", "4", "--global-batch", "32", "--recompute", "none", *words)
    command = text.split("Best: distsim ")[1].splitlines()[0].split()
    assert set(words) <= set(command)
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    best = next(line for line in text.splitlines() if line.startswith(" 1 "))
    assert f"{told['peak_memory'] / 2**30:.2f}" in best.split()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_new_file_has_the_rights_of_any_other(mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the mask is not touched meanwhile: other threads write files, too."""
    before = os.umask(mask)
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the mask of the process is set"))
    try:
        with whole(tmp_path / "a.csv") as scratch:
            scratch.write_text("some", encoding="utf-8")
    finally:
        monkeypatch.undo()
        os.umask(before)
    (file,) = tmp_path.iterdir()
    assert file.name == "a.csv" and file.stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_a_program_that_is_ended_leaves_no_scratch_file(number: str, tmp_path: Path) -> None:
    """A time limit left gigabytes of a search's file behind."""
    text = (
        "import os, signal, sys; from pathlib import Path; from distsim.cli.whole_file import whole\n"
        f"signal.signal(signal.{number}, signal.SIG_DFL)\n"  # nohup has children ignore it
        f"with whole(Path({str(tmp_path / 'a.csv')!r})) as scratch:\n"
        f"    scratch.write_text('half'); os.kill(os.getpid(), signal.{number}); scratch.write_text('more')\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + getattr(signal, number) and not done.stderr
    assert not [*tmp_path.iterdir()]


def test_what_is_asked_of_a_search_is_told_back(capsys: pytest.CaptureFixture[str]) -> None:
    """The excluded values were left out of the message, and a rank was compared with itself."""
    asked = (*SMALL, "--tp", "1", "--exclude", "tp=1", "--exclude", "pp=2 zero=1")
    assert "--schedule 1f1b --exclude 'tp=1' --exclude 'pp=2 zero=1'\n" in answer(capsys, *asked, code=2)
    assert "--diff 2,2 names one rank twice" in answer(capsys, *SMALL, "--diff", "2,2", code=2)


def test_a_file_of_all_is_whole_or_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("old", encoding="utf-8")
    assert "7" in answer(capsys, *SMALL, "--tp", "7", "--all", "all.csv", code=2)
    assert [one.name for one in tmp_path.iterdir()] == ["all.csv"]
    assert (tmp_path / "all.csv").read_text(encoding="utf-8") == "old"


def test_offloading_that_the_default_framework_refuses_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "llama-7b", "--gpus", "8", "--offload", "optimizer", "--zero", "0", "--top", "2"]
    assert run(words) == 0
    told = "offloads optimizer states only under ZeRO 1 or more, but --zero is 0; computed anyway"
    assert told in capsys.readouterr().err


def test_an_imbalance_that_no_rank_can_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Layouts with experts apart had vanished, and the search blamed --ep."""
    words = ["search", "mixtral-8x7b", "--gpus", "64", "--gpu", "h100-sxm", "--ep", "8", "--expert-imbalance", "5"]
    assert run(words) == 2
    assert "no rank has more than 4 times the mean\n  give 1 to 4" in capsys.readouterr().err
