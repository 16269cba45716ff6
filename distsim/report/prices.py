"""Price lists as tables, of a provider or of an accelerator: rents per accelerator and hour, prices to buy, ages."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence

from rich.console import RenderableType
from rich.markup import escape

from distsim.engine.campaigns.chip_prices import Listed
from distsim.report import terminal
from distsim.report.console import table
from distsim.report.fitting import kept_columns, least_width, left_out
from distsim.specs.dates import age
from distsim.specs.price import TERMS, Offer, Price, Purchase

NONE = "-"
PER = "USD per accelerator and hour"
NOTES = "notes"
FOLDED = {"instance": 12, "item": 12, "service": 12, NOTES: 24}
"""Columns that are folded between words, with the width at which they still read well."""
SPARE = ("age", "GPUs", "kind", "reserved-3y", "reserved-1y", "reserved", "date", "spot", "region")
"""Columns that a narrow terminal does without; those at the end have room before the others."""


def price_list(prices: Price, origin: str, file: str, today: datetime.date) -> list[RenderableType]:
    """Every row with its date and age, in dollars; then where it comes from."""
    made: list[RenderableType] = []
    if prices.offers:
        made += [*_offers(prices, today), ""]
    if prices.purchases:
        made += [*_purchases(prices, today), ""]
    if prices.services:
        made += [*_services(prices, today), ""]
    if prices.exchange is not None:
        rate = prices.exchange
        made.append(
            escape(f"one {prices.currency} = {rate.usd:g} USD ({rate.date}, {age(rate.date, today)}; {rate.source})")
        )
    checked = f", checked {prices.checked}" if prices.checked else ""
    return [*made, escape(f"{prices.name}: {origin} preset{checked}, {file}; sources of the rows: --json")]


def chip_prices(gpu: str, found: Sequence[Listed], today: datetime.date) -> list[RenderableType]:
    """What all providers ask for one accelerator, and what it costs to buy."""
    rents = [(prices, row) for prices, row in found if isinstance(row, Offer)]
    bought = [(prices, row) for prices, row in found if isinstance(row, Purchase)]
    made: list[RenderableType] = []
    if rents:
        made += _rents(rents, ("provider", lambda prices, _: prices.provider), f"{gpu}: {PER}", today)
    if bought:
        made += ["", *_bought(bought, today)]
    return [*made, "", "sources of the rows: --json"]


def _offers(prices: Price, today: datetime.date) -> list[RenderableType]:
    rents = [(prices, offer) for offer in prices.offers]
    return _rents(rents, ("accelerator", lambda _, offer: offer.gpu), f"{prices.provider}: {PER}", today)


def _rents(
    rents: Sequence[tuple[Price, Offer]], whose: tuple[str, Callable[[Price, Offer], str]], title: str,
    today: datetime.date,
) -> list[RenderableType]:  # fmt: skip
    """Rows with a column that tells ``whose`` they are."""
    terms = [term for term in TERMS if any(offer.rate(term) is not None for _, offer in rents)]
    doubts: dict[str, str] = {}
    rows = []
    for prices, offer in rents:
        rates = [prices.usd_per_gpu_hour(offer, term) for term in terms]
        mark = doubts.setdefault(offer.doubt, f" [{len(doubts) + 1}]") if offer.doubt else ""
        told = [offer.instance + mark, whose[1](prices, offer), str(offer.gpus), offer.region or NONE]
        told += [NONE if rate is None else f"{rate:,.3f}" for rate in rates]
        rows.append([*told, offer.date, age(offer.date, today)])
    header = ["instance", whose[0], "GPUs", "region", *terms, "date", "age"]
    made = _fitting(header, rows, title, numbers=("GPUs", *terms))
    return [*made, *(escape(f"{mark.strip()} not used in plans: {doubt}") for doubt, mark in doubts.items())]


def _services(prices: Price, today: datetime.date) -> list[RenderableType]:
    rows = []
    for one in prices.services:
        price, per = f"{one.price * prices.usd_per_unit:g}", "GB-month" if one.kind == "storage" else "GB of egress"
        rows.append([one.item, price, per, one.date, age(one.date, today), one.notes])
    return _fitting(["service", "USD", "per", "date", "age", NOTES], rows, numbers=("USD",))


def _purchases(prices: Price, today: datetime.date) -> list[RenderableType]:
    return _bought([(prices, one) for one in prices.purchases], today)


def _bought(bought: Sequence[tuple[Price, Purchase]], today: datetime.date) -> list[RenderableType]:
    rows = []
    for prices, one in bought:
        rate = prices.usd_per_unit
        span = f"{one.low * rate:,.0f}" + (f" - {one.high * rate:,.0f}" if one.high > one.low else "")
        rows.append([one.item, one.kind, span, one.per, one.date, age(one.date, today), one.notes])
    return _fitting(["item", "kind", "USD", "per", "date", "age", NOTES], rows, numbers=("USD",))


def _fitting(
    header: list[str], rows: list[list[str]], title: str = "", numbers: Collection[str] = ()
) -> list[RenderableType]:
    """A table without the columns for which the terminal is too narrow, and a line that names them."""
    room = terminal.width() or terminal.NATURAL_WIDTH
    widths = {name: least_width(name, [row[at] for row in rows], FOLDED.get(name)) for at, name in enumerate(header)}
    kept = kept_columns(widths, SPARE, room)
    made = table(*kept, title=title, numbers=numbers, whole=[name for name in kept if name not in FOLDED])
    for row in rows:
        made.add_row(*(escape(cell) for name, cell in zip(header, row, strict=True) if name in kept))
    return [made, *map(escape, left_out(header, kept))]
