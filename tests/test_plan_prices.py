"""Which prices a plan reckons with, why it may have no option at all, and which of its options are worth telling."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.campaigns.prices import day, own_rate
from distsim.engine.plans.planner import Plan
from distsim.errors import DistsimError
from distsim.report import html, html_sections
from distsim.report.plan import explained, lines, table
from distsim.report.search import head
from distsim.report.style import style
from distsim.units import dollars

TODAY = datetime.date(2026, 11, 1)
RUN: dict[str, Any] = {"model": "llama-2-7b", "tokens": "300B", "gpu": "h100-sxm", "gpus": "64", "tp": 1, "pp": 1}


def planned(**options: Any) -> Plan:
    return distsim.plan(**{**RUN, **options})


def told(made: Plan) -> str:
    """What the terminal shows, on one line."""
    return " ".join(" ".join(lines(made, 0, 12, TODAY, style())).split())


def paged(made: Plan) -> str:
    """The words of the page."""
    return " ".join(re.sub(r"<[^>]*>", " ", html.page(made, 0, 12, TODAY)).split())


def test_a_stated_age_holds_for_prices_to_buy_too() -> None:
    with pytest.raises(DistsimError, match="--price-age 30d leaves no owned price of h100-sxm"):
        planned(price="owned", price_age="30d")
    both = planned(price="on-demand,owned", price_age="200d")
    newest = max(day(one.quote.date) for one in both.options)
    assert {one.quote.term for one in both.options} == {"on-demand"}
    assert min(day(one.quote.date) for one in both.options) >= newest - 200
    assert "purchase prices" not in " ".join(both.notes)
    assert both.buying(both.options[0]) is None  # its price is as old
    assert "Prices more than 200 days older than the newest known one are left out, as asked." in paged(both)


def test_rents_that_are_too_old_are_told_as_that() -> None:
    with pytest.raises(DistsimError, match="--price-age 1d leaves no on-demand price of b300-sxm") as refused:
        planned(gpu="b300-sxm", price_age="1d")
    assert "a longer --price-age" in refused.value.hints[0]


def test_a_cluster_whose_prices_are_too_old_is_named_alone_with_what_there_is_instead() -> None:
    with pytest.raises(DistsimError, match=r"leaves no on-demand price of dgx-h100\n") as refused:
        planned(gpu="h100-sxm", cluster="dgx-h100", gpus=64)
    like, age, buy = refused.value.hints
    assert like.startswith("similar to dgx-h100, with prices: ") and "nebius-h100" in like
    assert "--price-age" in age and buy == "or buy machines: --price owned"


def test_a_power_limit_holds_for_machines_that_are_bought() -> None:
    """By hand, 400 W of an H100's 700: the hall is paid for (1275 - 300) W, 687.5 W are drawn at 40% of the peak."""
    free, limited = (planned(price="owned", gpu="h100-sxm", gpu_power=watts).options[0] for watts in (None, "400"))
    own = limited.quote.usd_per_gpu_hour
    parts = planned(price="on-demand", gpu="h100-sxm", gpu_power="400")
    beside = parts.buying(parts.options[0])
    assert beside is not None and own == pytest.approx(beside.owned_per_hour, rel=0.005)
    assert own < free.quote.usd_per_gpu_hour - 0.08
    assert beside.parts["hall"] == pytest.approx(0.257, abs=0.001)


def test_by_default_prices_to_buy_are_taken_whatever_their_age_and_nothing_else_is_said() -> None:
    both = planned(price="on-demand,owned")
    assert "owned" in {one.quote.term for one in both.options}
    assert any(re.fullmatch(r"\d+ rents left out: more than 365 days older than the newest", one)
               for one in both.notes)  # fmt: skip
    assert any(one.startswith("purchase prices are few and used whatever their age") for one in both.notes)
    page = str(html_sections.prices(both, TODAY))
    assert "Rents more than 365 days older than the newest known one are left out. Purchase prices are used" in page
    alone = planned(price="owned")
    assert not [one for one in alone.notes if "left out" in one]
    assert "left out" not in str(html_sections.prices(alone, TODAY))


def test_too_many_accelerators_are_not_answered_with_more() -> None:
    made = distsim.plan("llama-2-7b", "300B", gpu="h100-sxm", gpus="10000000")
    assert made.infeasible is not None
    assert "no plan finishes: something fails every 18.0 s on 10,000,000 x h100-sxm" in made.infeasible.problem
    fewer = re.search(r"use fewer of them, about --gpus (\d+)", made.infeasible.hints[0])
    assert fewer and distsim.plan("llama-2-7b", "300B", gpu="h100-sxm", gpus=fewer[1]).options


def test_too_few_accelerators_are_answered_with_as_many_as_arithmetic_asks_for() -> None:
    asked: dict[str, Any] = {"model": "llama-3.1-405b", "gpu": "h100-sxm", "pp": 16, "tp": 8, "provider": "nebius"}
    few = distsim.plan(tokens=1e15, gpus="4096", **asked)
    assert few.infeasible is not None
    more = re.search(r"--gpus (\d+)", few.infeasible.hints[0])
    assert more and int(more[1]) > 4096
    assert distsim.plan(tokens=1e15, gpus=more[1], **asked).options
    never = distsim.plan(tokens=1e17, gpus="4096", **asked)
    assert never.infeasible is not None and "--gpus" not in " ".join(never.infeasible.hints)
    assert "would fail too often: train on fewer tokens" in never.infeasible.hints[0]


@pytest.fixture(scope="module")
def bought() -> Plan:
    return planned(price="owned", budget="300k")


def test_what_is_bought_is_not_worded_as_rent() -> None:
    made = planned(price="owned")
    words = paged(made)
    assert "Cheapest: buy 64 × h100-sxm" in words and "Shares of the cost" in words
    assert "Bought, per h100-sxm" in words and "Rent or buy" not in words
    for none in (" Rent ", "renting", "the rent of acc", "break-even", "inf "):
        assert none not in words, none
    shown = "\n".join(explained(made, style()))
    assert "owned, per hour in use" in shown and "break-even" not in shown
    assert made.notes[0].startswith("dollars are the cost of hours on owned accelerators")
    buying = made.to_dict()["buying"]
    assert {(year["renting"], year["renting_so_far"]) for year in buying["years"]} == {(None, None)}
    assert buying["years"][0]["buying"] > 0


def test_rent_is_still_held_against_buying() -> None:
    made = planned(provider="nebius")
    words = paged(made)
    for some in ("Cheapest: rent 64", "Shares of the rent", "Rent or buy, per h100", "renting so far", "break-even"):
        assert some in words, some
    assert made.to_dict()["buying"]["years"][0]["renting"] > 0
    never = replace(made, options=tuple(replace(one, quote=replace(one.quote, usd_per_gpu_hour=0.01))
                                        for one in made.options))  # fmt: skip
    assert re.search(r"break-even +never$", "\n".join(explained(never, style())), re.MULTILINE)
    assert "break-even never" in paged(never)


def test_what_is_owed_stands_beside_what_is_too_dear(bought: Plan) -> None:
    assert "dollars owed misses by" in told(bought)
    assert re.search(
        r"purchase 4\.\d \$\d+k \$3\.12M \$2\.8\dM over budget, because machines are paid in full", told(bought)
    )
    assert "dollars owed misses by" in paged(bought) and "$3.12M" in paged(bought)


def test_rows_beyond_the_limits_are_marked() -> None:
    free, tight = planned(provider="nebius,lambda"), planned(provider="nebius,lambda", budget="25k")
    rows = [line for line in "\n".join(table(tight, 12, TODAY, style())).splitlines() if "h100-sxm" in line]
    assert len(rows) == len(tight.options) > 1
    for row, option in zip(rows, tight.options, strict=True):
        assert row.split()[0].endswith(("x", "✗")) != tight.request.wish.met(option), row
    assert "outside the limits" in told(tight) and "✗ outside the limits" in paged(tight)
    assert "outside the limits" not in told(free) + paged(free)


def test_the_front_is_in_the_plot_however_dear() -> None:
    made = distsim.plan("llama-2-7b", "300B", deadline="14d", gpu="h200-sxm,b200-sxm", price="reserved-1y,reserved-3y",
                        tp=1, pp=1)  # fmt: skip
    dearest = max(made.options[index].payable_dollars for index in made.pareto)
    assert dearest > 8 * min(one.payable_dollars for one in made.options)
    shown = lines(made, 0, 6, TODAY, style())
    letters = [line for line in shown if re.match(r"  [a-z]  [\d.]+ (days|h|min), \$", line)]
    assert len(letters) == len(made.pareto)
    assert f"{dollars(dearest)}: " in letters[0]


def test_expected_failures_are_the_option_s_own() -> None:
    made = distsim.plan("llama-3.1-405b", "1T", gpu="h100-sxm", gpus="2048", tp=8, pp=16, provider="nebius")
    option = made.options[0]
    found = re.search(r"failures ([\d.]+) expected, one every ([\d.]+) (h|days)", told(made))
    assert found
    between = float(found[2]) * (1 if found[3] == "days" else 1 / 24)
    assert float(found[1]) == pytest.approx(option.days / between, abs=0.6)
    assert float(found[1]) == pytest.approx(option.interruptions, abs=0.5)


def test_failures_on_spot_machines_are_told_to_be_preemptions_too() -> None:
    """Without spares a failure waits for its repair; a node that is taken away is replaced."""
    asked: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 128, "tp": 1, "pp": 1, "provider": "nebius", "spares": 0}
    spot = distsim.plan("llama-3-8b", "200B", price="spot", preempted_every="5d", **asked)
    assert "expected with preemptions, one every" in told(spot)
    assert "none: each failure that is no preemption waits for its repair, 24.0 h" in told(spot)
    steady = distsim.plan("llama-3-8b", "200B", **asked)
    assert "preemption" not in told(steady) and "none: each failure waits for its repair" in told(steady)
    assert spot.options[0].interruptions > 10 * steady.options[0].interruptions


def test_that_only_adapters_train_is_told_everywhere() -> None:
    words = "adapters of rank 16 on nf4 weights (q, v) train"
    tuned = planned(lora_rank=16, quantize="nf4", framework="huggingface", clip=False)
    assert words in told(tuned)
    page = paged(tuned)
    assert "Training adapters of llama-2-7b: which accelerators" in page and f"; {words}; estimated on" in page
    assert page.count(f"A{words[1:]}, nothing else.") == 2  # the answer and the assumptions
    job = tuned.to_dict()["job"]
    assert job == {"model": "llama-2-7b", "framework": "huggingface", "seq": 4096, "lora_rank": 16, "quantize": "nf4",
                   "clip": False}  # fmt: skip
    assert "adapters of" not in told(planned(provider="nebius")) + paged(planned(provider="nebius"))
    report = distsim.search("llama-2-7b", gpus="8", lora_rank=16, quantize="nf4", framework="huggingface")
    assert words in " ".join(" ".join(head(report, style())).split())


def test_nothing_is_told_twice() -> None:
    notes = distsim.plan("llama-3-8b", "100B", gpu="tpu-v5p", gpus="64", tp=1, pp=1).notes
    assert len(set(notes)) == len(notes)
    assert sum("tpu-v5p is timed under maxtext" in note for note in notes) == 1


def test_a_single_accelerator_is_not_told_as_all_of_them() -> None:
    assert "all 1 of them" not in told(distsim.plan("gpt2", "1B", gpu="h100-sxm", gpus="1"))
    assert "all 64 of them cost" in told(planned(provider="nebius"))


@pytest.mark.parametrize(("price", "problem"), [("free", "unknown price term"), ("owned", "machines that are bought")])
def test_a_search_is_not_offered_terms_that_it_does_not_know(price: str, problem: str) -> None:
    with pytest.raises(DistsimError, match=problem) as refused:
        distsim.search("llama-2-7b", gpus="8", price=price)
    assert price == "owned" or "owned" not in refused.value.text()


def test_what_a_shell_leaves_of_a_price_is_not_taken_for_one() -> None:
    """``--price $2.50`` is .50 by the time it arrives, and a plan cost a fifth."""
    with pytest.raises(DistsimError, match="may be what a shell left of a price"):
        own_rate(".50", ())
    assert own_rate("0.50", ()) == 0.5


@pytest.mark.parametrize("price", ["2.5USD", "2.50,spot"])
def test_a_rate_that_is_no_number_alone_is_told_how_to_write_one(price: str) -> None:
    with pytest.raises(DistsimError, match="unknown price term") as refused:
        planned(price=price)
    assert "or dollars per GPU-hour, alone and without a unit: 2.50" in refused.value.text()


def test_one_rent_that_is_left_out_is_one(tmp_path: Path) -> None:
    old = tmp_path / "old.toml"
    row = '[[offers]]\ninstance = "{}"\ngpu = "h100-sxm"\ngpus = 8\non_demand = 2.0\ndate = "{}"\nsource = "ours"\n'
    rows = (row.format("a", "2026-11-01"), row.format("b", "2018-11-01"))
    old.write_text('provider = "Ours"\ncurrency = "USD"\n' + "".join(rows), encoding="utf-8")
    assert "1 rent left out: more than 365 days older than the newest" in planned(provider=str(old)).notes
    stated = planned(provider=str(old), price_age="30d").notes
    assert "1 price left out: more than 30 days older than the newest" in stated


def test_a_plan_takes_a_rate_of_one_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    """As a search does; for the machines that are named, as nobody pays one rate for all there are."""
    asked = ["plan", "gpt2", "--tokens", "10B", "--gpus", "4,8,16", "--json"]
    assert run([*asked, "--gpu", "h100-sxm", "--price", "2.50"]) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    assert {one["gpus"] for one in options} == {4, 8, 16} and {one["cluster"] for one in options} == {"dgx-h100"}
    assert all(one["dollars"] == pytest.approx(2.5 * one["gpu_hours"]) for one in options)
    for wrong, words in (
        (("--price", "2.50"), "neither --gpu nor --cluster names one"),
        (("--price", "2.50", "--gpu", "h100-sxm", "--provider", "aws"), "both set the price"),
        (("--price", "0", "--gpu", "h100-sxm"), "is not a rate per GPU-hour"),
        (("--price", "2.50", "--gpu", "h100-sxm", "--price-age", "1y"), "--price-age has no effect"),
    ):
        assert run([*asked, *wrong]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
    assert distsim.plan("gpt2", "10B", gpu="h100-sxm", gpus=8, price=2.5).cheapest is not None


def test_a_rate_of_one_s_own_has_no_date(capsys: pytest.CaptureFixture[str]) -> None:
    """It was dated by the day on which it was typed, so that the same command had other answers the day after."""
    asked = ["plan", "gpt2", "--tokens", "10B", "--gpus", "8", "--gpu", "h100-sxm", "--price", "2.50"]
    assert run(asked) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "$2.50 per GPU-hour (a rate of your own)" in text and "price age" not in text
    assert run([*asked, "--json"]) == 0
    price = json.loads(capsys.readouterr().out)["options"][0]["price"]
    assert price["date"] is None and price["instance"] == ""


def test_a_plan_of_layouts_that_shard_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The group that shards nothing had been asked for again by its size, which is refused beside ZeRO 0."""
    assert run(["plan", "gpt2", "--tokens", "10B", "--gpus", "8", "--gpu", "h100-sxm", "--zero", "0"]) == 0
    assert "the step" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["llama-2-7b", "gpt2"])
def test_what_a_model_s_own_optimum_costs_is_optimal_for_that_model(model: str) -> None:
    """7.19B parameters were told to be optimal for what 6.74B with 20 tokens each had just been found to cost: FLOPs of
    attention were counted in a rule of 6 per parameter and token."""
    made = planned(model=model, tokens=None, compute_optimal=True, provider="nebius")
    assert made.cheapest is not None
    best = made.optimum(made.cheapest)
    assert best is not None and best.parameters == pytest.approx(made.model.parameters)


@pytest.mark.parametrize(("model", "told"), [("llama-2-7b", False), ("mixtral-8x7b", True)])
def test_tokens_of_a_mixture_by_the_parameters_that_a_token_passes(model: str, told: bool) -> None:
    made = planned(model=model, tokens=None, compute_optimal=True, provider="nebius")
    assert any("measured on dense models: by the 12.7B parameters" in note for note in made.notes) is told
