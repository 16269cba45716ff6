"""What runs say of further ones of their source, times of such as nothing is fitted to and peaks: nothing of jobs."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest

from distsim.engine import validate
from distsim.engine.corrections import correction
from distsim.engine.corrections.correction import Publication, correction_of, peak_correction_of
from distsim.engine.corrections.documents import document_of, has_company, published_as
from distsim.engine.corrections.known_runs import evidence, others
from distsim.engine.evidence import replay
from distsim.engine.fitting.others import as_strange, examples_of_others, strange_replays
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.memory import peak_of_run
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.years import run_year
from distsim.engine.step import seconds_of, step_of, timed
from distsim.interop.runs import Run, read_runs
from distsim.specs.job import Job

UNSEEN = validate.unseen_runs()
RUNS = {run.id: run for run in read_runs(UNSEEN)}


def _with_company(sources: int = 12) -> list[Run]:
    """Every eighth run of the sources of which the most were measured."""
    count: dict[str, int] = {}
    for run in RUNS.values():
        count[run.source] = count.get(run.source, 0) + 1
    largest = sorted(count, key=lambda source: -count[source])[:sources]
    return [run for run in RUNS.values() if run.source in largest][::8]


def test_other_runs_of_a_source_say_what_to_expect_of_one() -> None:
    told, alone = [], []
    for run in _with_company():
        known, strange = replay(run), replay(run, strange=True)
        if known.error is not None and strange.error is not None:
            told.append(abs(known.error))
            alone.append(abs(strange.error))
    assert len(told) > 50
    assert statistics.median(told) < 0.7 * statistics.median(alone)


def test_each_is_found_in_its_table_and_left_out() -> None:
    """A table that writes fewer digits than a job has would let a run correct itself."""
    found = 0
    for run in _with_company()[::3]:
        one = replay(run, strange=True)
        if one.error is None or one.setup is None:
            continue
        rows = {known.run: known for known in others(kin_of(one.setup.framework))}
        said = correction_of(one.setup, published_as(run, run_year(run)))
        if run.id in rows and not said.fitted:
            found += 1
            assert said.logarithm == pytest.approx(rows[run.id].alone), run.id
    assert found > 10


def test_twice_as_long_a_run_does_not_move_its_own_prediction() -> None:
    run = _with_company()[0]
    slow = Run({**run.cells, "step_time_s": str(2 * float(run.cells["step_time_s"] or 1))}, run.line)
    assert replay(slow).predicted_seconds == replay(run).predicted_seconds


@pytest.mark.parametrize("framework", ["fsdp", "huggingface", "megatron-core", "torchtitan"])
def test_jobs_hear_nothing_of_them(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters and settings of others are none of a user's: their runs are named, and change no time."""
    setup = resolve(Job.read({"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 64, "framework": framework}))
    with_them = step_of(setup)
    near = with_them.evidence.nearest
    assert seconds_of(setup) == with_them.seconds
    monkeypatch.setattr(correction, "others", lambda kin: ())
    without = step_of(setup)
    assert without.seconds == with_them.seconds and without.interval == with_them.interval
    assert near >= without.evidence.nearest


def test_the_nearest_of_all_runs_is_named() -> None:
    setup = resolve(Job.read({"model": "llama-2-7b", "gpu": "a100-sxm4-80gb", "gpus": 8, "framework": "fsdp"}))
    named = step_of(setup).evidence.runs
    assert named and set(named) <= set(RUNS)


def test_a_step_looks_for_the_nearest_of_all_runs_when_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes hundreds of steps, and reads of no run."""
    looked: list[str] = []
    monkeypatch.setattr(correction, "others", lambda kin: looked.append(kin.name) or ())
    report = step_of(resolve(Job.read({"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 64})))
    assert not looked
    assert report.evidence.nearest == report.correction.nearest and looked


def test_another_document_of_a_source_is_known_less_well() -> None:
    """Runs of the same people correct it, and its interval is that of a source that nobody knows."""
    run = next(run for run in _with_company() if not replay(run).reason and document_of(run) != run.source)
    elsewhere = Run({**run.cells, "id": "new", "source": f"{run.source} elsewhere/page.md"}, run.line)
    here = Run({**run.cells, "id": "new"}, run.line)
    setup = setup_of(run)
    year = run_year(run)
    known, other = (timed(setup, published_as(one, year)) for one in (here, elsewhere))
    stranger = timed(setup, Publication("new", year, "nobody", company=False))
    assert "runs of sources like it" in known[1].basis
    assert "each predicted from the others" in other[1].basis
    assert other[0] != stranger[0]


def test_the_shipped_table_is_replayed_as_of_strangers_and_a_copy_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What --unseen tells is how far off a source is that nobody knows."""
    some = _with_company()[:8]
    copy = tmp_path / "copy.csv"
    with copy.open("w", newline="") as table:
        writer = csv.DictWriter(table, list(some[0].cells))
        writer.writeheader()
        writer.writerows(run.cells for run in some)
    told = [one.predicted_seconds for one in validate.validate_file(copy).replays]
    monkeypatch.setattr(validate, "unseen_runs", lambda: copy)
    strange = [one.predicted_seconds for one in validate.validate_file(copy).replays]
    assert strange == [replay(run, strange=True).predicted_seconds for run in some]
    assert told == [replay(run).predicted_seconds for run in some] and told != strange


def test_what_is_less_than_a_step_corrects_none() -> None:
    run = next(run for run in _with_company() if not replay(run).reason)
    parts = Run({**run.cells, "id": "parts", "notes": "forward and backward alone, without an optimizer step"}, 2)
    assert [one.id for one in examples_of_others(strange_replays([run, parts]))] == [run.id]


def test_other_peaks_of_a_source_say_what_to_expect_of_one() -> None:
    some = [run for run in _with_company(40) if run.text("mem_peak_gb_per_gpu")]
    pairs = [(replay(run), replay(run, strange=True)) for run in some]
    errors = [(a.memory_error, b.memory_error) for a, b in pairs]
    told, alone = zip(*[(abs(a), abs(b)) for a, b in errors if a is not None and b is not None], strict=True)
    assert len(told) > 50
    assert statistics.median(told) < 0.8 * statistics.median(alone)


def test_a_run_does_not_vouch_for_its_own_peak() -> None:
    run = next(run for run in _with_company() if replay(run).memory_error is not None)
    more = Run({**run.cells, "mem_peak_gb_per_gpu": str(1.1 * float(run.cells["mem_peak_gb_per_gpu"]))}, run.line)
    assert replay(more).predicted_peak == replay(run).predicted_peak


def test_peaks_of_strangers_are_the_ledgers() -> None:
    """No other run moves them, and none moves those of jobs."""
    run = next(run for run in _with_company() if replay(run).memory_error is not None)
    setup = setup_of(run)
    assert peak_correction_of(setup).logarithm == 0
    assert replay(run, strange=True).predicted_peak == peak_of_run(run, setup, run_year(run))


def test_replays_tell_what_they_are_without_other_runs() -> None:
    """Of those in company what others say of peaks is undone, and the rest are replayed."""
    runs = read_runs(validate.shipped_runs())
    company = [run for run in runs if has_company(run) and run.text("mem_peak_gb_per_gpu")][::150]
    some = [*company, *(run for run in runs if not has_company(run))]
    replays = [replay(run) for run in some]
    told, strange = as_strange(replays, some), strange_replays(some)
    assert [one.predicted_peak for one in told] == [one.predicted_peak for one in strange]
    assert [one.predicted_seconds for one in told] == [one.predicted_seconds for one in strange]
    assert sum(a.predicted_peak != b.predicted_peak for a, b in zip(told, replays, strict=True)) > 2


def test_fitted_runs_are_asked_first() -> None:
    """Where a document has runs that numbers are fitted to, these correct it, as before."""
    run = next(read for read in read_runs(validate.shipped_runs()) if read.id == "nemo-0030")
    setup, year = setup_of(run), run_year(run)
    said = correction_of(setup, published_as(run, year))
    known = next(one for one in evidence(kin_of(setup.framework)) if one.run == run.id)
    assert said.fitted and said.logarithm == known.alone
