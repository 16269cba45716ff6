"""A user's runs that measure one setting several times: they say how well it repeats, and nothing of another."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy
import pytest

from distsim.cli.app import run
from distsim.engine.fitting.evidence import restless, solved
from distsim.engine.fitting.runs import calibrate, examples_of
from distsim.engine.fitting.table import Example, by_setting, repeats, setting_counts
from distsim.engine.fitting.write import folds, quantiles
from distsim.engine.jobs.resolve import resolve
from distsim.engine.step import step_of
from distsim.engine.steps.intervals import FEW_MOVED
from distsim.engine.steps.report import Interval
from distsim.engine.validate import validate_file
from distsim.interop.runs import read_runs
from distsim.report.calibrate import lines
from distsim.specs.job import Job

HEADINGS = ("id,source,model,seq_len,gpu,n_gpus,tp,zero_stage,micro_batch,global_batch,precision,recompute,framework,"
            "step_time_s")  # fmt: skip
ROWS = """\
a,ours,llama-3-8b,8192,h100-sxm,8,1,3,1,8,bf16,selective,torchtitan,1.42
b,ours,llama-3-8b,8192,h100-sxm,8,2,1,1,128,bf16,none,megatron-core,13.9
c,ours,llama-3-8b,8192,h100-sxm,8,1,3,1,16,bf16,selective,torchtitan,2.80
d,ours,llama-3-8b,4096,h100-sxm,8,1,3,1,8,bf16,selective,torchtitan,0.72
e,ours,llama-3-8b,8192,h100-sxm,16,1,3,1,16,bf16,selective,torchtitan,1.45
f,ours,llama-3-8b,8192,h100-sxm,8,4,1,1,64,bf16,none,megatron-core,7.9
g,ours,llama-3-8b,8192,h100-sxm,8,1,3,1,32,bf16,full,torchtitan,6.60
h,ours,llama-2-13b,4096,h100-sxm,8,1,3,1,8,bf16,selective,torchtitan,1.17
i,ours,llama-2-13b,4096,h100-sxm,8,2,1,1,64,bf16,none,megatron-core,5.6""".splitlines()
COUNTS = {"torchtitan": 6, "megatron-core": 3}
JOB = Job(model="llama-3-8b", gpu="h100-sxm", gpus=8, zero=3, framework="torchtitan", recompute="selective", seq=8192)
ELSEWHERE = JOB.model_copy(update={"gpus": 16, "seq": 16384})


def _again(row: str, factor: float) -> str:
    """The row measured once more, under another name."""
    name, *cells, seconds = row.split(",")
    return ",".join([f"{name}2", *cells, f"{factor * float(seconds):.4g}"])


def _twice() -> list[str]:
    """Every row and its repeat, which half a per cent of noise tells apart."""
    return [*ROWS, *(_again(row, 1.005 if place % 2 else 0.995) for place, row in enumerate(ROWS))]


def _write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join([HEADINGS, *rows]))
    return path


def _calibrated(rows: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What the command says of the rows."""
    _write(Path("mine.csv"), rows)
    assert run(["calibrate", "mine.csv", "--alone", "--json"]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def _intervals() -> list[Interval]:
    return [step_of(resolve(job)).interval for job in (JOB, ELSEWHERE)]


@pytest.mark.parametrize("rows", [_twice(), [*ROWS, *ROWS]], ids=["measured again", "pasted again"])
def test_repeats_narrow_no_interval(rows: list[str], own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They had made it 2 to 3% wide, of settings that no row has, too: each was predicted from its repeat."""
    once = _calibrated(ROWS, capsys)
    before = _intervals()
    again = _calibrated(rows, capsys)
    assert once["runs"] == 9 and again["runs"] == 18
    assert once["own_frameworks"] == again["own_frameworks"] == COUNTS and again["own_settings"] == 9
    for wide, found in zip(before, _intervals(), strict=True):
        assert found.high / found.low == pytest.approx(wide.high / wide.low, rel=0.02)
        assert found.basis == wide.basis


def test_a_repeat_is_replayed_without_the_others(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _calibrated(ROWS, capsys)
    once = validate_file(Path("mine.csv")).summary.median_abs_error
    _calibrated([*ROWS, *ROWS], capsys)
    twice = validate_file(Path("mine.csv")).summary.median_abs_error
    assert once and twice and twice > 0.7 * once > 0.01
    with open("presets/timing/evidence/torchtitan.csv", newline="") as table:
        assert all(float(row["nearest"]) < 1 for row in csv.DictReader(table))


def _numbered(folder: Path, rows: list[str]) -> list[Example]:
    return by_setting(examples_of(read_runs(_write(folder / "mine.csv", rows)), mine=True)[0])


def test_what_counts_as_one_setting(tmp_path: Path) -> None:
    """The same but for name, source, year and time; a number of GPUs or an optimizer makes another."""
    head = HEADINGS + ",year,optimizer"
    first = ROWS[0]
    rows = [first + ",2025,", first.replace("ours", "theirs") + ",2025,", first + ",2026,", first + ",2025,adam8bit",
            ROWS[4] + ",2025,", ROWS[2].replace("c,", "a,") + ",2025,"]  # fmt: skip
    (tmp_path / "mine.csv").write_text("\n".join([head, *rows]))
    found = by_setting(examples_of(read_runs(tmp_path / "mine.csv"), mine=True)[0])
    assert [one.setting for one in found] == [0, 0, 0, 1, 2, 3]
    assert setting_counts(found) == {"torchtitan": 4}
    assert found[0].stages != found[2].stages  # whose release computes other kernels


def test_repeats_are_left_out_together_and_shipped_runs_by_their_names(tmp_path: Path) -> None:
    found = _numbered(tmp_path, _twice())
    parts = folds(found)
    assert parts[:9] == parts[9:] == folds(found[:9])
    shipped = examples_of(read_runs(tmp_path / "mine.csv"))[0]
    assert all(one.setting is None for one in shipped) and len(shipped) == 18 and not setting_counts(shipped)
    assert (repeats(shipped) == numpy.eye(18, dtype=bool)).all()
    assert (repeats(found) == numpy.tile(numpy.eye(9, dtype=bool), (2, 2))).all()


def test_what_others_say_of_a_run_is_said_without_its_repeats(tmp_path: Path) -> None:
    """By solving again without them, which the inverse of all gives in one go."""
    found = _numbered(tmp_path, [*ROWS[:3], _again(ROWS[0], 1.01)])
    near = 0.5 + 0.5 * repeats(found)
    deviations = numpy.array([0.1, 0.2, -0.1, 0.12])
    _, alone = solved(near, deviations, restless(found), repeats(found))
    said = set()
    for noise in (0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0):
        spread = numpy.array([0.5 / max(one.busy_fraction, 0.05) for one in found[1:3]])
        weights = numpy.linalg.solve(near[1:3, 1:3] + noise * numpy.diag(spread), deviations[1:3])
        said.add(round(float(near[0, 1:3] @ weights), 9))
    assert round(float(alone[0]), 9) in said and alone[0] == pytest.approx(alone[3])


def test_bounds_of_repeats_are_those_of_their_settings() -> None:
    residuals = numpy.array([-0.2, -0.1, 0.0, 0.1, 0.3])
    once = quantiles(residuals, (), 0.5)
    settings = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert quantiles(numpy.tile(residuals, 2), (), 0.5, settings) == once
    assert quantiles(residuals, (), 0.5, range(5)) == once


def test_eight_runs_of_one_setting_are_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _write(tmp_path / "mine.csv", [ROWS[0]] * 8)
    assert run(["calibrate", str(file), "--alone", "--folder", str(tmp_path / "out")]) == 2
    assert "too few usable runs with a step time to fit: 8 of 1 different setting" in capsys.readouterr().err


def test_the_command_says_how_many_more_settings_narrow_intervals(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Per framework: nine runs under two of them had left every interval as wide as it was, and nothing said why."""
    _write(Path("mine.csv"), _twice())
    assert run(["calibrate", "mine.csv", "--alone"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "--framework torchtitan (6), --framework megatron-core (3)" in told
    assert "18 runs of yours measure 9 settings; repeats of one count once" in told
    assert (
        f"from {FEW_MOVED} settings of a framework on: measure 2 more with torchtitan, 5 more with megatron-core"
        in told
    )
    wide = _intervals()[1]
    rows = [f"{name},ours,llama-3-8b,8192,h100-sxm,{gpus},1,3,1,{gpus},bf16,{again},torchtitan,{seconds}"
            for name, gpus, again, seconds in (("k", 4, "selective", 1.41), ("l", 16, "full", 1.75))]  # fmt: skip
    answer = _calibrated([*ROWS, *rows], capsys)
    assert answer["still_to_measure"] == {"megatron-core": 5}
    narrow = _intervals()[1]
    assert narrow.high / narrow.low < 0.75 * wide.high / wide.low


def test_rows_of_others_are_not_told_as_the_users(tmp_path: Path) -> None:
    """What cannot be read of the shipped table is nothing that a user can mend."""
    theirs = [row.replace("ours", "theirs" if row < "e" else "") for row in ROWS]
    shipped = _write(tmp_path / "shipped.csv", [*theirs, "x,theirs,llama-3-8b,8192,h100-sxm,eight" + "," * 8])
    mine = _write(tmp_path / "mine.csv", [*ROWS, _again(ROWS[0], 1).replace("1.42", "soon")])
    found = calibrate([shipped, mine], tmp_path / "out")
    assert [words for words in found.odd if "line" in words] == [
        "line 11: step_time_s 'soon' is not a number above 0: treated as blank"
    ]
    assert sum(found.own_skipped.values()) == 1 and sum(found.skipped.values()) == 2
    told = "\n".join(lines(found, "out"))
    assert "not fitted to: 1 of your rows\n  1  step_time_s" in told
    assert "not fitted to: 1 of the shipped runs" in told
    assert "3 sources: ours 9, rows without a source 5, theirs 4" in told
