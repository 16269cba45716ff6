"""``distsim plan``: the arithmetic of options on made-up clusters, and the command on real ones."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shell import Done, piped

import distsim
from distsim import catalog
from distsim.engine.campaigns.batch import StepBatch
from distsim.engine.campaigns.prices import Quote
from distsim.engine.figures import Figures
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.layouts.bounds import Bounds, parse_bounds
from distsim.engine.layouts.contradiction import contradiction
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.plans.besides import Besides
from distsim.engine.plans.candidates import (
    PLAIN_HOST_RATE,
    checkpoint_bytes_per_parameter,
    checkpoint_of,
    plain_host,
    sure_to_fit,
)
from distsim.engine.plans.choice import Wish, cheapest, fastest, nearest, pareto, surer
from distsim.engine.plans.energy import Draw
from distsim.engine.plans.goodput import Checkpoint, Goodput, Policy, goodput
from distsim.engine.plans.larger import up_to_cheapest, up_to_deadline
from distsim.engine.plans.layouts import ALIKE, Best, best_layouts, micro_batches, overrides_of, space, with_options
from distsim.engine.plans.on_time import days_of, share_within
from distsim.engine.plans.optimum import optimum
from distsim.engine.plans.plan import Candidate, Option, cheapest_first, options
from distsim.engine.plans.planner import finish_dates
from distsim.engine.plans.smaller import Place, down_to_budget
from distsim.engine.step import step_of
from distsim.engine.steps.report import StepReport
from distsim.errors import DistsimError
from distsim.formulas import scaling
from distsim.report.plan import money_shares
from distsim.report.plan_plot import pareto_lines
from distsim.report.plan_words import owed, standing_by
from distsim.report.prose import number
from distsim.report.style import Style
from distsim.specs.cluster import Cluster
from distsim.specs.job import Job

HOUSE = catalog.load("facilities", "default")
DRAW = Draw(500.0, 200.0, 100.0, Figures())


def made(gpus: int, seconds: float, stretch: float = 1.25, cluster: str = "c") -> Candidate:
    kept = Goodput(gpus, 1e5, 600, 1, 10, 600, stretch, 1.0, 1.0, Figures())
    parts = {"compute": 0.5 * seconds, "data_parallel": 0.3 * seconds, "pipeline_bubble": 0.2 * seconds}
    return Candidate(
        cluster, "h100-sxm", gpus, {"tp": 1}, seconds, seconds * 0.8, seconds * 1.2, 1_000_000, kept, DRAW, parts
    )


def quote(rate: float, provider: str = "P", cluster: str = "c") -> Quote:
    return Quote(provider, "h100-sxm", "8x", 8, "", "on-demand", rate, "2026-09-20", "a page", cluster=cluster)


def plans(tokens: float = 86_400e6) -> list[Option]:
    """86 400 steps: one day per second of step, times 1.25."""
    candidates = [made(8, 8.0), made(16, 4.0), made(32, 3.0)]
    quotes = {("c", 8): [quote(2.0), quote(3.0, "Q")], ("c", 16): [quote(2.0)], ("c", 32): [quote(2.0)]}
    return options(candidates, tokens, quotes, HOUSE)


def test_an_option_is_hours_times_rate() -> None:
    one = next(option for option in plans() if option.candidate.gpus == 8 and option.quote.provider == "Q")
    assert one.days == pytest.approx(10)
    assert (one.days_low, one.days_high) == pytest.approx((8, 12))
    assert one.gpu_hours == pytest.approx(8 * 240)
    assert one.dollars == pytest.approx(8 * 240 * 3)
    mean = 0.8 * 700 + 0.2 * 300
    assert one.energy_kwh == pytest.approx(8 * 240 * mean / 1e3 * HOUSE.pue)
    assert one.tonnes_co2e == pytest.approx((one.energy_kwh or 0) * HOUSE.kg_co2e_per_kwh / 1e3)
    assert one.tokens_per_dollar == pytest.approx(86_400e6 / one.dollars)


def test_finish_dates_spread_as_the_interval_says() -> None:
    calm = Goodput(8, 1e12, 1e6, 0, 0, 0, 1.0, 1.0, 1.0, Figures())
    one = replace(made(8, 8.0), step_low=8.0 / 1.8, step_high=8.0 * 1.2, goodput=calm)  # more may be gained than lost
    [option] = options([one], 86_400e6, {("c", 8): [quote(2.0)]}, HOUSE)
    dates = finish_dates(option)
    found = [dates.quantile(share) / 86_400 for share in (0.05, 0.5, 0.95)]
    assert found == pytest.approx([option.days_low, option.days, option.days_high], rel=0.02)


def test_options_come_cheapest_first_and_the_front_is_not_beaten() -> None:
    found = plans()
    assert [one.dollars for one in found] == sorted(one.dollars for one in found)
    front = [found[index] for index in pareto(found)]
    assert [(one.candidate.gpus, one.quote.provider) for one in front] == [
        (32, "P"),
        (16, "P"),
    ]  # 8 ties with 16: slower
    for one in front:
        assert not any(o.days <= one.days and o.dollars <= one.dollars for o in found if o is not one)


def test_limits_choose() -> None:
    found = plans()
    assert cheapest(found, Wish()) is min(found, key=lambda one: (one.dollars, one.days))
    quick = cheapest(found, Wish(days=4))
    assert quick is not None
    assert quick.candidate.gpus == 32
    poor = fastest(found, Wish(dollars=4000))
    assert poor is not None
    assert poor.candidate.gpus == 16
    assert cheapest(found, Wish(days=1)) is None
    close = nearest(found, Wish(days=3.5), 2)
    assert close[0].candidate.gpus == 32
    assert Wish(days=3.5).lacks(close[0]) == "0.2 days too late"
    assert Wish(days=1.5).lacks(close[0]) == "2.2 days too late"
    assert Wish(days=1.5).lacks(replace(close[0], days=1.75)) == "6.0 h too late"
    assert Wish(days=30).lacks(replace(close[0], days=30.01)) == "14.4 min too late"


def test_of_the_nearest_that_are_as_fast_the_cheapest_comes_first() -> None:
    [one, *_] = plans()

    def near(wish: Wish, *rows: tuple[int, float, float]) -> list[int]:
        found = [replace(one, days=days, dollars=dollars, candidate=replace(one.candidate, gpus=gpus))
                 for gpus, days, dollars in rows]  # fmt: skip
        return [option.gpus for option in nearest(found, wish)]

    rows = (32_768, 1.9110, 5.26e6), (16_384, 1.9123, 2.63e6), (8_192, 2.5, 1.9e6), (4_096, 4.0, 1.5e6)
    assert near(Wish(days=1), *rows) == [16_384, 32_768, 8_192]
    assert near(Wish(days=1), (8, 2.05, 1.0), *rows) == [16_384, 32_768, 8]  # 2.05 days can be told from 1.911
    assert near(Wish(days=1, dollars=2e6), *rows)[:2] == [16_384, 8_192]  # 91% late and 32% dear, or 150% late
    assert near(Wish(dollars=1e6), *rows) == [4_096, 8_192, 16_384]
    twice = (64, 2.0, 300.0), (64, 2.0, 200.0), (128, 2.01, 100.0)
    assert near(Wish(days=1), *twice) == [128, 64]


def test_the_share_of_runs_on_time_is_that_of_simulated_campaigns() -> None:
    calm = Goodput(8, 1e12, 1e6, 0, 0, 0, 1.0, 1.0, 1.0, Figures())
    saved, storage = Checkpoint(1e12, 1e9, 55e9), catalog.load("storage", "default")
    usual = goodput(512, catalog.load("failures", "default"), saved, storage, Policy())
    for terms in (calm, usual):
        one = replace(made(8, 8.0), step_low=8.0 / 1.8, goodput=terms)
        [option] = options([one], 86_400e6, {("c", 8): [quote(2.0)]}, HOUSE)
        dates = finish_dates(option)
        for days in (0.7 * option.days, option.days, 1.3 * option.days):
            assert share_within(option, days) == pytest.approx(dates.share_within(days * 86_400), abs=0.02)
        for share in (0.05, 0.3, 0.5, 0.8, 0.95):
            assert share_within(option, days_of(option, share)) == pytest.approx(share)
        assert days_of(option, 0.05) == pytest.approx(option.days_low, rel=1e-3)
        assert days_of(option, 0.95) == pytest.approx(option.days_high, rel=1e-3)
    sharp = replace(option, candidate=replace(option.candidate, step_low=0.0))
    assert [share_within(sharp, days) for days in (sharp.days * 0.99, sharp.days)] == [0, 1]


def test_confidence_is_what_a_deadline_is_kept_with() -> None:
    found = plans()  # 10 days cheapest, 5 days as cheap, 3.75 days dearer
    even, sure = Wish(days=5.05), Wish(days=5.05, confidence=0.8)
    coin = cheapest(found, even)
    assert coin is not None and coin.days == pytest.approx(5) and 0.5 < (even.on_time(coin) or 0) < 0.6
    other = surer(found, even, coin)
    assert other is not None and other.days == pytest.approx(3.75) and (even.on_time(other) or 0) > 0.8
    assert cheapest(found, sure) is other and surer(found, sure, other) is None
    assert not sure.met(coin) and sure.lacks(coin).endswith("too late in 80% of its runs")
    assert nearest(found, Wish(days=3, confidence=0.8))[0].days == pytest.approx(3.75)
    assert surer(found, Wish(days=5.05, dollars=coin.dollars), coin) is None  # the surer one cannot be paid
    assert surer(found, Wish(), coin) is None and Wish().on_time(coin) is None
    late = Wish(days=3.8)
    assert surer(found, late, other) is None


def test_cents_are_plotted_as_the_table_has_them() -> None:
    cents = [replace(one, dollars=0.1 * (index + 1), days=one.days + index) for index, one in enumerate(plans())]
    told = "\n".join(pareto_lines(cents, [0, 1], Style(80, 0, True)))
    assert "  $0.40\n" in told and "  $0.10   " in told and "$0.10: " in told and "$0:" not in told
    dear = [replace(one, dollars=1e6 * (index + 1.234)) for index, one in enumerate(cents)]
    assert "$1.23M: " in "\n".join(pareto_lines(dear, [0, 1], Style(80, 0, True)))


def test_days_that_no_measurement_tells_apart_are_the_same() -> None:
    """Of those within 1% of the fastest the cheapest is the fastest, and stands for them on the front."""
    [first, *_] = plans()
    found = cheapest_first([
        replace(first, days=days, dollars=dollars)
        for days, dollars in ((10.0, 300.0), (10.09, 100.0), (10.05, 200.0), (10.2, 99.0), (20.0, 50.0), (20.1, 49.0))
    ])  # fmt: skip
    assert [found[index].days for index in pareto(found)] == [10.09, 10.2, 20.1]
    quick = fastest(found, Wish())
    assert quick is not None and quick.days == 10.09
    rich = fastest(found, Wish(days=10.08))
    assert rich is not None and rich.dollars == 200
    assert pareto([]) == [] and fastest([], Wish()) is None


def test_more_tokens_cost_more_in_proportion() -> None:
    once, twice = plans(), plans(2 * 86_400e6)
    for one, two in zip(once, twice, strict=True):
        assert two.dollars == pytest.approx(2 * one.dollars)


def test_shares_of_the_money_add_up() -> None:
    shares = money_shares(plans()[0])
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["failures and checkpoints"] == pytest.approx(0.2)


def test_checkpoint_of_adam_takes_fourteen_bytes_per_parameter() -> None:
    setup = resolve(Job(model="llama-7b", precision="bf16", optimizer="adamw"))
    assert checkpoint_bytes_per_parameter(setup) == 14
    assert checkpoint_bytes_per_parameter(resolve(Job(model="llama-7b", precision="bf16", optimizer="sgd"))) == 6


@pytest.mark.parametrize(
    ("gpu", "gpus", "rate"),
    [("a100-sxm4-80gb", 8, 13e9), ("a100-sxm4-80gb", 1, 26e9), ("v100-sxm2-32gb", 8, 6.15e9), ("h100-sxm", 8, 55e9),
     ("trainium2", 16, PLAIN_HOST_RATE), ("gb10", 1, 273e9 / 2)],
)  # fmt: skip
def test_checkpoints_leave_over_the_links_that_offloading_takes(gpu: str, gpus: int, rate: float) -> None:
    """Two A100s of a node, and two V100s, share a switch's link to the host; a GB10 copies inside of one memory."""
    report = step_of(resolve(Job(model="gpt2", gpu=gpu, gpus=gpus)))
    assert checkpoint_of(report).host_rate == pytest.approx(rate, rel=0.1)
    assert bool(plain_host(report.setup)) is (gpu == "trainium2")


def test_checkpoint_of_muon_has_one_state_of_matrices_and_two_of_all_else() -> None:
    setup = resolve(Job(model="llama-7b", precision="bf16", optimizer="muon"))
    others = 2 * 32000 * 4096 + 65 * 4096  # embedding and output layer, two norms per layer and the last one
    assert checkpoint_bytes_per_parameter(setup) == pytest.approx(10 + 4 * others / 6_738_415_616)
    adapted = [Job(model="llama-7b", lora_rank=8, precision="bf16", optimizer=name) for name in ("adamw", "muon")]
    adam, muon = (checkpoint_bytes_per_parameter(resolve(job)) for job in adapted)
    assert adam - muon == resolve(adapted[0]).precision.state_bytes  # adapters are matrices


@pytest.mark.parametrize(
    "limits", [{"days": 0}, {"days": -3}, {"dollars": 0}, {"days": 1e9}, {"dollars": float("nan")}]
)
def test_senseless_limits_are_named(limits: dict[str, float]) -> None:
    with pytest.raises(DistsimError, match="is out of range"):
        Wish(**limits)


def run(*words: str, command: str = "plan", **environment: str) -> Done:
    return piped(command, *words, **environment)


@functools.cache
def known(*words: str) -> Done:
    """What several tests ask, asked once."""
    return run(*words)


ASKED = ("llama-2-7b", "--tokens", "2T", "--gpu", "h100-sxm", "--gpus", "256,512", "--tp", "1,2", "--pp", "1,2")
FEW = (*ASKED, "--provider", "nebius")


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    done = known(*ASKED, "--json", "--deadline", "30d")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_json_keeps_the_contract(answer: dict[str, Any]) -> None:
    assert answer["schema"] == "distsim.plan/1"
    keys = {"cluster", "gpus", "layout", "days", "gpu_hours", "dollars", "energy_kwh", "goodput", "price"}
    for option in answer["options"]:
        assert keys <= set(option)
        assert {"provider", "usd_per_gpu_hour", "date"} <= set(option["price"])
        assert option["gpu_hours"] == pytest.approx(option["days"] * 24 * option["gpus"])
        assert option["dollars"] == pytest.approx(option["gpu_hours"] * option["price"]["usd_per_gpu_hour"])
        for name in ("days", "gpu_hours", "dollars", "energy_kwh", "tokens_per_dollar"):
            assert option[f"{name}_interval"]["low"] < option[name] < option[f"{name}_interval"]["high"]
        assert 0.9 < option["goodput"] < 1
    assert {option["gpus"] for option in answer["options"]} == {256, 512}
    assert all(0 <= index < len(answer["options"]) for index in answer["pareto"])
    assert answer["options"][answer["cheapest"]]["days"] <= 30
    assert answer["campaigns"]["p10_seconds"] < answer["campaigns"]["p50_seconds"] < answer["campaigns"]["p90_seconds"]


def test_llama_2_70b_takes_what_it_took() -> None:
    """1,720,320 A100-hours for 2T tokens as published; how many GPUs it ran on is not, so the closest size counts."""
    done = run("llama-2-70b", "--tokens", "2T", "--gpu", "a100-sxm4-80gb", "--gpus", "1024,2048", "--json")
    hours = [option["gpu_hours"] for option in json.loads(done.stdout)["options"]]
    assert min(abs(one / 1_720_320 - 1) for one in hours) < 0.15


def test_tables_csv_and_explanations() -> None:
    text = known(*ASKED, "--explain", "--top", "3").stdout
    for words in ("cheapest", "Where the money goes", "Rent or buy", "Terms of", "price age", "Kokolis"):
        assert words in text
    rows = list(csv.DictReader(io.StringIO(known(*ASKED, "--csv").stdout)))
    assert rows
    assert float(rows[0]["dollars"]) == min(float(row["dollars"]) for row in rows)
    assert any(row["pareto"] == "1" for row in rows)
    assert int(rows[0]["tp"]) * int(rows[0]["pp"]) * int(rows[0]["dp"]) == int(rows[0]["gpus"])


@pytest.mark.parametrize(
    ("model", "gpus"), [("llama-3-8b", 8), ("llama-3-8b", 64), ("mixtral-8x7b", 256), ("llama-2-70b", 512)]
)
def test_what_a_cluster_takes_does_not_depend_on_the_others(model: str, gpus: int) -> None:
    asked = (model, "--tokens", "1T", "--gpus", str(gpus), "--pp", "1,2", "--zero", "1", "--cp", "1", "--json")
    together = json.loads(run(*asked, "--gpu", "h100-sxm").stdout)["options"]
    clusters = sorted({option["cluster"] for option in together})
    assert len(clusters) > 5
    for cluster in clusters[::3]:
        alone = json.loads(run(*asked, "--cluster", cluster).stdout)["options"]
        same = [option for option in together if option["cluster"] == cluster]
        assert len(alone) == len(same)
        for one, other in zip(alone, same, strict=True):
            if one["layouts"] == other["layouts"]:
                assert one == other
            else:  # together it is far from what answers, and only the usual layouts are tried
                assert (one["layouts"], other["layouts"]) == ("all", "usual") and one["days"] <= other["days"]


def test_clusters_that_are_alike_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def best(job: Job, cluster: Cluster, *rest: Any) -> list[Best]:
        searched.append(cluster.name)
        return best_layouts(job, cluster, *rest)

    monkeypatch.setattr("distsim.engine.plans.candidates.best_layouts", best)
    names = ("nebius-h100", "lambda-1cc-h100", "p5.48xlarge")  # the first two differ in who rents them out
    run("llama-2-7b", "--tokens", "1T", "--gpus", "64", "--cluster", ",".join(names))
    assert sorted(searched[:2]) == ["lambda-1cc-h100", "p5.48xlarge"]  # among the usual layouts
    assert len(set(searched[2:])) == len(searched[2:]) <= 2  # among all
    searched.clear()
    run("llama-2-7b", "--tokens", "1B", "--gpus", "8", "--cluster", ",".join(names))  # one node has no network
    assert len(searched) == 2


def test_what_the_search_has_timed_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster's shortlist of each search only the layout that leaves most memory free is new to the plan;
    another's that is like it takes the same step."""
    timed: list[Setup] = []

    def step(setup: Setup) -> StepReport:
        timed.append(setup)
        return step_of(setup)

    monkeypatch.setattr("distsim.engine.plans.candidates.step_of", step)
    run("llama-2-7b", "--tokens", "1T", "--gpus", "64", "--cluster", "nebius-h100,lambda-1cc-h100,p5.48xlarge")
    assert len(timed) <= 4  # among the usual layouts, and among all


def test_limits_that_nothing_meets() -> None:
    done = known(*ASKED, "--deadline", "2d", "--budget", "100k")
    assert done.returncode == 1
    assert "No option meets the limits" in done.stdout
    assert re.search(r"accelerators; --gpus \d+\.\.\d+ tries more, and without --gpus sizes for", done.stdout)
    assert "days too late" in done.stdout
    assert "over budget" in done.stdout


def test_a_budget_without_a_deadline_finds_the_size_that_keeps_to_it() -> None:
    asked = ("llama-2-70b", "--tokens", "2T", "--cluster", "nebius-b200", "--zero", "1", "--cp", "1", "--pp", "1,2,4,8")
    [fits] = json.loads(run(*asked, "--gpus", "128", "--json").stdout)["options"]
    [dear] = json.loads(run(*asked, "--gpus", "256", "--json").stdout)["options"]
    budget = (fits["dollars"] + dear["dollars"]) / 2
    done = run(*asked, "--budget", f"{budget:.0f}", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["sizes"]) == (0, [128, 256, 512, 1024, 2048])
    assert answer["options"][answer["cheapest"]] == fits
    assert "no deadline given" in done.stderr and "128 to 2,048" in done.stderr
    late = run(*asked, "--budget", f"{budget:.0f}", "--deadline", "30d")  # fewer would be later still
    assert late.returncode == 1 and "Tried: 256 to 2,048 accelerators." in late.stdout


def test_no_size_is_left_untried_before_a_budget_is_refused() -> None:
    """Costs need not fall from each size to the next: 8 GPUs cost more than 16, 16 less than all others."""
    asked = (
        "llama-2-70b",
        "--tokens",
        "2T",
        "--cluster",
        "nebius-b200",
        "--zero",
        "1",
        "--cp",
        "1",
        "--pp",
        "1,2,4,8",
        "--budget",
    )
    poor = run(*asked, "1.25M", "--json")
    answer = json.loads(poor.stdout)
    assert (poor.returncode, answer["sizes"], answer["cheapest"]) == (1, [2**k for k in range(3, 12)], None)
    assert min(option["dollars"] for option in answer["options"]) > 1.25e6
    hopeless = json.loads(run(*asked, "500k", "--json").stdout)
    assert hopeless["sizes"] == [256, 512, 1024, 2048]


def test_sizes_are_those_of_the_units_that_the_recipe_multiplies_in() -> None:
    """T4 have fp16 and no bf16; a recipe in fp32 is far slower than bf16 on A100."""
    turing = distsim.plan("bert-large", "100B", gpu="t4", deadline="10d", price=1, tp=1, pp=1)
    assert turing.sizes == (8, 16, 32, 64)
    assert [option.gpus for option in turing.options if turing.request.wish.met(option)] == [16, 32, 64]
    beside = distsim.plan("bert-large", "100B", gpu="a100-sxm4-80gb,t4", deadline="10d", price=1, tp=1, pp=1)
    assert sorted({option.gpus for option in beside.options if option.gpu == "t4"}) == [8, 16, 32, 64]
    bounds: dict[str, Any] = {"gpu": "a100", "provider": "coreweave", "deadline": "30d", "pp": 1, "tp": 2}
    narrow, wide = (distsim.plan("llama-2-7b", "300B", precision=one, **bounds) for one in ("bf16", "fp32"))
    assert (narrow.sizes[0], wide.sizes[0]) == (32, 512) and wide.cheapest is not None


def test_few_tokens_of_a_large_model_get_the_memory_that_it_needs() -> None:
    """A billion tokens in a month are the work of 8 H100, whose memory holds a fiftieth of what 405B take."""
    asked: dict[str, Any] = {"gpu": "h100-sxm,h200-sxm", "provider": "nebius", "tp": 8, "cp": 1, "micro_batch": 1,
                             "vpp": 1}  # fmt: skip
    made = distsim.plan("llama-3.1-405b", "1B", **asked)
    assert min(option.gpus for option in made.options if option.gpu == "h100-sxm") == 128
    assert min(option.gpus for option in made.options if option.gpu == "h200-sxm") == 64
    told = f"trying 8 to {made.sizes[-1]:,} accelerators, sized for about 30 days, and more where no layout fits so few"
    assert any(f"{told} or that costs less" in note for note in made.notes)
    due = distsim.plan("llama-3.1-405b", "1B", deadline="30d", **asked | {"gpu": "h200-sxm"})
    assert min(option.gpus for option in due.options) == 64
    told = "no layout fits as few accelerators as the deadline asks for on nebius-h200: tried up to 64"
    assert told in due.notes
    stated = distsim.plan("llama-3.1-405b", "1B", gpus=16, **asked)
    assert not stated.options and stated.sizes == (16,) and not [one for one in stated.notes if "no layout fits" in one]
    none = run(
        "llama-3-8b", "--tokens", "1B", "--gpu", "h100-sxm", "--provider", "nebius", "--margin", "99%", "--cp", "1"
    )
    assert none.returncode == 1
    assert "8 to 32,768 were tried: take accelerators with more memory" in none.stderr


def test_more_accelerators_are_tried_while_they_cost_less() -> None:
    """A mixture's later deadline had cost more: 8 of GB200 recompute nothing but are full, 32 are cheaper."""
    rates = {("dgx-h100", gpus): [quote(2.0, cluster="dgx-h100")] for gpus in (8, 16, 32, 64, 128)}

    def priced(places: Sequence[Place]) -> list[Option]:
        seconds = {8: 8.4, 16: 4.1, 32: 2.0, 64: 1.1, 128: 0.6}
        sizes = [made(gpus, seconds[gpus], cluster=cluster) for cluster, gpus in places]
        return options(sizes, 86_400e6, rates, HOUSE)

    def sizes(*tried: int) -> list[int]:
        return [one.gpus for one in up_to_cheapest(priced([("dgx-h100", gpus) for gpus in tried]), Wish(), priced)]

    assert sizes(8) == [16, 32, 64]
    assert sizes(8, 16) == [32, 64]
    assert sizes(32, 64) == [] and sizes(64) == [128]
    assert sizes(8, 32) == [64]
    late = [one.gpus for one in up_to_deadline(priced([("dgx-h100", 8)]), Wish(days=2), priced)]
    assert late == [16, 32, 64] and up_to_deadline(priced([("dgx-h100", 64)]), Wish(days=2), priced) == []
    asked = {"gpu": "gb200", "tp": 1, "pp": "1,2", "recompute": "none", "micro_batch": "1,2", "deadline": "400d"}
    later = distsim.plan("mixtral-8x7b", "300B", **asked).cheapest
    assert later is not None and later.gpus > 8


def test_a_cluster_goes_down_by_itself_until_it_can_be_paid() -> None:
    asked: list[list[Place]] = []

    def priced(places: Sequence[Place]) -> list[Option]:
        asked.append(list(places))
        made_smaller = [made(gpus, 64 / gpus * (1 + gpus / 1e3), cluster=name) for name, gpus in places if gpus >= 16]
        return options(made_smaller, 86_400e6, rates, HOUSE)

    names = ("nebius-h100", "dgx-h100")
    rates = {(name, size): [quote(2.0, cluster=name)] for name in names for size in (16, 32, 64, 128)}
    rates |= {("dgx-h100", 128): [quote(1.5)]}
    first = options([made(128, 0.5 * 1.128, cluster=name) for name in names], 86_400e6, rates, HOUSE)
    one, two = sorted(first, key=lambda option: option.dollars)
    wish = Wish(dollars=two.dollars * 0.95)
    assert wish.met(one) and not wish.met(two)
    added = down_to_budget(first, wish, priced)
    assert asked == [[("nebius-h100", 64)]] and [option.candidate.gpus for option in added] == [64]
    asked.clear()
    assert down_to_budget(first[1:], Wish(dollars=two.dollars * 0.8), priced)[-1].candidate.gpus == 16
    assert asked == [[("nebius-h100", size)] for size in (64, 32, 16, 8)]  # nothing fits on 8


def test_what_options_lack_folds_below_its_head() -> None:
    text = run("llama-3-8b", "--tokens", "1T", "--gpu", "h200-sxm", "--price", "reserved-1y", "--deadline", "30d",
               "--budget", "100k", COLUMNS="80").stdout.splitlines()  # fmt: skip
    head = next(place for place, line in enumerate(text) if "misses by" in line)
    start = text[head].index("misses by")
    told = text[head + 1 : text.index("", head)]
    assert max(map(len, told)) <= 80
    below = [line for line in told if not line[:start].strip()]
    assert below and all(line[start] != " " for line in below)


def test_the_budget_has_to_pay_for_a_reservation_whole() -> None:
    """Machines of 8 x $1.50 for a year are $105,120, whatever part of it a run of ten days uses."""
    by_term = {"reserved-1y": 1.5, "on-demand": 2.0, "reserved": 1.8}
    terms = [replace(quote(rate, name), term=name) for name, rate in by_term.items()]
    found = {one.quote.term: one for one in options([made(8, 8.0)], 86_400e6, {("c", 8): terms}, HOUSE)}
    year, hourly, open_ended = (found[term] for term in by_term)
    assert year.committed_dollars == pytest.approx(8 * 1.5 * 8_760, rel=1e-3)
    assert year.payable_dollars == year.committed_dollars > 20 * year.dollars
    assert (hourly.payable_dollars, open_ended.payable_dollars) == (hourly.dollars, open_ended.dollars)
    tight, ample = Wish(dollars=1.01 * hourly.dollars), Wish(dollars=1.01 * year.payable_dollars)
    assert [tight.met(one) for one in (year, hourly)] == [False, True]
    assert ample.met(year) and ample.lacks(year) == ""
    assert "because the full term is owed" in tight.lacks(year) and tight.excess(year) > 10
    assert year.to_dict()["payable_dollars"] == year.payable_dollars


def test_a_run_longer_than_its_reservation_owes_another_term() -> None:
    """8 x $1.50: 465 days are two years of $105,120 each."""
    reserved = {("c", 8): [replace(quote(1.5), term="reserved-1y")]}
    [option] = options([made(8, 8.0)], 46.5 * 86_400e6, reserved, HOUSE)
    assert (option.days, option.terms) == (pytest.approx(465), 2)
    assert option.committed_dollars == pytest.approx(2 * 8 * 1.5 * 8_760)
    assert Wish(dollars=200_000).lacks(option) == "$10k over budget, because 2 full terms are owed"
    assert owed(option) == "$210k is owed for 2 full terms (reserved-1y); this run uses $134k of it (64%)"
    [option] = options([made(8, 8.0)], 40 * 86_400e6, reserved, HOUSE)  # 400 days, 320 to 480 with uncertain steps
    assert owed(option).endswith("(55%); 1 to 2 terms, $105k to $210k, within the 90% interval of its days")


def test_nothing_on_the_front_is_beaten_in_what_has_to_be_paid() -> None:
    """A reservation of 16 GPUs at half the rate of rented ones is paid for a year, 73 times as long as it is used."""
    rates = {("c", 16): [quote(2.0), replace(quote(1.0, "R"), term="reserved-1y")], ("c", 32): [quote(2.0)]}
    rates["c", 64] = [quote(3.0)]
    found = options([made(16, 4.0), made(32, 3.0), made(64, 3.0)], 86_400e6, rates, HOUSE)
    assert found[0].quote.provider == "R"  # cheapest by the rent of the run
    assert [found[index].candidate.gpus for index in pareto(found)] == [32, 16]
    assert all(found[index].terms is None for index in pareto(found))
    plot = pareto_lines(found, pareto(found), Style(100, 0, False))
    assert "reservations count in full" in " ".join(" ".join(plot).split())
    assert re.fullmatch(r"  not shown: options over \$\d+k \(1\)", plot[-1])
    assert pareto_lines(found[:3], pareto(found[:3]), Style(100, 0, False)) == []  # two are shown
    rates["c", 32].append(rates["c", 16][1])
    more = options([made(16, 4.0), made(32, 3.0), made(64, 3.0)], 86_400e6, rates, HOUSE)
    assert "  not shown: other options over" in pareto_lines(more, pareto(more), Style(100, 0, False), more[:1])[-1]


def test_what_limits_are_held_against_is_told() -> None:
    asked = ("llama-2-7b", "--tokens", "100B", "--gpu", "h200-sxm", "--gpus", "64", "--budget", "100k")
    bound = run(*asked, "--price", "reserved-1y")
    assert bound.returncode == 1
    assert "over budget, because the full term is owed" in bound.stdout
    assert " owed" in bound.stdout.split("Options,")[1].splitlines()[1]
    assert "the budget is compared with what must be paid: full terms for reserved-1y" in bound.stderr
    hourly = run(*asked)
    assert hourly.returncode == 0 and " owed" not in hourly.stdout
    answer = json.loads(run(*asked, "--price", "reserved-1y,on-demand", "--json").stdout)
    assert answer["limits"]["dollars"] == 100_000
    assert answer["limits"]["compared"]["dollars"] == "payable_dollars"
    assert answer["options"][answer["cheapest"]]["price"]["term"] == "on-demand"
    none = distsim.plan("llama-2-7b", "100B", gpu="h100-sxm", gpus=64, budget="100k", price="on-demand,reserved-1y",
                        provider="nebius", tp=1, pp=1)  # fmt: skip
    assert none.options and not [note for note in none.notes if "full terms" in note]


@pytest.mark.parametrize("asked", [
    ("llama-3-70b", "--tokens", "1T", "--gpu", "h100-sxm", "--gpus", "512", "--provider", "nebius"),
    ("llama-3-8b", "--tokens", "100B", "--cluster", "gb200-nvl72", "--gpus", "64", "--price", "owned", "--tp", "8"),
])  # fmt: skip
def test_utilisation_of_an_option_is_that_of_the_hours_beside_it(asked: tuple[str, ...]) -> None:
    """Model FLOPs of all tokens over what the GPU-hours could compute; a step's own is higher and has its own name."""
    option = json.loads(run(*asked, "--json").stdout)["options"][0]
    text = run(*asked).stdout
    command = next(line.removeprefix("the step ") for line in text.splitlines() if line.startswith("the step "))
    step = json.loads(piped(*shlex.split(command)[1:], "--json").stdout)
    chip = catalog.load("gpus", option["gpu"])
    tokens = float(asked[2].rstrip("BT")) * (1e9 if asked[2].endswith("B") else 1e12)
    of_token = step["model_flops_per_second_per_gpu"] * option["gpus"] / step["tokens_per_second"]
    assert option["mfu"] == pytest.approx(of_token * tokens / (option["gpu_hours"] * 3600 * chip.peak.bf16), rel=1e-3)
    assert option["step_mfu"] == pytest.approx(step["mfu"], rel=1e-3) and option["step_mfu"] > 1.1 * option["mfu"]
    if " MFU" in text:
        assert f"{option['mfu']:.0%}" in next(line for line in text.splitlines() if line.startswith(("●", "*")))


def test_days_follow_from_steps_and_spare_nodes_are_priced_apart() -> None:
    asked = ("llama-2-7b", "--tokens", "100B", "--gpu", "h100-sxm", "--gpus", "64", "--provider", "nebius")
    few, many = (json.loads(run(*asked, "--spares", spares, "--json").stdout)["options"][0] for spares in ("1", "3"))
    steps = 100e9 / (few["global_batch"] * few["layout"]["seq"])
    assert few["days"] * 86_400 == pytest.approx(steps * few["step_seconds"] * few["pace"] / few["goodput"], rel=1e-6)
    rate = few["price"]["usd_per_gpu_hour"]
    assert few["dollars"] == pytest.approx(64 * 24 * few["days"] * rate)  # spares are not in it
    assert few["spare_dollars"] == pytest.approx(8 * 24 * few["days"] * rate)
    assert many["spare_dollars"] == pytest.approx(3 * few["spare_dollars"], rel=1e-3)
    assert "1 spare node, not billed" in run(*asked, "--spares", "1").stdout
    none = run(*asked, "--spares", "0", "--failures", "llama-3")
    assert "spare node" not in none.stdout
    assert "spares      none: each failure waits for its repair, 24.0 h" in none.stdout
    assert "failures llama-3 states no repair time" in none.stderr


def test_days_count_the_slowest_of_the_accelerators() -> None:
    made = distsim.plan("llama-2-7b", "100B", gpu="h100-sxm", gpus=64, provider="nebius", stragglers="3%", tp=1, pp=1)
    told = made.options[0].to_dict()
    steps = 100e9 / (told["global_batch"] * told["layout"]["seq"])
    slow = told["step_seconds"] * told["pace"] * told["straggler_stretch"]
    assert told["straggler_stretch"] > 1.05
    assert told["days"] * 86_400 == pytest.approx(steps * slow / told["goodput"], rel=1e-6)


def test_a_spare_is_an_instance_where_the_job_is_on_one_that_is_less_than_a_node() -> None:
    asked = ("gpt2", "--tokens", "1B", "--gpu", "h100-sxm", "--gpus", "1", "--provider", "vast-ai", "--spares", "1")
    option = json.loads(run(*asked, "--json").stdout)["options"][0]
    assert option["spare_dollars"] == pytest.approx(option["dollars"])
    assert "1 spare instance, not billed" in run(*asked).stdout
    two = replace(made(16, 4.0, cluster="nebius-h100"), goodput=replace(made(16, 4.0).goodput, spares=2))
    [nodes] = options([two], 86_400e6, {("nebius-h100", 16): [quote(2.0)]}, HOUSE)
    assert (nodes.spare_gpus, nodes.spare_dollars) == (8, pytest.approx(nodes.dollars))
    bound = {("nebius-h100", 16): [replace(quote(1.5), term="reserved-1y")]}
    [year] = options([two], 86_400e6, bound, HOUSE)
    assert year.spare_dollars == pytest.approx(2 * 8 * 1.5 * 8_760)  # paid whole, as the others are
    assert standing_by(year).endswith("more if you pay for them for the full term")


def test_where_a_price_holds_is_told() -> None:
    asked = ("llama-2-7b", "--tokens", "300B", "--cluster", "p5en.48xlarge", "--gpus", "64", "--price", "spot")
    price = json.loads(run(*asked, "--json").stdout)["options"][0]["price"]
    assert price["region"]
    text = run(*asked, COLUMNS="200").stdout
    assert f"({price['region']}; price of" in " ".join(text.split())  # the instance is called like the cluster
    head, row = text.split("Options,")[1].splitlines()[1:3]
    assert row[head.index("region") :].split()[0] == price["region"]
    assert "region" not in run(*asked, COLUMNS="80").stdout.split("Options,")[1].splitlines()[1]
    told = next(csv.DictReader(io.StringIO(run(*asked, "--csv").stdout)))
    assert (told["instance"], told["region"]) == (price["instance"], price["region"])


def test_sequences_beyond_the_context_are_told() -> None:
    asked = ("llama-2-7b", "--tokens", "100B", "--cluster", "nebius-h100", "--gpus", "64")
    told = "8,192 tokens per sequence exceed the 4,096 that llama-2-7b was built for"
    assert told in run(*asked, "--seq", "8192").stderr
    assert told in json.loads(run(*asked, "--seq", "8192", "--json").stdout)["notes"]
    assert "was made for" not in run(*asked, "--seq", "4096").stderr


def test_small_amounts_are_not_rounded_away() -> None:
    asked = ("gpt2", "--tokens", "1B", "--gpu", "h100-sxm", "--gpus", "1")
    option = json.loads(run(*asked, "--json").stdout)["options"][0]
    assert option["gpu_hours"] < 1 and option["tonnes_co2e"] < 1e-3
    text = " ".join(run(*asked).stdout.split())
    assert f"; {option['gpu_hours']:.2g} GPU-hours" in text
    assert f", {option['tonnes_co2e'] * 1e3:.2g} kgCO2e" in text
    assert " 0.0 expected" not in text


@pytest.mark.parametrize(
    ("amount", "digits", "told"),
    [
        (0, 0, "0"), (0.83, 0, "0.83"), (0.000019, 1, "0.000019"), (1.43, 0, "1.4"), (9.94, 0, "9.9"), (9.96, 0, "10"),
        (9.96, 1, "10.0"), (12.34, 0, "12"), (12.34, 1, "12.3"), (1_720_320, 0, "1,720,320"),
    ],
)  # fmt: skip
def test_numbers_have_two_digits_at_least(amount: float, digits: int, told: str) -> None:
    assert number(amount, digits) == told


def test_an_offer_may_name_a_cluster_of_ones_own(tmp_path: Path) -> None:
    """A TOML beside the price list, by whose file name the plan and its command go on."""
    (tmp_path / "six.toml").write_text(
        'name = "six"\ngpu = "h100-sxm"\ngpus_per_node = 6\ndomain = 6\n[fabric]\nkind = "nvswitch"\n'
        'rate = "450 GB/s"\n[network]\nkind = "ethernet"\nnics = 2\nnic_rate = "100 Gb/s"\n'
        '[source]\nother = "x"\nchecked = 2026-11-22\n',
        encoding="utf-8",
    )
    offer = tmp_path / "ours.toml"
    offer.write_text(
        'provider = "Ours"\ncurrency = "USD"\n[[offers]]\ninstance = "6x"\ngpu = "h100-sxm"\ngpus = 6\n'
        'cluster = "six.toml"\non_demand = 2.0\nreserved_1y = 1.0\ndate = "2026-11-01"\nsource = "offer"\n',
        encoding="utf-8",
    )
    asked = ("llama-2-7b", "--tokens", "100B", "--provider", str(offer), "--gpus", "12")
    for more in ((), ("--cluster", str(tmp_path / "six.toml"))):
        done = run(*asked, *more, "--json")
        assert done.returncode == 0, done.stderr
        (only,) = json.loads(done.stdout)["options"]
        assert only["cluster"] == str(tmp_path / "six.toml")
    assert f"--cluster {tmp_path / 'six.toml'}" in run(*asked).stdout
    text = run(*asked, "--price", "reserved-1y").stdout
    assert re.search(r"\$[\d,.]+k? \(of \$105k owed\)", " ".join(text.split()))


def test_a_price_that_nobody_asks_names_other_terms_only() -> None:
    done = run("llama-2-7b", "--tokens", "100B", "--gpu", "h100-sxm", "--gpus", "64", "--price", "reserved-1y")
    assert done.returncode == 2
    assert "other terms: --price on-demand, spot, owned;" in done.stderr
    for term in ("on-demand", "spot", "owned"):
        answered = run("llama-2-7b", "--tokens", "100B", "--gpu", "h100-sxm", "--gpus", "64", "--price", term)
        assert answered.returncode == 0, term


def test_nothing_fits() -> None:
    done = run("llama-3.1-405b", "--tokens", "15T", "--gpu", "h100-sxm", "--gpus", "8")
    assert done.returncode == 1
    assert "no layout of llama-3.1-405b fits" in done.stderr
    assert "sequences have 8,192 tokens: --seq takes shorter ones" in done.stderr
    assert re.search(r"fit: distsim memory llama-3.1-405b --cluster \S+ --gpus 8 --seq 8192\n", done.stderr)
    told = run("llama-3.1-405b", "--tokens", "15T", "--gpu", "h100-sxm", "--gpus", "8", "--json")
    answer = json.loads(told.stdout)
    assert (told.returncode, answer["options"], answer["met"], answer["cheapest"]) == (1, [], False, None)
    assert answer["reason"].startswith("no layout of llama-3.1-405b fits")


def test_compute_optimal() -> None:
    done = run("llama-2-7b", "--compute-optimal", "--gpu", "h100-sxm", "--gpus", "256")
    assert done.returncode == 0
    assert "135B tokens" in done.stdout
    assert "Chinchilla" in done.stdout
    narrow = ("--gpu", "h100-sxm", "--gpus", "8", "--price", "2", "--tp", "1", "--pp", "1", "--lora-rank", "16")
    adapted = run("llama-2-7b", "--compute-optimal", *narrow)
    assert "compute-optimal for" in done.stdout and "compute-optimal for" not in adapted.stdout
    assert "that rule was measured on training all weights, not adapters" in adapted.stderr


FREE = Besides(0, 0, None, None, None, None, None)


def trained(
    found: list[Option], wish: Wish, extra: Besides = FREE, chosen: Option | None = None
) -> tuple[float, float, float] | None:
    """Dollars, days, and in how many of a run's FLOPs they are worth, of 120 N^2 = 3e21: N = 5e9."""
    best = optimum(found, chosen or found[0], wish, 3e21, lambda one: extra, 1825.0)
    return best and (best.dollars, best.days, (best.parameters / 5e9) ** 2)


def test_a_budget_trains_what_has_to_be_paid_lets_it() -> None:
    """Eight GPUs take ten days: $3,840 by the hour at $2, $105,120 for a year at $1.50 whatever part of it is used."""
    hourly, year = quote(2.0), replace(quote(1.5, "R"), term="reserved-1y")
    [rented], [reserved] = (options([made(8, 8.0)], 86_400e6, {("c", 8): [one]}, HOUSE) for one in (hourly, year))
    assert trained([rented], Wish()) == pytest.approx((3_840, 10, 1))
    assert trained([rented], Wish(dollars=4 * 3_840)) == pytest.approx((15_360, 40, 4))
    assert trained([reserved], Wish()) == pytest.approx((105_120, 365, 36.5))
    assert trained([reserved], Wish(dollars=105_119)) is None
    assert trained([reserved], Wish(dollars=300_000)) == pytest.approx((300_000, 730, 73))
    assert trained([reserved], Wish(days=30, dollars=300_000)) == pytest.approx((300_000, 30, 3))
    assert trained([rented, reserved], Wish(dollars=105_119)) == pytest.approx((105_119, 273.747, 27.3747), rel=1e-5)
    assert trained([rented, reserved], Wish(dollars=105_121)) == pytest.approx((105_121, 365, 36.5))


def test_a_budget_stores_what_it_trains_and_may_be_spent_on_more_machines() -> None:
    """$16 a day in storage beside $384 of rent, and $40 at the end; 32 GPUs take 3.75 days of $1,536."""
    extra = replace(FREE, storage_dollars=160.0, egress_dollars=40.0)
    [small] = options([made(8, 8.0)], 86_400e6, {("c", 8): [quote(2.0)]}, HOUSE)
    [large] = options([made(32, 3.0)], 86_400e6, {("c", 32): [quote(2.0)]}, HOUSE)
    assert trained([small], Wish(), extra) == pytest.approx((4_040, 10, 1))
    assert trained([small], Wish(dollars=20_040), extra) == pytest.approx((20_040, 50, 5))
    assert trained([small, large], Wish(dollars=20_040, days=15)) == pytest.approx((20_040, 20_040 / 1_536, 3.479167))
    assert trained([small, large], Wish(dollars=20_040, days=55)) == pytest.approx((20_040, 20_040 / 384, 5.21875))
    assert trained([small], Wish(dollars=39), extra) is None


def test_your_own_prices(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(
        'provider = "Mine"\ncurrency = "USD"\n[[offers]]\ninstance = "node"\ngpu = "h100-sxm"\ngpus = 8\n'
        'on_demand = 1.25\ndate = "2026-11-01"\nsource = "our contract"\n',
        encoding="utf-8",
    )
    done = known(*ASKED, "--json", "--provider", str(own))
    assert {option["price"]["usd_per_gpu_hour"] for option in json.loads(done.stdout)["options"]} == {1.25}
    own.write_text(own.read_text(encoding="utf-8").replace('date = "2026-11-01"\n', ""), encoding="utf-8")
    refused = known(*ASKED, "--provider", str(own))
    assert refused.returncode == 2
    assert "date' is missing" in refused.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["llama-2-7b"], "no tokens given"),
        (["llama-2-7b", "--tokens", "-5"], "--tokens -5 is out of range"),
        (["llama-2-7b", "--tokens", "1000"], "fewer than one step"),
        (["llama-2-7b", "--tokens", "2T", "--deadline", "0d"], "a deadline of 0 days"),
        (["llama-2-7b", "--tokens", "2T", "--budget", "-3"], "a budget of -3 USD"),
        (["llama-2-7b", "--tokens", "2T", "--deadline", "soon"], "'soon' is not a time"),
        (["llama-2-7b", "--tokens", "2T", "--gpu", "h100sxm9"], "unknown gpu"),
        (["llama-2-7b", "--tokens", "2T", "--gpus", "8,x"], "'x' is neither a whole number nor a range"),
        (["llama-2-7b", "--tokens", "2T", "--price", "free"], "unknown price term"),
        (["llama-2-7b", "--tokens", "2T", "--provider", "awz"], "unknown price"),
        (["llama-2-7b", "--tokens", "2T", "--gpu", "mi100"], "no on-demand price is known for whole nodes of mi100"),
        (["llama-2-7b", "--tokens", "2T", "--gpu", "rtx-4090"], "fewer than a node are for rent: --gpus 1, $"),
        (["llama-2-7b", "--tokens", "2T", "--compute-optimal"], "both given"),
        (["llama-2-7b", "--tokens", "2T", "--confidence", "80%"], "--confidence 80% is that of keeping to a deadline"),
        (["llama-2-7b", "--tokens", "2T", "--deadline", "9d", "--confidence", "0"], "--confidence 0 is out of range"),
        (["llama-2-7b", "--tokens", "2T", "--deadline", "9d", "--confidence", "99.5%"], "valid: 1% to 99%, e.g. 80%"),
        (["llama-2-7b", "--tokens", "2T", "--deadline", "9d", "--confidence", "80"], "is not a share of the runs"),
        (["llama-2-7b", "--tokens", "2T", "--spares", "-1"], "spare nodes -1 is out of range"),
        (["llama-2-7b", "--tokens", "2T", "--stragglers", "fast"], "--stragglers fast is not a share"),
        (["llama-2-7b", "--tokens", "2T", "--stragglers", "-2%"], "--stragglers -2% is not a share"),
        (["llama-2-7b", "--tokens", "2T", "--margin", "100%"], "--margin 100% is not a share of the memory"),
        (["llama-2-7b", "--tokens", "2T", "--preempted-every", "10d"], "applies to spot machines only"),
        (["llama-2-7b", "--tokens", "2T", "--price", "spot", "--preempted-every", "0d"], "0d leaves no time"),
        (["llama-2-7b", "--tokens", "2T", "--global-batch", "0"], "--global-batch 0 is out of range"),
        (["llama-2-7b", "--tokens", "2T", "--tp", "x"], "neither a whole number nor a range"),
    ],
)
def test_wrong_input_is_named(words: list[str], told: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_layers_that_stages_do_not_divide() -> None:
    """126 layers on 16 stages, as they were trained; 61 on 4."""
    words = ("--tokens", "15T", "--gpu", "h100-sxm", "--gpus", "8192", "--pp", "16", "--json")
    (option, *_) = json.loads(run("llama-3.1-405b", *words).stdout)["options"]
    assert option["layout"]["pp"] == 16


@pytest.mark.parametrize(
    "words",
    [
        ("llama-2-7b", "--gpus", "64"),
        ("mixtral-8x7b", "--gpus", "64"),
        ("mixtral-8x7b", "--gpus", "64", "--ep", "1", "--expert-imbalance", "1.5"),  # nothing reads it without ep
        ("llama-2-70b", "--gpus", "256", "--recompute", "full"),
        ("deepseek-v2", "--gpus", "512", "--pp", "16"),  # 60 layers
        ("llama-2-7b", "--gpus", "32", "--framework", "fsdp", "--seq", "2048"),
    ],
)
def test_the_command_shows_the_step_of_the_plan(words: tuple[str, ...]) -> None:
    asked = (*words, "--tokens", "300B", "--gpu", "h100-sxm", "--provider", "nebius")
    option = json.loads(run(*asked, "--json").stdout)["options"][0]
    (line,) = [line for line in run(*asked).stdout.splitlines() if line.startswith("the step ")]
    command = shlex.split(line.removeprefix("the step "))
    assert command[:2] == ["distsim", "step"]
    done = run(*command[2:], "--json", command="step")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seconds"] == pytest.approx(option["step_seconds"])


def test_layouts_keep_to_what_is_asked() -> None:
    words = ("--tp", "2", "--pp", "2,4", "--micro-batch", "1", "--recompute", "full", "--json")
    for option in json.loads(known(*ASKED, *words).stdout)["options"]:
        y = option["layout"]
        assert (y["tp"], y["micro_batch"], y["recompute"]) == (2, 1, "full")
        assert y["pp"] in (2, 4)
    refused = known(*ASKED, "--tp", "3")
    assert refused.returncode == 2
    assert "satisfies --tp 3" in refused.stderr


def test_of_layouts_as_fast_the_one_with_most_room_is_planned() -> None:
    """Sharding states over 16 ranks instead of 32 saved 0.1% of the time and filled 99.3% of the memory."""
    job = Job.read({"model": "llama-3-8b", "cluster": "nebius-h100", "gpus": 64, "seq": 8192, "global_batch": 512,
                    "framework": "megatron-core"})  # fmt: skip
    cluster = catalog.load("clusters", "nebius-h100")
    found = best_layouts(job, cluster, 64, Bounds(), 2, whole=True)
    reports = [step_of(with_options(job, cluster, one.options)) for one in found]
    assert all(
        one.report is None or one.report.seconds == again.seconds for one, again in zip(found, reports, strict=True)
    )
    assert [one.report is None for one in found[:2]] == [False, False]
    quick = min(report.seconds for report in reports) * (1 + ALIKE)
    every = search(
        Request(job, (64,), space(job, cluster, Bounds(), True), top=64, overrides=overrides_of(job, cluster))
    )
    least = min(one.report.memory.peak for one in every.best if one.report.seconds <= quick)
    assert min(report.memory.peak for report in reports if report.seconds <= quick) <= least
    words = ("--tokens", "1T", "--cluster", "nebius-h100", "--gpus", "64", "--seq", "8192", "--global-batch", "512")
    answer = json.loads(piped("plan", "llama-3-8b", *words, "--json").stdout)
    chosen = sure_to_fit(reports).memory
    assert answer["options"][0]["memory_fraction"] == pytest.approx(chosen.peak / chosen.capacity, rel=1e-3)


def test_why_there_is_no_layout_is_worked_out_only_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one stage the usual space has none of so few sequences on so many accelerators; the wide one has."""
    told: list[Request] = []

    def why(request: Request, base: Setup, batches: Sequence[int]) -> DistsimError:
        told.append(request)
        return contradiction(request, base, batches)

    for module in ("layouts.search", "plans.layouts"):
        monkeypatch.setattr(f"distsim.engine.{module}.contradiction", why)
    cluster = catalog.load("clusters", "p5.48xlarge")
    job = Job(model="llama-3-8b", cluster=cluster.name, gpus=512, global_batch=16, seq=4096)
    assert all(one.options["cp"] > 1 for one in best_layouts(job, cluster, 512, parse_bounds({"pp": "1"}, []), 2))
    assert not told
    with pytest.raises(DistsimError, match="no layout of llama-3-8b on 512 GPUs"):
        best_layouts(job, cluster, 512, parse_bounds({"pp": "1", "cp": "1"}, []), 2)
    assert len(told) == 1


def test_memory_that_is_not_tight_costs_no_time() -> None:
    """A layout that is 0.9% slower and needs less is taken only where the fastest might not fit."""

    def report(seconds: float, peak: float) -> Any:
        return SimpleNamespace(seconds=seconds, memory=SimpleNamespace(peak=peak, capacity=100.0))

    half, full, less, least = report(1.0, 50), report(1.0, 99), report(1.008, 70), report(1.009, 40)
    assert sure_to_fit([half, less, least]) is half
    assert sure_to_fit([full, least, less]) is less  # of those that are sure to fit the fastest
    assert sure_to_fit([full, report(1.02, 40)]) is full
    assert sure_to_fit([full, report(1.005, 98)]).memory.peak == 98


def test_the_batch_grows_with_the_cluster() -> None:
    """4M tokens up to 2,048 GPUs, then 2,048 tokens each, up to what is good for the run."""
    grows = StepBatch(4096)
    assert [grows.sequences(gpus) for gpus in (1, 512, 2048, 8192)] == [1024, 1024, 1024, 4096]
    assert grows.sequences(768) == 3 * 256  # so that 3 divides it
    assert StepBatch(4096, most_tokens=10e6).sequences(16384) == 2048
    assert StepBatch(4096, stated=7).sequences(16384) == 7
    assert StepBatch(4096, most_tokens=30e6, sparse=True).sequences(512) == 8192  # experts see few of the tokens each
    assert scaling.good_batch_tokens(6 * 67e9 * 2e12) == pytest.approx(19.2e6, rel=0.02)
    assert "4M tokens, or 2,048 per accelerator" in known(*ASKED).stderr
    told = StepBatch(8192, most_tokens=23.4e6, sparse=True).words([2048])
    assert "2,048 sequences (16.8M tokens) per step: " in told and "the 23.4M tokens" in told
    assert "1,024 to 4,096 sequences (4.19M to 16.8M tokens) per step" in grows.words([4096, 1024, 1024])
    assert "odd factor" not in told and "odd factor" not in StepBatch(4096, most_tokens=7.2e6).words([2048])
    odd = StepBatch(4096, most_tokens=7.2e6)
    assert odd.sequences(100_000) == 3125  # 2^5 times that
    assert "divide the batch; 3,125 is more: an odd factor of the accelerators" in odd.words([1000, 3125])


def test_spot_machines_that_are_taken_away() -> None:
    words = ("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "128", "--price", "spot", "--json")
    kept, taken = (json.loads(run(*words, *more).stdout) for more in ((), ("--preempted-every", "10d")))
    assert "price lists do not state" in " ".join(kept["notes"])
    assert "price lists do not state" not in " ".join(taken["notes"])
    one, other = kept["options"][0], taken["options"][0]
    assert other["interruptions"] > 4 * one["interruptions"]
    assert other["goodput"] < one["goodput"]


def test_terms_side_by_side() -> None:
    """Each provider at each term; spot machines alone are taken away."""
    words = ("--price", "on-demand,spot", "--preempted-every", "5d", "--json")
    options = json.loads(known(*ASKED, *words).stdout)["options"]
    assert {option["price"]["term"] for option in options} == {"on-demand", "spot"}
    kept = {(one["price"]["provider"], one["cluster"], one["gpus"], one["price"]["term"]): one for one in options}
    pairs = [(one, kept.get((*key[:3], "spot"))) for key, one in kept.items() if key[3] == "on-demand"]
    both = [(one, other) for one, other in pairs if other is not None]
    assert both
    for steady, spot in both:
        assert spot["goodput"] < steady["goodput"]
        assert spot["step_seconds"] == steady["step_seconds"]
    assert "unknown price term 'spott'" in known(*ASKED, "--price", "on-demand,spott").stderr


def test_planned_maintenance_costs_its_time() -> None:
    """Ten minutes every hour; nothing is lost besides."""
    none, often = (json.loads(known(*FEW, *more, "--json").stdout) for more in ((), ("--maintenance-every", "1h")))
    assert often["options"][0]["days"] / none["options"][0]["days"] == pytest.approx(1 + 10 / 60, rel=1e-6)


def test_stragglers_set_the_pace() -> None:
    even, uneven = (json.loads(known(*FEW, *more, "--json").stdout) for more in ((), ("--stragglers", "2%")))
    slower = uneven["options"][0]["days"] / even["options"][0]["days"]
    assert slower == pytest.approx(1 + 0.02 * 2.9, rel=0.01)  # the slowest of 256: about 2.9 deviations


def test_experts_are_spread() -> None:
    done = run(
        "mixtral-8x7b",
        "--tokens",
        "1T",
        "--gpu",
        "h100-sxm",
        "--gpus",
        "64",
        "--zero",
        "1",
        "--cp",
        "1",
        "--pp",
        "1,2",
        "--json",
    )
    assert {option["layout"]["ep"] for option in json.loads(done.stdout)["options"]} == {8}


def test_nobody_rents_out_part_of_a_node() -> None:
    done = run("gpt2", "--tokens", "10B", "--gpu", "h100-sxm", "--gpus", "1,8", "--json")
    options = json.loads(done.stdout)["options"]
    assert any("8x" in option["price"]["instance"] for option in options)
    assert all(option["gpus"] == 8 for option in options if "8x" in option["price"]["instance"])


def test_batches_with_a_factor_of_three_or_five_come_in_such_micro_batches() -> None:
    """SmolLM3 was trained with tp 2 and micro-batches of 3 on 384 GPUs (its training recipe)."""
    assert micro_batches(8192, 2048) == [1, 2, 4, 8, 16]
    assert micro_batches(8192, 576) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert micro_batches(8192, 60) == [1, 2, 3, 4, 5, 6, 8, 10, 12, 16]
    words = ("--tokens", "11.2T", "--gpu", "h100-sxm", "--gpus", "384", "--seq", "4096", "--framework", "nanotron",
             "--global-batch", "576", "--provider", "nebius", "--json")  # fmt: skip
    found = json.loads(run("smollm3-3b", *words).stdout)["options"][0]["layout"]
    assert (found["tp"], found["micro_batch"]) == (2, 3)


def test_short_sequences_come_in_large_micro_batches() -> None:
    """A micro-batch is as many tokens at 512 as at 8,192: 16 sequences of BERT leave a B200 idle."""
    assert [micro_batches(seq, 512)[-1] for seq in (196, 512, 2048, 8192, 131_072)] == [512, 256, 64, 16, 16]
    words = ("bert-large", "--tokens", "137B", "--gpu", "b200-sxm", "--gpus", "8", "--provider", "nebius", "--json")
    free, small = (
        json.loads(run(*words, *more).stdout)["options"][0] for more in ((), ("--micro-batch", "1,2,4,8,16"))
    )
    assert free["layout"]["micro_batch"] > 16 and free["dollars"] < 0.7 * small["dollars"]


def test_long_sequences_are_cut_among_ranks_and_told() -> None:
    """At 131,072 tokens a little tensor and some context parallelism beat eight tensor parallel ranks."""
    words = ("llama-3.1-8b", "--seq", "131072", "--tokens", "10B", "--gpu", "h200-sxm", "--gpus", "64",
             "--provider", "nebius")  # fmt: skip
    (free,), (whole,) = (json.loads(run(*words, "--json", *more).stdout)["options"] for more in ((), ("--cp", "1")))
    assert free["layout"]["cp"] > 1 and free["dollars"] < whole["dollars"]
    assert f"cp {free['layout']['cp']}, dp " in run(*words).stdout


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_instances_of_some_gpus_of_a_node(gpus: int) -> None:
    """Lambda rents out 1, 2, 4 and 8 H100, each at its own rate; a job of a node has none of the small ones."""
    words = ("llama-3.1-8b", "--tokens", "200M", "--gpu", "h100-sxm", "--gpus", f"{gpus},16", "--lora-rank", "16",
             "--seq", "4096", "--global-batch", "64", "--framework", "huggingface", "--json")  # fmt: skip
    options = json.loads(run(*words, "--provider", "lambda,nebius").stdout)["options"]
    (small,) = (one for one in options if one["gpus"] == gpus)
    assert (small["price"]["provider"], small["price"]["instance"]) == ("Lambda", f"{gpus}x h100-sxm")
    assert not any(one["price"]["instance"].startswith(f"{gpus}x") for one in options if one is not small)


def test_slices_of_tpus_are_planned() -> None:
    """Their rows count four chips, their hosts have eight."""
    words = ("llama-3-8b", "--tokens", "100B", "--gpu", "tpu-v6e,tpu-v5e", "--gpus", "128", "--framework", "maxtext")
    options = json.loads(run(*words, "--json").stdout)["options"]
    assert {one["gpu"] for one in options} == {"tpu-v5e", "tpu-v6e"}


def test_sentences_fold_to_the_terminal() -> None:
    text = run(*FEW, "--top", "3", COLUMNS="72").stdout
    sentences = text.split("Options, cheapest first")[0]
    assert max(len(line) for line in sentences.splitlines() if not line.startswith("the step")) <= 72
    assert max(map(len, run(*FEW, "--top", "3").stdout.splitlines())) > 110


def test_plans_that_take_for_ever_are_told() -> None:
    ages = run("llama-3-8b", "--gpu", "h100-sxm", "--tokens", "1000T", "--gpus", "8", "--provider", "nebius")
    assert ages.returncode == 1
    assert "more than 10 years" in ages.stderr


def test_what_leaves_failing_machines_no_time_is_named(tmp_path: Path) -> None:
    """Fewer machines are no help against checkpoints that are due once a month, and little against slow storage."""
    job = "llama-2-70b", "--tokens", "2T", "--gpu", "h200-sxm", "--price", "2"
    seldom = run(*job, "--gpus", "512", "--checkpoint-every", "30d")
    assert seldom.returncode == 1
    assert "fails every 4.1 days on 512 x h200-sxm, and a checkpoint is due every 30.0 days" in seldom.stderr
    assert "leave --checkpoint-every out: the best for so many is " in seldom.stderr
    storage = tmp_path / "slow.toml"
    storage.write_text('name = "slow"\nwrite_rate = "20 MB/s"\n[source]\nother = "x"\nchecked = 2026-11-01\n')
    slow = run(*job, "--gpus", "16384", "--storage", str(storage))
    assert slow.returncode == 1
    assert "fails every 3.1 h on 16,384 x h200-sxm, and writing a checkpoint takes 13.4 h" in slow.stderr
    assert "use storage that writes faster, or fewer of them, about --gpus " in slow.stderr


BOUGHT = "llama-7b", "--tokens", "1T", "--gpu", "h100-sxm", "--gpus", "64", "--provider", "aws"


@pytest.mark.parametrize(
    "options",
    [
        ("--compile", "--framework", "torchtitan", "--no-clip"),
        ("--offload", "parameters"),
        ("--offload", "optimizer", "--offload-to", "nvme", "--framework", "deepspeed"),
        ("--no-sync", "--no-loss-parallel", "--tp", "4"),
        ("--schedule", "zb-h1", "--pp", "4", "--sequence-parallel", "off", "--tp", "2"),
        ("--recompute", "full", "--recompute-layers", "2"),
        ("--lora-rank", "8", "--lora-whole", "norms", "--lora-dropout", "0.1"),
    ],
)
def test_options_of_a_step_hold_for_a_plan(options: tuple[str, ...]) -> None:
    """The step of a plan's cheapest option is the one that ``distsim step`` computes for the command it prints."""
    chosen = run(*BOUGHT, *options, "--json")
    answer = json.loads(chosen.stdout)
    told = next(line for line in run(*BOUGHT, *options).stdout.splitlines() if line.startswith("the step"))
    words = shlex.split(told.removeprefix("the step").strip())[2:]
    again = json.loads(run(*words, "--json", command="step").stdout)
    assert again["seconds"] == pytest.approx(answer["options"][answer["cheapest"]]["step_seconds"], rel=1e-9)
    assert answer["options"][0] != json.loads(known(*BOUGHT, "--json").stdout)["options"][0]


def test_options_that_no_layout_reads_are_told() -> None:
    for given, words in (
        (("--no-loss-parallel", "--tp", "1"), "--no-loss-parallel has no effect: tp is 1 in every layout tried"),
        (("--schedule", "1f1b", "--pp", "1"), "--schedule has no effect: pp is 1 in every layout tried"),
        (("--no-dropout",), "--no-dropout has no effect: llama-7b has none"),
        (("--cp-mode", "ring", "--cp", "1"), "--cp-mode has no effect: cp is 1 in every layout tried"),
    ):
        assert words in run(*BOUGHT, *given).stderr
    assert "has no effect" not in run(*BOUGHT, "--no-loss-parallel", "--tp", "4").stderr
    lost = run(*BOUGHT, "--sequence-parallel", "off").stderr  # because of which tp is 1
    assert "--sequence-parallel is read with tp > 1 alone: such layouts were tried with it, and none is" in lost
    assert "has no effect" not in lost


def test_the_dispatcher_is_read_where_experts_are_cut_without_expert_parallelism() -> None:
    one = {"tp": 2, "ep": 1, "micro_batch": 1, "recompute": "none", "gpu": "b200-sxm", "gpus": 8, "price": 2.0}
    for etp in (1, 2):
        notes = distsim.plan("olmoe-1b-7b", "10B", expert_dispatcher="allgather", etp=etp, **one).notes
        assert any("--expert-dispatcher has no effect" in note for note in notes) == (etp == 1)


def test_files_list_what_a_plan_offloads(tmp_path: Path) -> None:
    (tmp_path / "distsim.toml").write_text('offload = ["optimizer", "activations"]\nsequence_parallel = false\n')
    told = piped("plan", *BOUGHT, folder=tmp_path)
    assert told.returncode == 0 and "--offload optimizer,activations" in told.stdout


def test_wrong_choices_are_told_as_typed() -> None:
    wrong = run(*BOUGHT, "--offload", "optimiser")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: --offload")


def test_a_checkpoint_holds_predictions_of_further_tokens() -> None:
    """DeepSeek-V3's module has 11.6 billion parameters, 14 bytes each."""
    job: dict[str, Any] = {"model": "deepseek-v3", "gpu": "h200-sxm", "gpus": 512, "pp": 8, "ep": 64, "zero": 1,
                           "global_batch": 512, "seq": 4096}  # fmt: skip
    bare, more = (checkpoint_of(step_of(resolve(Job(**job, **mtp)))).total_bytes for mtp in ({}, {"mtp": 1}))
    assert (more - bare) / 14 == pytest.approx(11.6e9, rel=0.01)
