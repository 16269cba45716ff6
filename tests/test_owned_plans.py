"""Plans with machines that are bought: what an hour costs, what has to be paid, and what is said of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from shell import piped

import distsim
from distsim import catalog
from distsim.engine.figures import Figures
from distsim.engine.plans import choice
from distsim.engine.plans.energy import draw
from distsim.engine.plans.goodput import Goodput
from distsim.engine.plans.owned import BOUGHT, owned_hour, owned_quotes
from distsim.engine.plans.ownership import system_for
from distsim.engine.plans.plan import Candidate, whole_units

RACKS = ["plan", "llama-3.2-1b", "--tokens", "3T", "--deadline", "16d", "--tp", "1", "--pp", "1", "--cluster",
         "gb200-nvl72"]  # fmt: skip
RUN = ["plan", "llama-2-7b", "--tokens", "300B", "--pp", "1", "--tp", "1"]


def planned(*options: str, code: int = 0) -> str:
    done = piped(*RUN, *options)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def found(*options: str) -> dict[str, Any]:
    done = piped(*RUN, *options, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_every_accelerator_that_a_system_is_sold_with_has_a_quote_of_its_hour() -> None:
    house = catalog.load("facilities", "default")
    quotes = owned_quotes((), house)
    sold = {name for name in catalog.names("gpus") if system_for(name)}
    assert {quote.gpu for quote in quotes} == sold >= {"h100-sxm", "gb200", "vr200"}
    for quote in quotes:
        system = system_for(quote.gpu)
        assert system is not None and quote.provider == BOUGHT and quote.term == "owned"
        own = owned_hour(catalog.load("gpus", quote.gpu), catalog.load("clusters", quote.cluster), system, house)
        assert quote.usd_per_gpu_hour == pytest.approx(sum(own.parts.values()))
        life = quote.usd_per_gpu_hour * house.lifetime_years * 8766 * house.utilisation
        kept = quote.bought_dollars * (1 - house.residual_fraction)
        assert kept < life < 2.5 * kept  # all that is written off comes back over its life, with what it costs to run
        assert own.to_dict()["rent_usd_per_gpu_hour"] is None


def test_whole_racks_have_to_be_paid_and_the_run_costs_its_hours() -> None:
    options = found("--cluster", "vr200-nvl72", "--price", "owned", "--gpus", "72,80")["options"]
    by_size = {one["gpus"]: one for one in options}
    each = by_size[72]["price"]["bought_usd_per_gpu"]
    assert by_size[72]["committed_dollars"] == pytest.approx(72 * each)
    assert by_size[80]["committed_dollars"] == pytest.approx(144 * each) == by_size[80]["payable_dollars"]
    for one in options:
        assert one["dollars"] == pytest.approx(one["gpu_hours"] * one["price"]["usd_per_gpu_hour"])
        assert one["dollars"] < one["payable_dollars"]


@pytest.mark.parametrize(("gpus", "spares", "more"), [(80, 2, 0), (80, 16, 0), (80, 17, 72), (72, 1, 72)])
def test_spares_that_whole_racks_contain_are_not_bought_again(gpus: int, spares: int, more: int) -> None:
    """Of two racks for 80 accelerators 64 are left, sixteen nodes of four."""
    asked = ["--cluster", "vr200-nvl72", "--price", "owned", "--gpus", str(gpus), "--spares", str(spares)]
    option = found(*asked)["options"][0]
    assert option["spare_dollars"] == pytest.approx(more * option["price"]["bought_usd_per_gpu"])
    assert ("already among those bought" in planned(*asked)) == (not more)


WIDE = ["plan", "qwen3.5-397b-a17b", "--tokens", "1T", "--cluster", "gb200-nvl72", "--gpus", "1024", "--pp", "1"]


def test_racks_are_those_that_groups_of_ranks_need() -> None:
    """Groups of 64 are priced inside of one rack, of which they take 64 of 72: sixteen racks for 1,024, not fifteen."""
    told = piped(*WIDE, "--price", "owned", "--ep", "64").stdout
    racks = json.loads(piped(*WIDE, "--price", "on-demand,owned", "--ep", "64", "--json").stdout)["options"]
    own, rent = (next(one for one in racks if (one["price"]["term"] == "owned") == bought) for bought in (True, False))
    each = own["price"]["bought_usd_per_gpu"]
    assert own["committed_dollars"] == pytest.approx(16 * 72 * each)
    assert own["billed_gpus"] == 1152 and rent["billed_gpus"] == 1024  # of rented ones single trays are paid
    assert own["gpu_hours"] == pytest.approx(1152 * 24 * own["days"])
    power = draw(catalog.load("gpus", "gb200"), catalog.load("clusters", "gb200-nvl72"), None)
    assert power is not None  # those without ranks are on, too
    idle = 128 * own["days"] * 24 * power.idle / 1000 * catalog.load("facilities", "default").pue
    assert own["energy_kwh"] == pytest.approx(rent["energy_kwh"] + idle)
    assert own["tonnes_co2e"] / rent["tonnes_co2e"] == pytest.approx(own["energy_kwh"] / rent["energy_kwh"])
    assert "128 more than this run uses, whose groups of ranks take 64 of each 72" in told
    assert "I  accelerators without ranks  11.1%" in told
    assert "all 1,152 of them cost" in told


@pytest.mark.parametrize(("gpus", "each", "unit", "whole"), [
    (1024, 64, 72, 16 * 72), (1024, 72, 72, 15 * 72), (1024, 0, 72, 15 * 72), (1000, 64, 72, 16 * 72),
    (1024, 64, 4, 1024), (1024, 64, 36, 16 * 72), (1024, 48, 36, 21 * 72 + 36), (1024, 36, 36, 1044),
    (64, 64, 72, 72), (72, 72, 72, 72), (8, 8, 4, 8), (1024, 64, 144, 8 * 144), (1024, 64, 1, 1024),
])  # fmt: skip
def test_units_hold_whole_groups_of_ranks(gpus: int, each: int, unit: int, whole: int) -> None:
    kept = Goodput(gpus, 1e5, 600, 1, 10, 600, 1.0, 1.0, 1.0, Figures())
    one = Candidate("gb200-nvl72", "gb200", gpus, {}, 1, 1, 1, 1, kept, None, {}, domain=72, domain_gpus=each)
    assert whole_units(one, unit) == whole


def test_who_rents_whole_racks_pays_for_what_groups_leave_idle(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'name = "mine"\nprovider = "racks"\ncurrency = "USD"\n[source]\nother = "a quote"\nchecked = 2026-11-01\n'
        '[[offers]]\ninstance = "one rack"\ngpu = "gb200"\ngpus = 72\ncluster = "gb200-nvl72"\non_demand = 3.0\n'
        'reserved_1y = 2.0\ndate = "2026-11"\nsource = "their quote"\n'
    )
    words = [*WIDE, "--provider", str(mine), "--ep", "64", "--etp", "1", "--price", "on-demand,reserved-1y"]
    words[words.index("1024")] = "1152"
    hourly, year = json.loads(piped(*words, "--json").stdout)["options"][::-1]
    assert hourly["billed_gpus"] == 18 * 72 == year["billed_gpus"]
    assert hourly["dollars"] == pytest.approx(18 * 72 * 24 * hourly["days"] * 3.0)
    assert year["committed_dollars"] == pytest.approx(18 * 72 * 8766 * 2.0, rel=1e-3)
    assert hourly["spare_dollars"] == 0 < hourly["spare_nodes"] <= 144 / 4
    told = piped(*words).stdout
    assert "1,296 accelerators in whole instances of 72, 144 more than this run uses" in told
    assert "already among those rented" in told
    words[words.index("1152")] = "1024"  # 16 racks of which each has a group of 64
    (cheapest, *_) = json.loads(piped(*words, "--json").stdout)["options"]
    assert (cheapest["gpus"], cheapest["billed_gpus"]) == (1024, 16 * 72)
    assert cheapest["dollars"] == pytest.approx(16 * 72 * 24 * cheapest["days"] * 2.0)
    sizes = [16, 32, 64, 72, 128, 144]
    assert json.loads(piped(*RACKS, "--provider", str(mine), "--json").stdout)["sizes"] == sizes
    assert json.loads(piped(*RACKS, "--price", "owned", "--json").stdout)["sizes"] == sizes
    assert json.loads(piped(*RACKS, "--json").stdout)["sizes"] == [16, 32, 64, 128]  # by single trays
    full = ("plan", "llama-3-8b", "--tokens", "10B", "--cluster", "gb200-nvl72", "--provider", str(mine))
    one, half = (json.loads(piped(*full, "--gpus", gpus, "--json").stdout)["options"][0] for gpus in ("72", "36"))
    assert one["spare_dollars"] == pytest.approx(one["dollars"])  # a rack more
    assert (half["billed_gpus"], half["spare_dollars"]) == (72, 0)


def test_a_slower_layout_that_needs_fewer_racks_is_an_option_too() -> None:
    """Groups of 32 take 64 of each 72 accelerators, so 288 are on five racks; groups of 8 fill four."""
    asked: dict[str, Any] = {
        "model": "qwen3.5-397b-a17b", "tokens": "1T", "cluster": "gb200-nvl72", "gpus": 288, "tp": [1, 2], "pp": [1, 2],
        "ep": [8, 32], "vpp": [1, 8], "micro_batch": 2, "zero": 1, "cp": 1,
    }  # fmt: skip
    made = distsim.plan(price="owned", **asked)
    fast, lean = sorted(made.options, key=lambda one: one.days)
    assert [(one.candidate.layout["ep"], one.billed_gpus, one.bought_gpus) for one in (fast, lean)] == [
        (32, 320, 360), (8, 288, 288)
    ]  # fmt: skip
    assert fast.committed_dollars == pytest.approx(lean.committed_dollars * 5 / 4)
    assert len(made.pareto) == 2
    budget = lean.committed_dollars
    assert budget is not None
    assert made.cheapest is fast and choice.cheapest(made.options, choice.Wish(dollars=budget)) is lean
    assert len(distsim.plan(**asked).options) == 1  # single trays are rented, of which none is idle


def test_a_range_of_prices_is_told() -> None:
    told = planned("--cluster", "gb200-nvl72", "--price", "owned", "--gpus", "72")
    system = system_for("gb200")
    assert system is not None
    own = owned_hour(catalog.load("gpus", "gb200"), catalog.load("clusters", "gb200-nvl72"), system,
                     catalog.load("facilities", "default"))  # fmt: skip
    assert own.price == pytest.approx(sum(own.ends) / 2) == pytest.approx(system.middle / 72 * 1.1)
    low, high = (f"${end / 1e3:.0f}k" for end in own.ends)
    assert f"bought for ${own.price / 1e3:.0f}k (the middle of {low} to {high}: gb200-nvl72 rack, " in told
    assert "the middle of" not in planned("--gpu", "b200-sxm", "--price", "owned", "--gpus", "8")


def test_a_budget_is_held_against_what_machines_cost_to_buy() -> None:
    bought = ["--gpu", "h100-sxm", "--gpus", "64", "--price", "owned"]
    price = found(*bought)["options"][0]["payable_dollars"]
    assert found(*bought, "--budget", str(price * 1.01))["met"]
    assert "No option meets" in planned(*bought, "--budget", str(price * 0.99), code=1)


def test_bought_and_rented_machines_stand_side_by_side() -> None:
    both = planned("--gpu", "h100-sxm", "--gpus", "64", "--price", "on-demand,owned")
    assert "purchased:" in both and "Nebius" in both
    assert "purchases count in full" in both and "each hour in use costs" in both
    assert (
        "Rent or buy" not in both.split("Where the money goes")[1]
    )  # the cheapest is bought: nothing is left to choose


def test_a_price_of_one_s_own_goes_before_all_others(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'name = "mine"\nprovider = "our vendor"\ncurrency = "EUR"\n[source]\nother = "a quote"\nchecked = 2026-11-01\n'
        '[exchange]\nusd = 1.25\ndate = "2026-11"\nsource = "a bank"\n'
        '[[purchases]]\nitem = "rack of ours"\nkind = "system"\ngpu = "gb300"\nprice = 4000000\ngpus = 72\n'
        'date = "2026-11"\nsource = "their quote"\n'
    )
    options = found("--provider", str(mine), "--gpu", "gb300", "--price", "owned", "--gpus", "72")["options"]
    assert options[0]["price"]["instance"] == "rack of ours"
    house = catalog.load("facilities", "default")
    assert options[0]["payable_dollars"] == pytest.approx(1.25 * 4e6 * (1 + house.network_fraction))


def test_a_word_that_is_no_term_is_answered_with_this_one_too() -> None:
    assert "owned" in planned("--price", "bought", code=2)
    assert "owned" in planned("--price", "on-demand", "--cluster", "vr200-nvl72", code=2)
