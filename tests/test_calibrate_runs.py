"""Fitting to measured runs: recovers what made the data, is reproducible, and refuses what it cannot do."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from distsim import catalog
from distsim.cli.app import run
from distsim.engine.corrections.correction import Publication
from distsim.engine.evidence import replay
from distsim.engine.fitting import fit as calibrate
from distsim.engine.fitting.moved import moved_groups
from distsim.engine.fitting.runs import FIRST_RATIO, _unread, examples_of
from distsim.engine.fitting.table import Example
from distsim.engine.fitting.write import quantiles, score, spread
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.step import step_of, timed
from distsim.engine.steps.intervals import FEW_SOURCES, moved_name, residuals_of
from distsim.engine.validate import unseen_runs, validate_file
from distsim.errors import DistsimError
from distsim.interop.runs import Run, read_runs
from distsim.specs.job import Job

PUBLISHED = catalog.path("runs", "published")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def some() -> list[Example]:
    runs = [one for one in read_runs(PUBLISHED) if one.source in ("NVIDIA/NeMo", "mlcommons/training_results_v5.0")]
    return examples_of(runs)[0]


def test_fit_recovers_what_made_the_data(some: list[Example]) -> None:
    """Step times made by the model with slower products are predicted after the fit, and were not before; where each
    run is of a source of its own, since two sources alone may both be odd."""
    table = calibrate.Table.of(some)
    factors = calibrate.Factors(some)
    start = calibrate.Fit(factors, numpy.zeros(len(factors.keys)))
    timing = factors.timing(start.vector, factors.index(some), some)
    timing["matmul"] = timing["matmul"] * 0.8
    timing["matmul_narrow"] = timing["matmul_narrow"] * 1.125
    times = numpy.exp(table.log_predicted(timing))
    made = [replace(e, seconds=float(s), source=e.id) for e, s in zip(some, times, strict=True)]
    table = calibrate.Table.of(made)
    before, after = score(made, start.residuals(table)[0]), score(made, calibrate.fit(table).residuals(table)[0])
    assert before.median > 0.05
    assert after.median < 0.02


def test_an_odd_source_bends_no_framework(some: list[Example]) -> None:
    """Two runs that take three times as long as all others move the numbers of their framework by a few per cent."""
    odd = [replace(e, seconds=3 * e.seconds, source="odd") for e in some if e.framework == "nemo"][:2]
    names = {e.id for e in odd}
    rest = [e for e in some if e.id not in names]
    without, with_odd = (calibrate.fit(calibrate.Table.of(examples)) for examples in (rest, [*rest, *odd]))
    table = calibrate.Table.of(rest)
    moved = numpy.abs(with_odd.residuals(table)[0] - without.residuals(table)[0])
    assert numpy.median(moved) < 0.025
    assert moved.max() < 0.08


def _subset(tmp_path: Path, count: int) -> Path:
    with open(PUBLISHED, newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = [row for row in rows if row["source"].startswith(("NVIDIA/NeMo", "calculon"))][:count]
    target = tmp_path / "mine.csv"
    with open(target, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(chosen)
    return target


def test_calibrate_is_reproducible_and_says_how_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _subset(tmp_path, 20)
    for name in ("one", "two"):
        assert run(["calibrate", str(runs), "--alone", "--folder", str(tmp_path / name), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.split("}\n{")[0] + "}")
    assert answer["scores"]["after: fitted"]["median"] < answer["scores"]["before: priors only"]["median"]
    first = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert {str(path) for path in first} >= {"fitted.toml", "residuals.toml", "evidence/nemo.csv"}
    for path in first:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()


def test_too_few_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", str(_subset(tmp_path, 3)), "--alone", "--folder", str(tmp_path / "out")]) == 2
    assert "too few" in capsys.readouterr().err
    assert run(["calibrate", "--alone"]) == 2


def test_spread_is_conformal() -> None:
    residuals = numpy.linspace(-1, 1, 999)
    over, under = spread(residuals)
    assert over == pytest.approx(0.9, abs=0.01) and under == pytest.approx(0.9, abs=0.01)
    assert spread(numpy.zeros(20))[0] > 0


def test_half_of_runs_lie_between_their_quartiles() -> None:
    """Predictions a tenth too fast on the whole: both quartiles may lie on one side."""
    residuals = numpy.linspace(-1, 1, 999) - 0.6
    over, under = quantiles(residuals, (), 0.5)
    assert (over, under) == pytest.approx((-0.1, 1.1), abs=0.01)
    assert ((residuals <= over) & (-residuals <= under)).mean() == pytest.approx(0.5, abs=0.01)


def test_half_lies_inside_of_the_interval() -> None:
    interval = timed(resolve(Job.read({"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 8, "zero": 3})))[1]
    assert interval.half is not None
    assert interval.low <= interval.half[0] < interval.half[1] <= interval.high


def test_sources_weigh_alike_in_the_spread_of_unknown_ones() -> None:
    """A thousand runs of one exact source do not narrow what thirty others say."""
    many = numpy.linspace(-0.3, 0.3, 31)
    sources = [str(one) for one in many]
    alone = spread(many, sources)
    joined = spread(numpy.append(many, numpy.zeros(1000)), [*sources, *["exact"] * 1000])
    assert joined == pytest.approx(alone, abs=0.021)
    assert spread(numpy.append(many, numpy.zeros(1000)))[0] < 0.05


def test_jobs_of_users_are_as_unsure_as_runs_of_unknown_sources() -> None:
    job = {"model": "llama-2-7b", "gpu": "a100-sxm4-80gb", "gpus": 8, "zero": 3, "framework": "llm-foundry"}
    setup = resolve(Job.read(job))
    known, unknown = (timed(setup, Publication(source=name))[1] for name in ("mosaicml/llm-foundry", "nobody"))
    assert known.low > unknown.low and known.high < unknown.high
    assert "sources, each predicted from the others" in unknown.basis and "(llm-foundry; " in known.basis


def test_unread_runs_are_as_far_off_as_before_they_were_read() -> None:
    """Physics mended with a run in view knows it better than a user's job: the ratio of before stands in the table."""
    runs = [run for run in read_runs(unseen_runs()) if run.cells[FIRST_RATIO]]
    read = [(example, 0.0) for example in examples_of(runs[:5])[0]]
    ratios = {run.text("id"): run.positive(FIRST_RATIO) or 0.0 for run in runs}
    assert read and _unread(read) == [(example, math.log(ratios[example.id])) for example, _ in read]
    strange = replace(read[0][0], id="nobody's")
    assert _unread([(strange, 0.25)]) == [(strange, 0.25)]
    assert len(runs) > 0.9 * len(list(csv.DictReader(unseen_runs().open())))


def test_families_of_frameworks_and_chips_nobody_measured_have_intervals_of_their_own() -> None:
    job = {"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 8, "framework": "megatron-core"}
    ours = [timed(resolve(Job.read({**job, **more})))[1] for more in ({}, {"framework": "fsdp"}, {"gpu": "gaudi3"})]
    assert "(GPU-bound steps under megatron)" in ours[0].basis and "(GPU-bound steps under torch)" in ours[1].basis
    assert "(GPU-bound steps)" in ours[2].basis


def test_a_run_never_vouches_for_itself() -> None:
    """A shipped run is predicted from the others: doubling what was measured does not move its prediction."""
    one = next(one for one in read_runs(PUBLISHED) if one.id == "titan-0072")
    here, other = replay(one), replay(Run({**one.cells, "id": "mine"}, one.line))
    twice = {
        name: str(factor * float(one.cells[name]))
        for name, factor in (("step_time_s", 2), ("tokens_per_s_per_gpu", 0.5))
    }
    assert replay(Run({**one.cells, **twice}, one.line)).predicted_seconds == here.predicted_seconds
    assert abs(other.error or 0) < abs(here.error or 0)


def test_every_run_is_found_in_its_table_and_left_out() -> None:
    """A table that writes fewer digits than a job has would let a run correct itself."""
    from distsim.engine.corrections.correction import correction_of
    from distsim.engine.corrections.documents import published_as
    from distsim.engine.corrections.known_runs import evidence
    from distsim.engine.runs.setup import setup_of
    from distsim.engine.runs.years import run_year

    wanted = {"nemo-0030", "mbridge-0097", "mbridge-0242", "dgxc-0178", "vtrain-0001", "foundry-0023", "titan-0057"}
    seen = {row.id: row for row in read_runs(PUBLISHED) if row.id in wanted}
    assert set(seen) == wanted
    for row in seen.values():
        setup = setup_of(row)
        known = next(one for one in evidence(kin_of(setup.framework)) if one.run == row.id)
        assert correction_of(setup, published_as(row, run_year(row))).logarithm == known.alone, row.id


def test_rows_that_contradict_themselves_are_skipped() -> None:
    one = next(one for one in read_runs(PUBLISHED) if one.id == "nemo-0030")
    fast = Run({**one.cells, "step_time_s": "0.001", "tokens_per_s_per_gpu": ""}, one.line)
    assert replay(fast).reason.startswith("step_time_s 0.001 makes 7,360,192 TFLOP/s of each GPU")


def test_validate_tells_step_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _subset(tmp_path, 30)
    assert run(["validate", str(runs), "--json", "--by", "gpu"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "distsim.validate/1"
    timed = [row for row in answer["rows"] if row["status"] == "ok" and row["measured"]["step_seconds"]]
    assert timed
    for row in timed:
        assert row["error"] == pytest.approx(row["predicted"]["step_seconds"] / row["measured"]["step_seconds"] - 1)
        assert row["interval"]["low"] < row["predicted"]["step_seconds"] < row["interval"]["high"]
    assert all(row["reason"] for row in answer["rows"] if row["status"] == "skipped")
    assert 0 <= answer["summary"]["median_abs_error"] < 0.15 and answer["by"]
    assert run(["validate", str(runs)]) == 0
    told = capsys.readouterr().out
    assert "step time, predicted against measured" in told and "worst step times" in told
    assert run(["validate", str(runs), "--median", "0.0001"]) == 1


def test_a_preset_that_says_the_same_keeps_its_day() -> None:
    from distsim import catalog
    from distsim.engine.fitting.write import as_shipped

    shipped = catalog.path("timing", "fitted").read_text(encoding="utf-8")
    later = shipped.replace("checked = 2026", "checked = 2031")
    assert as_shipped("fitted", later) == shipped
    other = later.replace("matmul = 0.", "matmul = 1.", 1)
    assert as_shipped("fitted", other) == other


def _own_runs(path: Path, slower: float, ids: range) -> list[tuple[Job, float]]:
    """A table of runs that take so many times as long as predicted, as a user may have them; and the jobs."""
    jobs, lines = [], ["id,source,model,seq_len,gpu,n_gpus,tp,zero_stage,micro_batch,global_batch,recompute,framework,"
                       "step_time_s"]  # fmt: skip
    for number in ids:
        gpus, tp, seq, micro = (
            (8, 16, 32)[number % 3],
            1 + number % 2,
            (2048, 4096)[number // 2 % 2],
            1 + number // 4 % 2,
        )
        batch = gpus // tp * micro * (2, 4, 8)[number // 8 % 3]
        model = ("llama-3-8b", "llama-2-13b")[number // 24 % 2]
        job = Job(model=model, gpu="h100-sxm", gpus=gpus, tp=tp, zero=3, seq=seq, micro_batch=micro,
                  global_batch=batch, recompute="full", framework="torchtitan")  # fmt: skip
        seconds = slower * step_of(resolve(job)).seconds
        jobs.append((job, seconds))
        lines.append(
            f"m{number},ourcluster,{model},{seq},h100-sxm,{gpus},{tp},3,{micro},{batch},full,torchtitan,{seconds}"
        )
    path.write_text("\n".join(lines))
    return jobs


def test_a_users_own_runs_correct_the_users_jobs(own_folder: Path) -> None:
    """A cluster that takes 1.3 times as long as told: what is known of 32 runs holds for 12 others and for the steps of
    jobs, which had stayed 16 % too fast; jobs of other paces and frameworks have an interval, too."""
    _own_runs(own_folder / "runs.csv", 1.3, range(32))
    held_out = _own_runs(own_folder / "others.csv", 1.3, range(32, 44))
    assert run(["calibrate", "runs.csv", "--alone", "--json"]) == 0
    errors, held = [], 0
    for job, seconds in held_out:
        report = step_of(resolve(job))
        errors.append(abs(report.seconds / seconds - 1))
        held += report.interval.low <= seconds <= report.interval.high
    assert numpy.median(errors) < 0.03 and max(errors) < 0.08 and held >= 10
    assert (
        run(["step", "llama-7b", "--gpu", "h100-sxm", "--gpus", "1024", "--framework", "deepspeed", "--zero", "3"]) == 0
    )


def test_own_runs_narrow_the_intervals_of_layouts_that_none_has(own_folder: Path) -> None:
    """Twelve runs with full recomputation on 8 to 32 GPUs had left every other layout as wide as without them."""
    base = {"model": "llama-3-8b", "gpu": "h100-sxm", "zero": 3, "seq": 4096, "framework": "torchtitan"}
    others = [{"gpus": 64, "recompute": "full"}, {"gpus": 4, "recompute": "full"}, {"gpus": 8}]
    setups = [resolve(Job(**base, **more)) for more in others]
    before = [step_of(setup).interval for setup in setups]
    _own_runs(own_folder / "runs.csv", 1.3, range(12))
    assert run(["calibrate", "runs.csv", "--alone", "--json"]) == 0
    for setup, wide in zip(setups, before, strict=True):
        told = step_of(setup).interval
        assert told.high / told.low < 0.85 * wide.high / wide.low
        assert "each predicted from runs of its source that differ" in told.basis
    for far in ({"gpus": 256, "recompute": "full"}, {"gpu": "b200-sxm", "gpus": 8}, {"gpus": 8, "precision": "fp8"}):
        assert "that differ" not in step_of(resolve(Job(**{**base, **far}))).interval.basis


def test_runs_whose_setting_no_other_has_are_predicted_from_their_source(tmp_path: Path) -> None:
    """A source that is 1.3 times as slow throughout is known everywhere, one that is so on 32 GPUs alone is not."""
    _own_runs(tmp_path / "runs.csv", 1.3, range(24))
    worst = []
    for extra in (1.0, 1.5):
        runs = [Run({**one.cells, "step_time_s": str(float(one.cells["step_time_s"]) * extra)}, one.line)
                if one.count("n_gpus") == 32 else one for one in read_runs(tmp_path / "runs.csv")]  # fmt: skip
        found = moved_groups(examples_of(runs, mine=True)[0])
        assert set(found) <= {moved_name("near"), moved_name("unlike")}
        worst.append(max(abs(residual) for pairs in found.values() for _, residual in pairs))
    assert worst[0] < 0.15 and 0.3 < worst[1] < 0.5
    assert moved_groups(examples_of(runs[:12], mine=True)[0]) == {}


def test_shipped_intervals_of_settings_that_no_other_run_has() -> None:
    """In their table, from sources that nothing is fitted to; and in those of a user's."""
    near, unlike = (residuals_of((moved_name(word),))["groups"][moved_name(word)] for word in ("similar", "unlike"))
    for group in (near, unlike):
        assert group["sources"] >= FEW_SOURCES and 0.1 < group["over"] < 0.5 and 0.2 < group["under"] < 0.7
    assert near["over"] + near["under"] < unlike["over"] + unlike["under"]


@pytest.mark.parametrize("cells", [{"layers": "1e7"}, {"ffn_hidden": "1e300"}, {"n_gpus": "1e12"}])
def test_impossible_sizes_are_skipped_and_lose_no_other_row(tmp_path: Path, cells: dict[str, str]) -> None:
    row = {"id": "a", "model": "x", "family": "mpt", "layers": "40", "hidden": "5120", "ffn_hidden": "",
           "seq_len": "2048", "gpu": "a100-sxm4-80gb", "n_gpus": "8", "framework": "llm-foundry", "micro_batch": "3",
           "step_time_s": "3"}  # fmt: skip
    odd = {**row, **cells}
    table = tmp_path / "runs.csv"
    table.write_text("\n".join([",".join(row), ",".join(odd.values()), ",".join({**row, "id": "b"}.values())]))
    first, second = validate_file(table).replays
    assert "typo" in first.reason and second.reason == "" and second.predicted_seconds


@pytest.mark.parametrize("text", ["", "x = \n", "name = 'residuals'\n"])
@pytest.mark.parametrize("name", ["fitted", "residuals"])
def test_damaged_presets_are_named(own_folder: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = own_folder / "presets" / "timing"
    folder.mkdir(parents=True)
    (folder / f"{name}.toml").write_text(text)
    assert run(["step", "llama-7b", "--gpus", "8"]) == 2
    assert f"presets/timing/{name}.toml" in capsys.readouterr().err


def test_options_of_network_profiles_do_not_go_with_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "mine.csv", "--ranks", "4"]) == 2
    assert "--ranks is for --nccl-tests" in capsys.readouterr().err


def test_a_quote_that_is_not_closed_is_told(tmp_path: Path) -> None:
    """It makes one cell of all rows behind it."""
    table = tmp_path / "runs.csv"
    table.write_text('id,model,gpu\na,llama-7b,h100-sxm\n"b,llama-7b,h100-sxm\nc,llama-7b,h100-sxm\n')
    with pytest.raises(DistsimError, match="a quote is not closed") as told:
        read_runs(table)
    assert str(told.value.where).endswith("runs.csv:3")
    table.write_text('id,model,gpu,notes\na,llama-7b,h100-sxm,"14"" tall\nand wide"\nb,llama-7b,h100-sxm,a 5" disk\n')
    assert len(read_runs(table)) == 2
