"""One provider's price list as tables: rents per accelerator and hour, prices to buy, and how old each is."""

from __future__ import annotations

import datetime

from rich.console import RenderableType
from rich.markup import escape

from distsim.report.console import table
from distsim.specs.dates import age
from distsim.specs.price import TERMS, Price

NONE = "-"
PER = "USD per accelerator and hour"


def price_list(prices: Price, origin: str, file: str, today: datetime.date) -> list[RenderableType]:
    """Every row with its date and age, in dollars; then where it comes from."""
    made: list[RenderableType] = []
    if prices.offers:
        made += [*_offers(prices, today), ""]
    if prices.purchases:
        made += [_purchases(prices, today), ""]
    if prices.services:
        made += [_services(prices, today), ""]
    if prices.exchange is not None:
        rate = prices.exchange
        made.append(
            escape(f"one {prices.currency} = {rate.usd:g} USD ({rate.date}, {age(rate.date, today)}; {rate.source})")
        )
    checked = f", checked {prices.checked}" if prices.checked else ""
    return [*made, escape(f"{prices.name}: {origin} preset{checked}, {file}; sources of the rows: --json")]


def _offers(prices: Price, today: datetime.date) -> list[RenderableType]:
    terms = [term for term in TERMS if any(offer.rate(term) is not None for offer in prices.offers)]
    made = table(
        "instance", "accelerator", "GPUs", "region", *terms, "date", "age", title=f"{prices.provider}: {PER}",
        numbers=("GPUs", *terms),
    )  # fmt: skip
    doubts: dict[str, str] = {}
    for offer in prices.offers:
        rates = [prices.usd_per_gpu_hour(offer, term) for term in terms]
        mark = doubts.setdefault(offer.doubt, f" [{len(doubts) + 1}]") if offer.doubt else ""
        told = [offer.instance + mark, offer.gpu, str(offer.gpus), offer.region or NONE]
        told += [NONE if rate is None else f"{rate:,.3f}" for rate in rates]
        made.add_row(*map(escape, [*told, offer.date, age(offer.date, today)]))
    return [made, *(escape(f"{mark.strip()} not planned with: {doubt}") for doubt, mark in doubts.items())]


def _services(prices: Price, today: datetime.date) -> RenderableType:
    made = table("besides", "USD", "per", "date", "age", "notes", numbers=("USD",))
    for one in prices.services:
        price, per = f"{one.price * prices.usd_per_unit:g}", "GB-month" if one.kind == "storage" else "GB that leaves"
        made.add_row(*map(escape, [one.item, price, per, one.date, age(one.date, today), one.notes]))
    return made


def _purchases(prices: Price, today: datetime.date) -> RenderableType:
    made = table("item", "kind", "USD", "per", "date", "age", "notes", numbers=("USD",))
    rate = prices.usd_per_unit
    for one in prices.purchases:
        span = f"{one.low * rate:,.0f}" + (f" - {one.high * rate:,.0f}" if one.high > one.low else "")
        made.add_row(*map(escape, [one.item, one.kind, span, one.per, one.date, age(one.date, today), one.notes]))
    return made
