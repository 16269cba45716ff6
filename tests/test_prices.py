"""Price lists: every published price is in a preset, each has date, currency and source, and bad ones are refused."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import re
from pathlib import Path
from typing import Any

import pytest

from distsim import catalog
from distsim.cli.app import run
from distsim.engine.campaigns.prices import best, high_rents, price_lists, quotes, recent, term_of
from distsim.engine.layouts.money import Wish, rents
from distsim.engine.layouts.variants import base_setup
from distsim.errors import DistsimError
from distsim.specs.dates import age, span
from distsim.specs.job import Job
from distsim.specs.price import TERMS as RENTED
from distsim.specs.price import Price

ORACLE = Path(__file__).parent / "oracles" / "prices.csv"  # rents as published, each row with date and source
PURCHASES = ORACLE.with_name("purchase_prices.csv")  # prices of machines, and what running them costs, as published
TERMS = {"od_gpu_hr": "on_demand", "spot_gpu_hr": "spot", "reserved_3y_gpu_hr": "reserved_3y"}
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
NO_PURCHASES = ("InfiniBand cluster cost per H100", "object storage")  # a share of another price; a rent
LISTS = [catalog.load("prices", name) for name in catalog.names("prices")]


def offer(**changes: Any) -> dict[str, Any]:
    return {"instance": "8x", "gpu": "h100-sxm", "gpus": 8, "on_demand": 2.5, "date": "2026-09-20", "source": "a page",
            **changes}  # fmt: skip


def listed(**changes: Any) -> dict[str, Any]:
    return {"name": "mine", "provider": "Mine", "currency": "USD", "offers": [offer()], **changes}


def test_every_published_rent_is_there() -> None:
    known = {
        (one.source, one.date, term, one.rate(term.replace("_", "-")))  # type: ignore[arg-type]
        for prices in LISTS
        for one in prices.offers
        for term in TERMS.values()
    }
    missing = []
    with ORACLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            special = "superchip" in row["gpu"] or "reserved (claimed)" in row["instance"] or "spot" in row["provider"]
            for column, term in TERMS.items():
                if row[column] and not special and (row["source"], row["date"], term, float(row[column])) not in known:
                    missing.append((row["provider"], row["instance"], column))
    assert not missing


def test_a_rate_by_the_hour_is_not_told_to_be_of_a_commitment() -> None:
    """On-demand H200 of AWS were from a row called "3y EC2 Instance Savings Plan, all upfront"."""
    bound = re.compile(r"\d ?y\b|annual|commit|reserv|savings", re.IGNORECASE)
    hourly = [one for prices in LISTS for one in prices.offers if one.on_demand is not None or one.spot is not None]
    assert not [one.instance for one in hourly if bound.search(one.instance)]


def test_every_published_purchase_is_there() -> None:
    """But for figures that somebody recalled; power prices and PUE are figures of facilities."""
    bought = [one for prices in LISTS for one in prices.purchases]
    facilities = [catalog.load("facilities", name) for name in catalog.names("facilities")]
    running = {figure for one in facilities for figure in (one.pue, one.usd_per_kwh)}
    missing, found = [], 0
    with PURCHASES.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            stated = {float(one.replace(",", "")) for one in NUMBER.findall(row["value"] + row["source"])}
            if row["kind"] in ("power price", "facility"):
                known = stated & running
            elif row["kind"].endswith(" price") and row["status"] == "seen" and row["item"] not in NO_PURCHASES:
                same = [one for one in bought if (one.date, one.source) == (row["date"], row["source"])]
                known = {one.low for one in same if {one.low, one.high} <= stated}
            else:
                continue
            found += 1
            missing += [] if known else [row["item"]]
    assert not missing
    assert found == 51


def test_prices_told_in_other_money_are_within_the_range_in_dollars() -> None:
    """20 to 30 million RMB for a GB200 NVL72 had stood beside 2 to 3 million dollars, without a rate."""
    yuan = 1 / next(one for one in LISTS if one.currency == "CNY").usd_per_unit
    told = re.compile(r"([\d.]+)-([\d.]+) M RMB are ([\d.]+) to ([\d.]+) M USD at ([\d.]+) RMB for one USD")
    foreign = [one for prices in LISTS if prices.currency == "USD" for one in prices.purchases
               if re.search("RMB|CNY|EUR|JPY|GBP", one.source + one.notes)]  # fmt: skip
    assert foreign
    for one in foreign:
        found = told.search(one.notes)
        assert found, one.item
        low, high, least, most, rate = map(float, found.groups())
        assert rate == pytest.approx(yuan, rel=1e-3)
        assert (least, most) == pytest.approx((low / rate, high / rate), rel=2e-3)
        assert one.low <= 1e6 * least and one.high >= 1e6 * most * (1 - 1e-3)


def test_figures_that_several_sources_confirm() -> None:
    """On demand, 2026: AWS p5 6.88, p5en 7.91, p4d 2.74, p4de 3.43; Azure ND H100 12.29; GCP H200 10.44."""
    found = recent(quotes(price_lists(), "on-demand"))
    for cluster, provider, rate in (
        ("p5.48xlarge", "AWS", 6.88), ("p5en.48xlarge", "AWS", 7.912), ("p4d.24xlarge", "AWS", 2.7447),
        ("p4de.24xlarge", "AWS", 3.4309), ("nd96isr_h100_v5", "Azure", 12.29), ("a3-ultragpu-8g", "GCP", 10.4365),
    ):  # fmt: skip
        chosen = {one.provider: one for one in best(found, cluster, 512)}
        assert chosen[provider].usd_per_gpu_hour == rate


@pytest.mark.parametrize("prices", LISTS, ids=lambda prices: prices.name)
def test_rows_name_accelerators_and_clusters_that_exist(prices: Price) -> None:
    for one in prices.offers:
        gpu = catalog.load("gpus", one.gpu)
        if one.cluster:
            assert catalog.load("gpus", catalog.load("clusters", one.cluster).gpu).name == gpu.name
    for bought in prices.purchases:
        assert bought.gpu is None or catalog.load("gpus", bought.gpu)


def test_rows_in_doubt_are_not_reckoned_with() -> None:
    plain, all_of_them = (quotes(price_lists(), "on-demand", doubtful) for doubtful in (False, True))
    assert len(plain) < len(all_of_them)
    assert not any(one.doubt for one in plain)
    assert not any("average" in one.instance for one in plain)


def test_old_prices_are_left_out() -> None:
    found = quotes(price_lists(), "on-demand")
    assert all(span(one.date)[1].year >= 2025 for one in recent(found, 365))
    assert len(recent(found, 365)) < len(recent(found, 10_000)) == len(found)


def test_single_accelerators_are_no_quote_for_a_cluster() -> None:
    found = quotes(price_lists(("aws",)), "on-demand")
    assert all(one.gpus_per_instance >= 8 for one in best(found, "p5.48xlarge", 64))


@pytest.mark.parametrize("cluster", ["tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod"])
def test_slices_of_a_pod_are_sold_by_chips(cluster: str) -> None:
    """Rows of four chips, on hosts of four or eight; a row of a whole slice is one of that slice alone."""
    found = recent(quotes(price_lists(("gcp",)), "on-demand"))
    for chips in (4, 8, 128):
        (quote,) = best(found, cluster, chips)
        assert quote.gpus_per_instance == 4
        (rent,) = rents(Wish(), base_setup(Job(model="gpt2", cluster=cluster), chips), (chips,)).values()
        assert not rent.note and rent.billed_gpus == chips and rent.usd_per_gpu_hour == quote.usd_per_gpu_hour
    assert not best(found, cluster, 6)


def test_foreign_currency_is_converted_at_its_stated_rate() -> None:
    spec = Price.read(listed(currency="CNY", exchange={"usd": 0.14, "date": "2026", "source": "a bank"}))
    assert spec.usd_per_gpu_hour(spec.offers[0], "on-demand") == pytest.approx(0.35)


def without(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}


@pytest.mark.parametrize(
    ("problem", "data"),
    [
        ("'currency' is missing", without(listed(), "currency")),
        ("date' is missing", listed(offers=[without(offer(), "date")])),
        ("source' is missing", listed(offers=[without(offer(), "source")])),
        ("CNY cannot be compared with USD", listed(currency="CNY")),
        ("provider '' is empty\n  name one", listed(provider="")),
        ("no effect on prices in USD", listed(exchange={"usd": 1, "date": "2026", "source": "a bank"})),
        ("no rate is stated", listed(offers=[without(offer(), "on_demand")])),
        ("no price is stated", listed(offers=[])),
        ("'yesterday' is not a date", listed(offers=[offer(date="yesterday")])),
        ("2026-13", listed(offers=[offer(date="2026-13")])),
        ("exchange.source 'cb' is too short\n  it must have at least 3 characters", listed(
            currency="CNY", exchange={"usd": 0.14, "date": "2026", "source": "cb"})),
        ("-2 is too small", listed(offers=[offer(on_demand=-2)])),
        ("0 is too small", listed(offers=[offer(on_demand=0)])),
        ("is too large", listed(offers=[offer(on_demand=98_000)])),
        ("unknown field 'offers.0.on_demnd'", listed(offers=[offer(on_demnd=2)])),
        ("low 5 is more than high 3", listed(purchases=[
            {"item": "x", "kind": "card", "low": 5, "high": 3, "date": "2026", "source": "a page"}])),
    ],
)  # fmt: skip
def test_bad_prices_are_refused(problem: str, data: dict[str, Any]) -> None:
    with pytest.raises(DistsimError) as caught:
        Price.read(data)
    assert problem in caught.value.text()


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ("2026-11-09", "12 days"), ("2026-05-21", "6 months"), ("2026", "up to 11 months"),
        ("2026-Q3", "up to 5 months"),
        ("2026-10", "up to 51 days"), ("2025-2026", "up to 23 months"), ("2027-01-01", "dated in the future"),
    ],
)  # fmt: skip
def test_age(stated: str, words: str) -> None:
    assert age(stated, datetime.date(2026, 11, 21)) == words


def test_terms() -> None:
    assert term_of("spot") == "spot"
    with pytest.raises(DistsimError, match="unknown price term 'spott'"):
        term_of("spott")


def test_a_date_yet_to_come_hides_nobodys_prices() -> None:
    """A mistyped year of one's own list had left out everybody else's."""
    found = quotes(price_lists(), "on-demand")
    odd = dataclasses.replace(found[0], date="2036")
    assert len(recent([odd, *found], 365)) == len(recent(found, 365)) + 1


def test_a_rent_far_above_all_others_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = [rate for prices in LISTS for one in prices.offers for term in RENTED
             if (rate := prices.usd_per_gpu_hour(one, term)) is not None]  # fmt: skip
    assert not high_rents([("x", rate) for rate in every])
    file = tmp_path / "mine.toml"
    file.write_text('provider = "Mine"\ncurrency = "USD"\n[[offers]]\ninstance = "8x"\ngpu = "h100-sxm"\ngpus = 8\n'
                    'on_demand = 98.32\ndate = "2026-10"\nsource = "a page"\n')  # fmt: skip
    words = ["--gpus", "8", "--gpu", "h100-sxm"]
    told = "$98.32 per GPU and hour ({}) is far above all known rents: is it the price of a whole node?"
    assert run(["plan", "llama-7b", "--tokens", "10B", "--cluster", "dgx-h100", "--gpus", "8", "--provider",
                str(file)]) == 0  # fmt: skip
    assert told.format("Mine") in capsys.readouterr().err
    assert run(["search", "llama-7b", *words, "--price", "98.32", "--global-batch", "64"]) == 0
    assert told.format("--price") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vr200-nvl72", "it is a cluster: distsim show prices vr200 lists who asks what for its accelerators"),
        ("p5", "it is a cluster: distsim show prices h100-sxm lists who asks what for its accelerators"),
        ("h100", "it is an accelerator: distsim show prices h100-sxm lists who asks what for it"),
        ("nebus", "did you mean nebius?"),
    ],
)
def test_hardware_where_a_price_list_belongs_is_told_where_its_prices_are(name: str, words: str) -> None:
    with pytest.raises(DistsimError, match="unknown price list") as refused:
        catalog.load("prices", name)
    assert words in refused.value.text()
