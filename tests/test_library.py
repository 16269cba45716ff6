"""distsim in a notebook: names are complete, a model may come first, reports show in a line, mistakes are told."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from shell import piped

import distsim
from distsim.engine.layouts.search import search as search_for
from distsim.engine.planner import _checked, request_of
from distsim.engine.plans.options import DEFAULTS
from distsim.engine.plans.request import Request
from distsim.engine.search import request_of as made
from distsim.engine.validate import Validation


def test_public_names_are_complete_and_documented() -> None:
    assert set(distsim.__all__) <= set(dir(distsim))
    for name in distsim.__all__:
        assert inspect.getdoc(getattr(distsim, name)), name


@pytest.mark.parametrize("ask", [distsim.memory, distsim.comm, distsim.step])
def test_the_model_may_come_first(ask: Any) -> None:
    options = {"gpu": "h100-sxm", "gpus": 8, "zero": 2}
    whole = ask(distsim.Job(model="llama-7b", **options)).to_dict()
    spec = distsim.load_model("llama-7b").spec
    assert whole == ask("llama-7b", **options).to_dict() == ask(spec, **options).to_dict()
    assert whole == ask(model="llama-7b", **options).to_dict()


def test_a_path_is_a_model(tmp_path: Path) -> None:
    config = '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}'
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    assert distsim.memory(tmp_path, gpus=1, seq=128).peak > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ({"model": "llama-7b"}, {}, "dict is not a Job"),
        (42, {}, "int is not a Job"),
        ("llama-7b", {"model": "gpt2"}, "the model is given twice"),
        (distsim.Job(model="gpt2"), {"gpus": 8}, "a Job and gpus are given"),
        ("llama-7b", {"gpuss": 8}, "unknown field 'gpuss'"),
        ("llama-7b", {"gpus": "many"}, "gpus .many. is not a whole number"),
        ("llama-7b", {"compile": "maybe"}, "compile .maybe. is not true or false"),
        ("llama-7b", {"gpus": numpy.bool_(True)}, "gpus takes a value, not true"),
        ("llama-7b", {"gpus": b"8"}, "gpus b'8' is neither text nor a number"),
    ],
)
def test_what_is_no_job_is_told(given: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError, match=told):
        distsim.step(given, **options)


def test_reports_show_in_a_line() -> None:
    job = distsim.Job(model="llama-7b", gpu="h100-sxm", gpus=8, zero=2)
    for report in (distsim.memory(job), distsim.comm(job), distsim.step(job), distsim.load_model("llama-7b")):
        assert "llama-7b" in repr(report) and len(repr(report)) < 120
    assert "fits=True" in repr(distsim.step(job))


def test_a_job_shows_what_it_states_and_advice_what_it_changes() -> None:
    """Sixty options that nobody stated hid the three that were, and changes were addresses in memory."""
    job = distsim.Job(model="llama-7b", gpus=8, tp=None, zero=2)
    assert repr(job) == "Job(model='llama-7b', gpus=8, zero=2)"
    assert eval(repr(job), {"Job": distsim.Job}) == job
    shown = repr(distsim.advise(distsim.memory("llama-3-8b", gpu="h100-sxm", gpus=8))[0])
    assert "Change(ZeRO" in shown and " object at " not in shown


def test_sizes_of_collectives_may_be_texts() -> None:
    plain = distsim.collective("all_reduce", gpus=16, bytes=10**9)
    assert distsim.collective("all_reduce", gpus=16, bytes="1 GB").seconds == plain.seconds
    for wrong in ("lots", "3 s", -1, float("nan")):
        with pytest.raises(distsim.DistsimError, match="bytes"):
            distsim.collective("all_reduce", gpus=16, bytes=wrong)


def test_advice_is_for_steps_and_memory() -> None:
    found = distsim.advise(distsim.memory("llama-3-8b", gpu="h100-sxm", gpus=8))
    assert found[0].flags == "--zero 2" and len(found) > 1
    assert distsim.advise(distsim.memory("llama-7b", gpus=8, zero=2)) == []
    quick = distsim.step("llama-3-8b", gpu="h100-sxm", gpus=8, zero=3, framework="torchtitan", seq=4096)
    assert distsim.advise(quick)[0].gain > 0
    with pytest.raises(distsim.DistsimError, match="no advice on a TrafficReport"):
        distsim.advise(distsim.comm("llama-7b", gpus=8))


def test_data_of_a_report_are_the_callers_own() -> None:
    report = distsim.step("llama-7b", gpus=8, zero=2)
    seconds, data = report.seconds, report.to_dict()
    data["breakdown"].clear()
    assert report.seconds == seconds


def test_numbers_longer_than_floats_are_refused() -> None:
    with pytest.raises(distsim.DistsimError, match="not a finite number"):
        distsim.collective("all_reduce", gpus=8, bytes=10**400)


SEARCH = {"gpu": "h100-sxm", "gpus": 8, "global_batch": 64}


def test_a_search_answers_as_the_command_does() -> None:
    asked: dict[str, Any] = {"tp": [1, 2, 4], "pp": 1, "zero": "0..1", "sequence_parallel": True}
    found = distsim.search("llama-7b", **SEARCH, **asked, within=60, top=3)
    words = "search llama-7b --gpu h100-sxm --gpus 8 --global-batch 64 --tp 1,2,4 --pp 1 --zero 0..1"
    more = "--sequence-parallel on --within 60s --top 3 --json"
    told = json.loads(piped(*words.split(), *more.split()).stdout)
    ours = json.loads(json.dumps(found.to_dict()))
    assert len(found.best) == 3
    assert {**ours, "seconds": 0} == {**{name: told[name] for name in ours}, "seconds": 0}
    assert repr(found).startswith("SearchReport(") and "llama-7b on 8 x h100-sxm" in repr(found)


def test_what_a_job_states_bounds_its_search() -> None:
    job = distsim.Job(model="llama-7b", **SEARCH, tp=2, zero=1)
    assert {one.options["tp"] for one in distsim.search(job).best} == {2}
    assert {one.options["tp"] for one in distsim.search(job, tp=4).best} == {4}


def test_nothing_that_fits_is_an_answer() -> None:
    found = distsim.search("llama-2-70b", gpu="h100-sxm", gpus=8, zero=0, global_batch=64)
    assert not found.best and found.nearest


def test_a_plan_answers_as_the_command_does() -> None:
    made = distsim.plan(
        "llama-2-7b", "100B", gpu=["h100-sxm", "a100"], gpus=[64], provider="aws", deadline="30d", budget=1e6,
        tp=[1, 2], stragglers=0.01,
    )  # fmt: skip
    words = "plan llama-2-7b --tokens 100B --gpu h100-sxm,a100 --gpus 64 --provider aws --deadline 30d --budget 1M"
    told = json.loads(piped(*words.split(), "--tp", "1,2", "--stragglers", "1%", "--json").stdout)
    told.pop("campaigns")
    saving = made.chosen and made.saving(made.chosen)
    assert json.loads(json.dumps(saving and saving.to_dict())) == told.pop("saving")  # on request, as campaigns are
    assert json.loads(json.dumps(made.to_dict())) == told
    assert made.cheapest is not None and repr(made.cheapest).startswith("Option(64 x ")


def test_a_bare_number_of_days_is_no_deadline() -> None:
    """Seconds that nobody means: the answer was that nothing meets the deadline."""
    for ask in (
        lambda deadline: distsim.plan("llama-2-7b", "100B", gpu="h100-sxm", gpus=64, provider="nebius",
                                      deadline=deadline).request.wish.days,
        lambda deadline: distsim.search("gpt2", tokens="10B", gpu="h100-sxm", gpus=8, tp=1, recompute="none",
                                        deadline=deadline).request.deadline / 86_400,
    ):  # fmt: skip
        with pytest.raises(distsim.DistsimError, match="--deadline 30 is 30 seconds, as all bare numbers are"):
            ask(30)
        assert ask("30d") == ask(30 * 86_400) == 30


def test_measured_runs_are_replayed(tmp_path: Path) -> None:
    row = {
        "id": "a",
        "model": "llama-7b",
        "gpu": "a100",
        "n_gpus": "8",
        "micro_batch": "1",
        "global_batch": "8",
        "seq_len": "2048",
        "precision": "bf16",
        "framework": "torchtitan",
        "zero_stage": "3",
        "step_time_s": "1.2",
    }
    (tmp_path / "runs.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n", encoding="utf-8")
    replayed = distsim.validate(tmp_path / "runs.csv")
    assert replayed.summary.timed_rows == 1 and repr(replayed).startswith("Validation(1 runs, 0 skipped, median error")


@pytest.mark.parametrize(
    ("ask", "options", "told"),
    [
        (distsim.search, {"tpp": 2}, "no option tpp"),
        (distsim.search, {"jobs": 2}, "no option jobs\n  only the command line has it"),
        (distsim.plan, {"tokens": "1T", "jobs": 2}, "no option jobs\n  only the command line has it"),
        (distsim.plan, {"tokens": "1T", "top": 3}, r"only the command line .* plan.options has all"),
        (distsim.plan, {"tokens": "1T", "seed": 3}, r"plan.campaigns\(seed\) takes it"),
        (distsim.search, {"vary": ["seq", "1..2"]}, "no option vary\n  .* call it once for each value"),
        (distsim.search, {"tp": "x"}, "neither a whole number nor a range"),
        (distsim.search, {"tp_mode": "2d"}, "a search does not take tp_mode"),
        (distsim.search, {"top": 0}, "top 0 is out of range"),
        (distsim.search, {"objective": "speed"}, "unknown objective"),
        (distsim.search, {"deadline": "30d"}, "needs a number of tokens"),
        (distsim.plan, {}, "no tokens given"),
        (distsim.plan, {"tokens": "1T", "deadlin": "30d"}, "no option deadlin"),
        (distsim.plan, {"tokens": "1T", "deadline": "30"}, "has no unit"),
        (distsim.plan, {"tokens": "1T", "spares": "3"}, "is not a whole number"),
        (distsim.plan, {"tokens": "1T", "pace": "fast"}, "is not a number"),
    ],
)
def test_wrong_questions_are_told(ask: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError, match=told):
        ask("llama-7b", **options)


def test_commands_and_library_take_the_same_options() -> None:
    from distsim.cli import plan_request, search
    from distsim.engine.layouts import searchable
    from distsim.engine.plans import options

    assert tuple(search.BOUNDED) == searchable.BOUNDED
    assert (tuple(plan_request.BOUNDED), set(plan_request.JOB)) == (options.BOUNDED, set(options.JOB))
    printed = {"json", "csv", "report", "explain", "top", "seed", "model", "tokens", "jobs", "job"}
    from distsim.cli.plan import plan

    assert set(inspect.signature(plan).parameters) - printed == set(options.DEFAULTS)


ODD = ["", "x", 5, [], ["a"], {}, float("nan"), float("inf"), -1, 0, True, numpy.int64(2), numpy.float32(1.5),
       numpy.array([1, 2]), Path("nope"), b"x", object(), "8", 2.5, (1, 2), {"a": 1}, "1..2"]  # fmt: skip
"""Values of which some suit an option, and the others must be told."""
PLAIN: dict[str, tuple[Any, dict[str, Any]]] = {
    "collective": (distsim.collective, {"op": "all_reduce", "gpus": 8}),
    "pipeline": (distsim.pipeline, {"stages": 2, "micro": 4}),
    "order": (distsim.pipeline, {"order": ["0F0 0B0", "1F0 1B0"]}),
    "pipeline of a model": (distsim.pipeline, {"stages": 2, "micro": 4, "model": "llama-7b"}),
    "memory": (distsim.memory, {"model": "llama-7b", "gpus": 8}),
    "search": (lambda **options: distsim.search("llama-7b", **options), {
        "gpu": "h100-sxm", "gpus": 8, "global_batch": 16, "zero": 1, "micro_batch": 1, "recompute": "none",
        "tp": 1, "pp": 1, "cp": 1,
    }),
    "plan": (lambda **options: plan_request({**DEFAULTS, **options}), {"model": "llama-7b", "tokens": 1e12}),
}  # fmt: skip
OF_SEARCH = ("objective", "within", "tokens", "deadline", "margin", "exclude", "top", "all_ranks", "price", "provider",
             "tp", "sequence_parallel", "schedule", "precision", "offload", "gpu", "framework")  # fmt: skip


def plan_request(options: dict[str, Any]) -> Request:
    """What a plan is asked, without the plan, which takes its time."""
    stated = {name: _checked(name, value) for name, value in options.items() if value is not None}
    return request_of({**DEFAULTS, **stated})


def names(kind: str) -> list[str]:
    if kind == "search":
        return list(OF_SEARCH)
    if kind == "memory":
        return list(distsim.Job.model_fields)
    if kind == "plan":
        return list(DEFAULTS)
    if kind == "pipeline of a model":
        return ["tp", "cp", "gpu", "micro_batch", "seq"]
    return [name for name in inspect.signature(PLAIN[kind][0]).parameters if name != "job"]


@pytest.mark.parametrize("kind", PLAIN)
def test_whatever_is_given_is_answered_or_told(kind: str) -> None:
    ask, options = PLAIN[kind]
    refused = 0
    for name in names(kind):
        for value in ODD:
            try:
                report = ask(**{**options, name: value})
            except distsim.DistsimError:
                refused += 1
                continue
            if hasattr(report, "to_dict"):
                json.dumps(report.to_dict(), allow_nan=False)
    assert refused > len(names(kind))


def test_an_interrupt_stops_a_search_and_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distsim.engine.layouts.search._walk", stop)
    with pytest.raises(KeyboardInterrupt):
        distsim.search("llama-7b", **SEARCH)
    with pytest.raises(KeyboardInterrupt):
        distsim.plan("llama-7b", "100B", gpu="h100-sxm", gpus=64, provider="aws")
    assert search_for(made(distsim.Job(model="llama-7b", **SEARCH), {}), partly=True).interrupted


def test_options_of_a_found_layout_are_all_that_its_step_needs() -> None:
    tried = {"precision": ["bf16", "fp8"], "offload": ["none", "optimizer"], "zero": 1, "recompute": "none"}
    found = distsim.search("llama-7b", **SEARCH, **tried)
    for one in found.best:
        assert None not in one.options.values()
        assert distsim.step("llama-7b", **one.options).seconds == pytest.approx(one.seconds, rel=1e-12)


def test_data_of_searches_and_replays_are_the_callers_own(tmp_path: Path) -> None:
    found = distsim.search("llama-7b", **SEARCH)
    seconds = found.best[0].seconds
    found.to_dict()["layouts"][0]["breakdown"].clear()
    assert found.best[0].seconds == seconds


def test_a_model_may_be_a_path_or_loaded_everywhere(tmp_path: Path) -> None:
    config = '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}'
    path = tmp_path / "config.json"
    path.write_text(config, encoding="utf-8")
    loaded = distsim.load_model(path)
    seconds = distsim.step(loaded.spec, gpus=1, seq=128).seconds
    for named in (path, str(path), loaded, loaded.spec):
        assert distsim.load_model(named).parameters == loaded.parameters
        assert distsim.step(distsim.Job(model=named, gpus=1, seq=128)).seconds == seconds
        assert distsim.step(named, gpus=1, seq=128).seconds == seconds
        assert distsim.search(named, gpus=1, seq=128, global_batch=1).best
        assert distsim.pipeline(2, 4, model=named, seq=128).makespan > 0
    assert distsim.plan(path, "1B", gpu="h100-sxm", gpus=8, provider="aws", seq=128).options


def test_accelerator_and_cluster_of_a_collective_exclude_each_other() -> None:
    with pytest.raises(distsim.DistsimError, match="both name the accelerator"):
        distsim.collective("all_reduce", gpu="a100", gpus=16, cluster="p5.48xlarge")


def test_runs_are_summarised_by_what_there_is() -> None:
    with pytest.raises(distsim.DistsimError, match="did you mean framework"):
        Validation(()).by("frameworks")


def test_advice_on_a_search_makes_it_fit_or_quick_enough() -> None:
    fits = distsim.advise(distsim.search("llama-2-70b", gpu="h100-sxm", gpus=8, global_batch=64, zero="0..1"))
    assert fits and all(hasattr(one, "flags") for one in fits)
    [quick] = distsim.advise(distsim.search("llama-7b", **SEARCH, within=0.3))
    assert quick.seconds <= 0.3 and quick.options["gpus"] > 8
    assert distsim.advise(distsim.search("llama-7b", **SEARCH)) == []
    plain: dict[str, Any] = {"gpu": "h100-sxm", "tp": 1, "pp": 1, "cp": 1, "zero": 1, "recompute": "none"}
    [many] = distsim.advise(distsim.search("gpt2", gpus=1, global_batch=4096, within="0.15s", **plain))
    assert many.options["gpus"] == 128 and many.seconds <= 0.15  # more than 16 times as many, as far as more gain


def test_reports_of_everything_are_short() -> None:
    found, plan = distsim.search("llama-7b", **SEARCH), distsim.plan("gpt2", "1B", gpu="h100-sxm", gpus=8, price=2)
    for report in (distsim.pipeline(16, 128), found.best[0], distsim.comm("gpt2", gpus=8), plan):
        assert len(repr(report)) < 120 and {report}


def test_chunks_interleave_where_no_schedule_is_named() -> None:
    assert distsim.pipeline(4, 8, chunks=2).makespan == distsim.pipeline(4, 8, "interleaved-1f1b", 2).makespan
    assert distsim.pipeline(4, 8, chunks=1).schedule == distsim.pipeline(4, 8).schedule == "1f1b"
    of_model = distsim.pipeline(4, 8, chunks=2, model="llama-7b")
    assert of_model.makespan == distsim.pipeline(4, 8, "interleaved-1f1b", 2, model="llama-7b").makespan


def test_what_makes_it_fit_tells_how_likely_it_does() -> None:
    found = distsim.advise(distsim.step("llama-3-8b", gpus=2, gpu="rtx-4090", framework="huggingface", micro_batch=4))
    assert found and all(0 < one.likely <= 1 for one in found)
    report = distsim.memory("llama-7b", gpus=8, zero=2, micro_batch=16)
    for one in distsim.advise(report):
        again = distsim.memory("llama-7b", **{"gpus": 8, "zero": 2, "micro_batch": 16, **one.shown})
        assert one.likely == again.known.fitting and one.to_dict()["likely"] == round(one.likely, 3)


def test_a_step_has_the_rates_of_its_json() -> None:
    report = distsim.step("llama-7b", gpus=8, zero=2)
    found = report.to_dict()
    for name in ("seconds", "tokens_per_second", "tokens_per_second_per_gpu", "mfu", "hfu", "peak_memory", "fits"):
        assert getattr(report, name) == found[name]
