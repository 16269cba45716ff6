"""Dollars, kilowatt-hours and Chinchilla's numbers against what others published."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy
import pytest

import distsim
from distsim import catalog
from distsim.engine.jobs.hardware import profile_of
from distsim.engine.plans.energy import draw
from distsim.engine.plans.ownership import ownership, system_for
from distsim.formulas import energy, money, scaling
from distsim.report.plan_buying import assumed
from distsim.specs.facility import Facility
from distsim.units import DAY

ORACLE = Path(__file__).parent / "oracles" / "whole_runs.csv"  # figures as published, each row with its source
# dollars per GPU-hour that the sources state for their own runs
RATES = {"DeepSeek-V3": 2.0, "llm.c GPT-2 1558M": 28 / 8, "llm.c": 14 / 8}


def runs() -> dict[str, dict[str, str]]:
    with ORACLE.open(encoding="utf-8") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


COSTED = [name for name, row in runs().items() if row["cost_usd_published"]]


@pytest.mark.parametrize("name", COSTED)
def test_published_costs_follow_from_hours_and_rate(name: str) -> None:
    """DeepSeek's exactly; llm.c rounds its own to what its hours, printed to three digits, allow."""
    row = runs()[name]
    rate = next(rate for start, rate in RATES.items() if name.startswith(start))
    cost = money.rent_dollars(float(row["gpu_hours"]), rate)
    if name.startswith("DeepSeek"):
        assert cost == float(row["cost_usd_published"])
    else:
        assert cost == pytest.approx(float(row["cost_usd_published"]), rel=0.06)


# utilisation of the peak and PUE as the sources state them; watts are predicted, hours are published
MEASURED = {
    "GShard-600B": ("tpu-v3", "tpu-v3-pod", 48.0 / 123, 1.1),  # Patterson et al. 2021, table 4
    "Switch 1.5T": ("tpu-v3", "tpu-v3-pod", 34.4 / 123, 1.1),
    "PaLM 540B": ("tpu-v4", "tpu-v4-pod", 0.462, 1.08),  # 378.5 W per chip measured, PaLM appendix B
}


@pytest.mark.parametrize("name", MEASURED)
def test_energy_of_measured_runs(name: str) -> None:
    gpu, cluster, utilisation, pue = MEASURED[name]
    row = runs()[name]
    hours = float(row["gpu_hours"])
    watts = draw(catalog.load("gpus", gpu), catalog.load("clusters", cluster), utilisation)
    assert watts is not None
    published = float(row["energy_mwh"]) if row["energy_mwh"] else hours * 378.5 * 1.08 / 1e6
    assert energy.energy_kwh(hours, watts.training, pue) / 1e3 == pytest.approx(published, rel=0.20)


def test_typical_draw_of_a_node() -> None:
    """A DGX H200 draws about 7.0 of its 10.2 kW under load, 8 B200 about 10 of 14.3; 8 H100 in heavy training 76 % of
    10.2 kW (Newkirk et al. 2025, arXiv:2506.14551)."""
    for gpu, cluster, kilowatts in (
        ("h200-sxm", "dgx-h200", 7.0), ("b200-sxm", "dgx-b200", 10.0), ("h100-sxm", "dgx-h100", 7.75),
    ):  # fmt: skip
        watts = draw(catalog.load("gpus", gpu), catalog.load("clusters", cluster), 0.4)
        assert watts is not None
        assert watts.training * 8 / 1e3 == pytest.approx(kilowatts, rel=0.1)


def test_measured_watts_of_gpt_3() -> None:
    """330 W per V100 with memory, network, fans and host, at 24.6 TFLOP/s (Patterson et al. 2021, table 4); no figure
    of the profile is from that run."""
    watts = draw(catalog.load("gpus", "v100-sxm2-32gb"), catalog.load("clusters", "dgx-1-v100-32gb"), 24.6 / 125)
    assert watts is not None
    assert watts.training == pytest.approx(330, rel=0.10)


def test_measured_watts_of_h100() -> None:
    """Over 600 W while OLMo 2 trains (Morrison et al. 2025); 37 % less work per GPU took 6 % less power (Fernandez et
    al. 2024)."""
    card, node = catalog.load("gpus", "h100-sxm"), catalog.load("clusters", "dgx-h100")
    seen = [draw(card, node, utilisation) for utilisation in (0.4, 0.4 * 0.63, 0.3)]
    near, far, olmo = (0 if one is None else one.accelerator for one in seen)
    assert near == pytest.approx(658, rel=0.01)
    assert far == pytest.approx(620, rel=0.01)
    assert olmo > 600


def test_carbon_of_a_run() -> None:
    """OLMo 2 7B: 131 MWh at PUE 1.2 and 0.332 kg/kWh are its 52 t."""
    assert energy.emitted_tonnes(131e3 * 1.2, 0.332) == pytest.approx(52, rel=0.01)


def test_what_runs_once_more_draws_what_it_drew() -> None:
    """Its products keep a chip as busy: watts had followed MFU, and fell by 3% where all layers are recomputed."""
    layout = {"gpu": ["h100-sxm"], "gpus": [256], "tp": [8], "pp": [4], "zero": [1], "micro_batch": [1]}
    once, again = (
        distsim.plan("llama-3-70b", "1T", recompute=how, recompute_layers=layers, **layout).options[0]
        for how, layers in (("none", None), ("full", [20]))
    )
    assert again.mfu < 0.8 * once.mfu and again.watts == pytest.approx(once.watts, rel=0.005)


def test_watts_rise_with_utilisation_up_to_the_label() -> None:
    seen = [energy.accelerator_watts(700, 0.48, 0.56, share) for share in (0, 0.2, 0.4, 0.56, 0.9)]
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(336)
    assert seen[-1] == 700


def test_rent_against_buy() -> None:
    house = catalog.load("facilities", "default")
    system = system_for("h100-sxm")
    assert system is not None
    cheap, dear = (ownership(system, rent, 880, house) for rent in (1.0, 6.88))
    assert dear.break_even_months < 24 and cheap.break_even_months == float("inf")
    year = dear.years[int(dear.break_even_months // 12)]  # the year in which it breaks even, before any resale
    before = dear.years[int(dear.break_even_months // 12) - 1]
    assert before.buying_so_far > before.renting_so_far
    assert year.buying_so_far < year.renting_so_far
    first, *_, last = dear.years
    kept = house.residual_fraction * dear.price
    assert first.buying - last.buying == pytest.approx(dear.price + kept), "bought in the one, sold in the other"
    assert money.break_even_months(40_000, 0.2, 0.2, 0.5, 0.8, 0.1, 5) == float("inf")


def test_a_resale_pays_what_the_rent_saved_has_not() -> None:
    """Of $49,000, an hour of $2.13 against one of $2.20 to rent: 63 months of a life of 60, but $4,900 come back."""
    house, system = catalog.load("facilities", "default"), system_for("h100-sxm")
    assert system is not None
    rents = [each / 100 for each in range(150, 400)]
    life = house.lifetime_years * 12
    found = [ownership(system, rent, 880, house) for rent in rents]
    for own in found:
        end = own.years[-1]
        pays = end.buying_so_far <= end.renting_so_far
        assert (own.break_even_months <= life) == pays == (own.owned_per_hour <= own.rent_per_hour)
    assert any(own.break_even_months == life for own in found)
    months = [own.break_even_months for own in found]
    assert months == sorted(months, reverse=True)
    assert money.break_even_months(1_000, numpy.array([1.0, 1.05, 0.01]), 0, 0, 0.022, 0.1, 5).tolist() == [
        60, pytest.approx(1_000 / (1.05 * 0.022 * 730)), float("inf")
    ]  # fmt: skip


def test_a_reservation_is_paid_in_whole_terms() -> None:
    """64 machines at $1.50: a year is $840,960, and 465 days are two of them."""
    year = 64 * 1.5 * 8_760
    for days, terms, years in ((10, 1, 1), (365, 1, 1), (366, 2, 1), (465, 2, 1), (465, 1, 3), (1_100, 2, 3)):
        assert money.reserved_terms(days * DAY, years) == terms
        assert money.reserved_dollars(64, 1.5, days * DAY, years) == pytest.approx(terms * years * year)
    assert list(money.reserved_terms(numpy.array([1, 400, 800]) * DAY, 1)) == [1, 2, 3]


def test_idle_hours_of_a_reservation_are_rented_too() -> None:
    """$3.00 for each hour of a year is $26,280, whatever share of them is used; so it is worth more to buy instead."""
    house, system = catalog.load("facilities", "default"), system_for("h100-sxm")
    assert system is not None and house.utilisation < 1
    hourly, reserved = (ownership(system, 3.0, 880, house, reserved=bound) for bound in (False, True))
    assert reserved.years[0].renting == pytest.approx(26_280)
    assert hourly.years[0].renting == pytest.approx(26_280 * house.utilisation)
    assert reserved.break_even_months < hourly.break_even_months
    used = reserved.rent_per_used_hour * house.utilisation * money.YEAR_HOURS
    assert (used, reserved.rent_per_hour) == (pytest.approx(26_280), 3.0)
    longer = ownership(system, reserved.rent_per_used_hour, 880, house)
    assert reserved.break_even_months == pytest.approx(longer.break_even_months)


def test_interest_is_that_of_what_machines_are_worth_on_average() -> None:
    """Of a price that falls from 100 to 10 in five years, 8 % a year are 8 % of 55: what each month's value bears."""
    hourly = money.interest_dollars_per_hour(100, 0.1, 0.08)
    assert hourly * money.YEAR_HOURS == pytest.approx(4.4)
    monthly = sum(money.book_value(100, 0.1, 5, (month + 0.5) / 12) * 0.08 / 12 for month in range(60))
    assert hourly * money.YEAR_HOURS * 5 == pytest.approx(monthly)
    house, system = catalog.load("facilities", "default"), system_for("h100-sxm")
    assert system is not None and house.interest == 0
    lent = house.model_copy(update={"interest": 0.08})
    free, paid = (ownership(system, 6.0, 880, one) for one in (house, lent))
    each = money.interest_dollars_per_hour(free.price, house.residual_fraction, 0.08)
    assert "interest" not in free.parts and paid.parts["interest"] == pytest.approx(each / house.utilisation)
    assert paid.owned_per_hour == pytest.approx(free.owned_per_hour + paid.parts["interest"])
    assert paid.owned_per_hour == pytest.approx(sum(paid.parts.values()))
    assert paid.years[1].buying == pytest.approx(free.years[1].buying + each * money.YEAR_HOURS)
    assert paid.break_even_months > free.break_even_months
    assert "neither interest nor staff counted" in assumed(house)
    assert "interest of 8.0% a year on the mean of price and residual value, staff not counted" in assumed(lent)


def test_a_hall_is_rented_for_what_may_be_drawn() -> None:
    """10.2 kW of a DGX H100 at 163.44 dollars per kW and month are 1,667 dollars a month; its 8 GPUs share them."""
    node = draw(catalog.load("gpus", "h100-sxm"), catalog.load("clusters", "dgx-h100"), 0.4)
    assert node is not None
    assert node.rated == pytest.approx(10_200 / 8)
    monthly = money.hall_dollars_per_hour(node.rated, 163.44) * money.MONTH_HOURS
    assert monthly * 8 == pytest.approx(1667, rel=1e-3)
    system, house = system_for("h100-sxm"), catalog.load("facilities", "default")
    assert system is not None
    there = house.model_copy(update={"usd_per_kw_month": None})
    hired, own = (ownership(system, 2.95, 880, one, node.rated) for one in (house, there))
    assert hired.owned_per_hour - own.owned_per_hour == pytest.approx(monthly / 730 / house.utilisation)


def test_books() -> None:
    assert money.book_value(100, 0.1, 5, 0) == 100
    assert money.book_value(100, 0.1, 5, 2.5) == pytest.approx(55)
    assert money.book_value(100, 0.1, 5, 50) == pytest.approx(10)
    worn = money.depreciation_dollars_per_hour(100, 0.1, 5) * 5 * money.YEAR_HOURS
    assert worn == pytest.approx(90)
    assert money.power_dollars_per_hour(1000, 1.2, 0.1) == pytest.approx(0.12)


def test_chinchilla() -> None:
    """Hoffmann et al. 2022: 67B parameters and 1.4T tokens for 5.76e23 FLOP; 10B and 205B for 1.2e22."""
    assert scaling.optimal_tokens(70e9) == pytest.approx(1.4e12)
    assert scaling.optimal_parameters(5.76e23) == pytest.approx(67e9, rel=0.05)
    assert scaling.optimal_parameters(scaling.training_flops(10e9, 200e9)) == pytest.approx(10e9)


def test_a_hall_is_rented_for_the_nameplate_of_alike_nodes() -> None:
    """Nebius states no power of its nodes; eight H100 may draw 10.2 kW wherever they stand."""
    card = catalog.load("gpus", "h100-sxm")
    told = draw(card, catalog.load("clusters", "dgx-h100"), 0.4)
    other = draw(card, catalog.load("clusters", "nebius-h100"), 0.4)
    assert told is not None and other is not None
    assert other.rated == pytest.approx(told.rated) == pytest.approx(10_200 / 8)


def test_the_same_machine_draws_the_same_whoever_rents_it_out() -> None:
    """A tray of four GB300 beside CoreWeave's, whose power is stated, and none at work draws more than it may."""
    for named, alike in (("gb300-nvl72", "lambda-gb300-n18"), ("gb200-nvl72", "bm.gpu.gb200.4")):
        stated, other = (catalog.load("clusters", name) for name in (named, alike))
        assert stated.power and not other.power
        card = catalog.load("gpus", stated.gpu)
        one, two = draw(card, stated, 0.4), draw(card, other, 0.4)
        assert one is not None and two is not None and one.training == two.training
    for name in catalog.names("clusters"):
        cluster = catalog.load("clusters", name)
        busiest = draw(catalog.load("gpus", cluster.gpu), cluster, 1.0)
        assert busiest is None or busiest.training <= busiest.rated * (1 + 1e-9), name


def test_a_facility_of_ones_own_leaves_out_what_is_as_in_the_default() -> None:
    usual, own = catalog.load("facilities", "default"), Facility.read({"name": "mine", "pue": 1.3})
    for name in (
        "upkeep_fraction",
        "network_fraction",
        "lifetime_years",
        "residual_fraction",
        "utilisation",
        "interest",
    ):
        assert getattr(own, name) == getattr(usual, name), name


def test_another_node_than_the_usual_one_draws_a_share_of_its_accelerators() -> None:
    card = catalog.load("gpus", "h100-sxm")
    usual = catalog.load("clusters", card.default_cluster)
    alike, half = (usual.model_copy(update={"power": None, "gpus_per_node": gpus}) for gpus in (8, 4))
    stated, taken, own = (draw(card, one, 0.4) for one in (usual, alike, half))
    assert stated and taken and own
    assert taken.overhead == stated.overhead
    assert own.overhead == pytest.approx(card.power * profile_of(card).node_fraction)


@pytest.mark.parametrize("life", [5.0, 2.5, 0.4])
def test_the_cash_of_a_life_is_what_its_hours_in_use_cost(life: float) -> None:
    """A life of two years and a half ended after two, at what a machine is then worth."""
    house = Facility.read({"name": "mine", "pue": 1.3, "lifetime_years": life, "usd_per_kwh": 0.1})
    system = system_for("h100-sxm")
    assert system is not None
    own = ownership(system, 3.0, 900.0, house)
    hours = house.utilisation * 8_760 * life
    assert own.years[-1].buying_so_far == pytest.approx(own.owned_per_hour * hours)
    assert own.years[-1].renting_so_far == pytest.approx(3.0 * hours)
    assert [year.year for year in own.years] == list(range(1, math.ceil(life) + 1))
