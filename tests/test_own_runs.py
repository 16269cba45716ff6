"""A user's own table of runs: times in another unit, settings that its cells leave open, software without a profile."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy
import pytest

from distsim import catalog
from distsim.cli.app import run
from distsim.engine.corrections.correction import Correction
from distsim.engine.corrections.likeness import FARTHEST, bounded
from distsim.engine.corrections.own_runs import compared, kind_of_recipe
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.fold import blocks, setup_at
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.space import groups
from distsim.engine.layouts.variants import FIXED, base_setup
from distsim.engine.runs.profile import as_one_software, assumed_profile
from distsim.engine.runs.time_units import unit_of
from distsim.engine.step import seconds_of, step_of
from distsim.engine.steps.intervals import interval_of
from distsim.engine.validate import validate_file
from distsim.interop.runs import Run, read_runs
from distsim.specs.job import Job

ROW = {
    "source": "ourcluster", "model": "llama-3-8b", "seq_len": "8192", "gpu": "h100-sxm", "micro_batch": "1",
    "zero_stage": "1", "global_batch": "128", "recompute": "none", "framework": "megatron-core", "precision": "bf16",
}  # fmt: skip


def _rows(**cells: str) -> list[dict[str, str]]:
    """Twelve runs on a cluster that takes 1.3 times as long as told, with ``cells`` in place of usual ones."""
    layouts = [(gpus, tp) for gpus in (8, 16, 32, 64) for tp in (1, 2, 4)]
    rows = [
        {**ROW, "id": f"m{place}", "n_gpus": str(gpus), "tp": str(tp), **({} if tp > 1 else {"recompute": "full"})}
        for place, (gpus, tp) in enumerate(layouts)
    ]
    times = [1.3 * (replay(Run(row, 2)).predicted_seconds or 0) for row in rows]
    return [{**row, **cells, "step_time_s": f"{time:.6g}"} for row, time in zip(rows, times, strict=True)]


def _write(path: Path, rows: list[dict[str, str]], seconds_per_unit: float = 1.0) -> Path:
    """A table with its times in a unit."""
    names = list(rows[0])
    told = [{**row, "step_time_s": f"{float(row['step_time_s']) / seconds_per_unit:.6g}"} for row in rows]
    path.write_text("\n".join([",".join(names), *(",".join(row[name] for name in names) for row in told)]))
    return path


def test_times_in_milliseconds_are_told_and_not_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _write(tmp_path / "mine.csv", _rows(), 1e-3)
    assert run(["calibrate", str(runs), "--folder", str(tmp_path / "out")]) == 2
    assert "milliseconds?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run(["validate", str(runs), "--json"]) == 0
    told = capsys.readouterr()
    assert "is 1,300 times the prediction" in told.err and "is it milliseconds?" in told.err
    assert all("milliseconds?" in row["assumed"] for row in json.loads(told.out)["rows"])


def test_an_unlikely_utilisation_is_told_by_its_own_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {**ROW, "id": "m", "n_gpus": "8", "mfu_pct": "0.4"}
    (tmp_path / "mine.csv").write_text("\n".join([",".join(cells), ",".join(cells.values())]))
    assert run(["validate", str(tmp_path / "mine.csv"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert "mfu_pct 0.4 is read as 0.4%, not 40%; by mfu_pct a step takes over 50 times as long" in row["assumed"]


def test_headings_that_may_be_several_columns_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {**ROW, "id": "m", "n_gpus": "8", "Step_time_s (avg)": "12", "tokens/s": "9", "memory (GiB)": "60",
             "batch_size": "2"}  # fmt: skip
    (tmp_path / "mine.csv").write_text("\n".join([",".join(cells), ",".join(cells.values())]))
    assert run(["validate", str(tmp_path / "mine.csv"), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["rows"][0]["measured"]["step_seconds"] == 12
    for heading, columns in (("tokens/s", "tokens_per_s_per_gpu"), ("memory_(gib)", "mem_peak_gb_per_gpu"),
                             ("batch_size", "micro_batch, grad_accum or global_batch")):  # fmt: skip
        assert f"column {heading!r} is not read; did you mean {columns}" in told.err


def test_a_row_in_another_unit_is_left_aside(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *rest = _rows()
    _write(own_folder / "mine.csv", [{**first, "step_time_s": f"{1000 * float(first['step_time_s'])}"}, *rest])
    assert run(["calibrate", "mine.csv", "--alone", "--json"]) == 0
    told = capsys.readouterr()
    answer = json.loads(told.out)
    ((reason, count),) = answer["skipped"].items()
    assert answer["runs"] == 11 and count == 1 and "milliseconds?" in reason
    assert "median row" not in told.err


@pytest.mark.parametrize(("seconds_per_unit", "words"), [(60, "is it minutes?"), (0.1, "of one optimizer step?")])
def test_tables_that_no_source_is_as_far_off_as(
    seconds_per_unit: float, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes, whose rows are all beyond the chip's peak; ten steps in the place of one."""
    assert run(["validate", str(_write(tmp_path / "mine.csv", _rows(), seconds_per_unit))]) == 0
    assert words in capsys.readouterr().err


def test_tables_in_seconds_are_not_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(_write(tmp_path / "mine.csv", _rows()))]) == 0
    assert not capsys.readouterr().err


def test_units_by_what_they_make_of_the_cell() -> None:
    assert unit_of("step_time_s", 1300) == "milliseconds" and unit_of("step_time_s", 1 / 50) == "minutes"
    assert unit_of("samples_per_s", 1 / 50) == "per minute" and unit_of("tokens_per_s_per_gpu", 800) == "in thousands"
    assert not unit_of("step_time_s", 60) and not unit_of("mfu_pct", 1000)


def test_no_shipped_run_is_as_far_off_and_no_correction_farther() -> None:
    waits = next(one for one in read_runs(catalog.path("runs", "published")) if one.id == "nanotron-1505")
    assert 40 < (replay(waits).ratio or 0) < FARTHEST
    assert bounded(0.7) == 0.7 and bounded(-9) == -math.log(FARTHEST)
    assert bounded(numpy.array([0.7, 9])).tolist() == pytest.approx([0.7, math.log(FARTHEST)])


JOB = Job(model="llama-3-8b", gpu="h100-sxm", gpus=32, tp=2, global_batch=128, framework="megatron-core")


def test_a_job_is_as_alike_as_its_row_in_the_table(own_folder: Path) -> None:
    """What the table's bf16 and blank cells mean under the framework is not what the job's defaults are: the same
    cluster ran both, and a note tells. Two sources of the user's are one cluster, and count once."""
    before = step_of(resolve(JOB))
    rows = _rows()
    _write(own_folder / "mine.csv", [{**row, "source": f"cluster{place % 2}"} for place, row in enumerate(rows)])
    assert run(["calibrate", "mine.csv", "--alone", "--json"]) == 0
    after = step_of(resolve(JOB))
    assert after.evidence.word == "alike" and after.evidence.own
    assert after.seconds == pytest.approx(1.3 * before.seconds, rel=0.03)
    assert any("--precision bf16-fp32-grads --zero 1, unlike this job" in note for note in after.notes)
    named = step_of(resolve(JOB.model_copy(update={"zero": 1, "precision": "bf16-fp32-grads"})))
    assert not any("your measured runs" in note for note in named.notes)
    for change in ({}, {"zero": 3}, {"recompute": "full"}, {"model": "gpt2-medium", "seq": 1024}, {"pp": 4}):
        report = step_of(resolve(JOB.model_copy(update=change)))
        elsewhere = report.correction._replace(familiar=False, own=False)
        outside = interval_of(report.work, report.seconds, elsewhere)
        assert report.interval.high / report.interval.low <= outside.high / outside.low, change


def test_all_jobs_on_ones_own_cluster_share_what_its_runs_are_off_by(own_folder: Path) -> None:
    """Also those that no run is like: else these would seem faster than what was measured, and be proposed for it."""
    jobs = [JOB.model_copy(update=change) for change in (
        {"recompute": "full"}, {"recompute": "selective"}, {"recompute": "none"}, {"gpus": 512, "global_batch": 2048},
        {"gpu": "b200-sxm"}, {"model": "mixtral-8x7b", "ep": 8}, {"seq": 65536, "cp": 8},
    )]  # fmt: skip
    before = [seconds_of(resolve(job)) for job in jobs]
    _write(own_folder / "mine.csv", _rows())
    assert run(["calibrate", "mine.csv", "--alone", "--json"]) == 0
    after = [seconds_of(resolve(job)) for job in jobs]
    ratios = [new / old for new, old in zip(after, before, strict=True)]
    assert min(ratios) > 1.05 and max(ratios) < 1.45, ratios
    assert after[0] > after[1] > after[2]  # what is computed again costs time


def test_a_framework_of_ones_own_is_told_what_it_is_timed_like(own_folder: Path) -> None:
    folder = own_folder / "presets" / "frameworks"
    folder.mkdir(parents=True)
    text = catalog.path("frameworks", "torchtitan").read_text()
    (folder / "ours.toml").write_text(
        text.replace('name = "torchtitan"\n', "").replace("aliases = ", "aliases = [] # ")
    )
    (own_folder / "named.toml").write_text(text)
    job = JOB.model_copy(update={"tp": 1, "zero": 3})
    own, named, theirs = (step_of(resolve(job.model_copy(update={"framework": name})))
                          for name in ("ours", "./named.toml", "torchtitan"))  # fmt: skip
    assert any("runs of framework 'ours': timed like torchtitan" in note for note in own.notes)
    assert named.seconds == theirs.seconds == own.seconds
    assert not any("nothing was fitted" in note for one in (named, theirs) for note in one.notes)


def test_a_fit_that_is_written_meanwhile_holds(own_folder: Path) -> None:
    """In one process: what was read before is another's."""
    before = seconds_of(resolve(JOB))
    folder = own_folder / "presets" / "timing"
    folder.mkdir(parents=True)
    fitted = catalog.path("timing", "fitted").read_text()
    (folder / "fitted.toml").write_text(fitted.replace("[general]\nmatmul = ", "[general]\nmatmul = 0.5 # "))
    slower = seconds_of(resolve(JOB))
    assert slower > 1.2 * before
    (folder / "fitted.toml").unlink()
    assert seconds_of(resolve(JOB)) == before


def test_what_nobody_measured_here_stays_as_unsure_as_it_was(own_folder: Path) -> None:
    """Runs of one cluster tell nothing of other software, and few of them little of jobs like them."""
    other = Job(model="llama-7b", gpu="a100-sxm4-80gb", gpus=8, framework="torchtitan")
    before = step_of(resolve(other)).interval
    _write(own_folder / "mine.csv", _rows())
    assert run(["calibrate", "mine.csv", "--alone", "--json"]) == 0
    after = step_of(resolve(other)).interval
    assert after.high / after.low > 0.8 * before.high / before.low and "sources" in after.basis


@pytest.mark.parametrize(("runs", "narrow"), [(1, False), (4, False), (5, True), (20, True)])
def test_intervals_of_few_own_runs(runs: int, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs left out a fifth at a time are off by says nothing of fewer than five."""
    monkeypatch.setattr("distsim.engine.steps.intervals.own_count", lambda framework: runs)
    report = step_of(resolve(JOB))
    for beside in (True, False):  # whether an own run is on the chip and with the recipe
        monkeypatch.setattr("distsim.engine.steps.intervals.own_beside", lambda setup, beside=beside: beside)
        found = interval_of(report.work, report.seconds, Correction(0.0, 0.9, (), familiar=True, own=True))
        assert ("measured runs" in found.basis) is (narrow and beside)


def test_searches_are_corrected_by_own_runs_as_steps_are(own_folder: Path) -> None:
    _write(own_folder / "mine.csv", _rows())
    assert run(["calibrate", "mine.csv", "--alone", "--json"]) == 0
    base, chance = base_setup(JOB, 32), random.Random(3)
    bounds = parse_bounds({"tp": "2", "pp": "1", "recompute": "none,full", "zero": "0,1,2,3", "micro_batch": "1"}, [])
    stages = set()
    for group in groups(base, 32, 128, bounds):
        for block in blocks(group, Prices()):
            places = numpy.argwhere(block.valid).tolist()
            for inside in chance.sample(places, min(12, len(places))):
                layout = block.group.layout_at(tuple(a + b for a, b in zip(block.start, inside, strict=True)))
                setup = resolve(base.job.model_copy(update={**dict.fromkeys(FIXED), **setup_at(base, layout)}))
                stages.add(setup.layout.zero)
                assert float(block.seconds[tuple(inside)]) == pytest.approx(seconds_of(setup), rel=1e-9)
    assert stages == {0, 1, 2, 3}


def test_own_recipes_are_compared_by_what_their_products_cost() -> None:
    assert kind_of_recipe("bf16") == kind_of_recipe("bf16-fp32-grads") == kind_of_recipe("fsdp-bf16")
    assert len({kind_of_recipe(name) for name in ("bf16", "amp-bf16", "fp8", "mxfp8", "fp16", "bf16+lora")}) == 6
    assert kind_of_recipe("gone") == "gone"
    published = ("h100", "bf16-fp32-grads", "none", "1", "flash", "False", "llama-3-8b", "NVIDIA/NeMo")
    assert compared(published) == published
    assert compared((*published[:-1], "own: here")) == compared(
        ("h100", "bf16", "none", "2", *published[4:-1], "own: ")
    )


def test_software_without_a_profile_is_fitted_under_one(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that split their models and rows that do not are of one software, whose profile the answer names."""
    rows = [{**row, "framework": "MyMegatron", "precision": "bf16-o2"} for row in _rows()]
    assert {row["tp"] for row in rows} == {"1", "2", "4"}
    _write(own_folder / "mine.csv", rows)
    assert run(["calibrate", "mine.csv", "--alone", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == 12 and not told["skipped"] and told["own_frameworks"] == {"megatron-lm": 12}
    assert [count for words, count in told["assumed"].items() if "MyMegatron" in words and "bf16-o2" in words] == [12]
    assert step_of(resolve(JOB.model_copy(update={"framework": "megatron-lm"}))).evidence.word == "alike"
    assert run(["validate", "mine.csv", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert all("timed like megatron-lm" in row["assumed"] for row in answer["rows"])
    assert answer["summary"]["median_abs_error"] < 0.05
    assert run(["calibrate", "mine.csv", "--alone", "--folder", "again"]) == 0
    assert "your runs will correct jobs with --framework megatron-lm (12)" in capsys.readouterr().out


def test_what_is_uncertain_of_the_job_is_still_left_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _write(tmp_path / "mine.csv", [{**row, "family": "quux", "model": "mine", "layers": "32", "hidden": "4096",
                                           "heads": "32"} for row in _rows()])  # fmt: skip
    assert run(["calibrate", str(runs), "--alone", "--folder", str(tmp_path / "out")]) == 2
    assert "skipped 12: family 'quux' is not known" in capsys.readouterr().err


def test_only_rows_of_one_source_and_software_share_a_profile() -> None:
    cells = {"source": "a", "framework": "MyMegatron", "gpu": "h100-sxm"}
    others = [{**cells, "tp": "2"}, cells, {**cells, "source": "b"}, {**cells, "framework": "megatron-core"}]
    marked = as_one_software([Run(row, line) for line, row in enumerate(others, 2)])
    assert [assumed_profile(one).rpartition(" ")[2] for one in marked] == ["megatron-lm", "megatron-lm", "fsdp", ""]


def test_own_peaks_are_told_of_jobs_like_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Peaks of a user's runs are no part of the ledger, which stays as it is: a note says what they held."""
    peaks = [1.08 * (replay(Run(row, 2)).predicted_peak or 0) / 2**30 for row in _rows()]
    rows = [{**row, "mem_peak_gb_per_gpu": f"{peak:.4f}"} for row, peak in zip(_rows(), peaks, strict=True)]
    runs = _write(tmp_path / "mine.csv", rows)
    job = ["memory", "llama-3-8b", "--gpu", "h100-sxm", "--gpus", "16", "--tp", "2", "--zero", "1", "--json",
           "--global-batch", "128", "--framework", "megatron-core"]  # fmt: skip
    assert run(job) == 0
    before = json.loads(capsys.readouterr().out)
    monkeypatch.chdir(tmp_path)
    assert run(["calibrate", str(runs), "--alone"]) == 0
    capsys.readouterr()
    assert run(job) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["peak"] == before["peak"]
    assert "your measured runs like this one held 1.0" in told.err and "GiB here" in told.err
    assert run(["memory", "llama-3-8b", "--framework", "fsdp", "--gpus", "32", "--zero", "3"]) == 0
    assert "your measured runs" not in capsys.readouterr().err
    errors = [one.memory_error or 1.0 for one in validate_file(runs).replays]
    assert max(map(abs, errors)) < 0.03
