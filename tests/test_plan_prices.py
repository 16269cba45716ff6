"""Which prices a plan reckons with, why it may have no option at all, and which of its options are worth telling."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

import distsim
from distsim.engine.planner import Plan
from distsim.engine.plans.prices import day
from distsim.errors import DistsimError
from distsim.report import html, html_sections
from distsim.report.plan import lines
from distsim.report.style import style

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
    assert "prices to buy" not in " ".join(both.notes)
    assert both.buying(both.options[0]) is None  # its price is as old
    assert "Prices more than 200 days older than the newest known one are left out, as asked." in paged(both)


def test_rents_that_are_too_old_are_told_as_that() -> None:
    with pytest.raises(DistsimError, match="--price-age 1d leaves no on-demand price of b300-sxm") as refused:
        planned(gpu="b300-sxm", price_age="1d")
    assert "a longer --price-age" in refused.value.hints[0]


def test_by_default_prices_to_buy_are_taken_whatever_their_age_and_nothing_else_is_said() -> None:
    both = planned(price="on-demand,owned")
    assert "owned" in {one.quote.term for one in both.options}
    assert any(re.fullmatch(r"\d+ prices of rent are over 365 days older than the newest and left out", one)
               for one in both.notes)  # fmt: skip
    assert any(one.startswith("prices to buy are few and taken whatever their age") for one in both.notes)
    page = str(html_sections.prices(both, TODAY))
    assert "Rents more than 365 days older than the newest known one are left out. Prices to buy are taken" in page
    alone = planned(price="owned")
    assert not [one for one in alone.notes if "left out" in one]
    assert "left out" not in str(html_sections.prices(alone, TODAY))


def test_too_many_accelerators_are_not_answered_with_more() -> None:
    made = distsim.plan("llama-2-7b", "300B", gpu="h100-sxm", gpus="10000000")
    assert made.infeasible is not None
    assert "no plan ends: something fails every 18.0 s on 10,000,000 x h100-sxm" in made.infeasible.problem
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
