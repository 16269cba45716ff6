"""A plan as one self-contained page: tables, the Pareto plot, where the money goes, sources; nothing is fetched."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from html import escape

from distsim import __version__
from distsim.engine.plan import Option
from distsim.engine.planner import Plan, finish_dates
from distsim.report.plan import PARTS, dollars, layout_words, money_shares
from distsim.report.style import Colour
from distsim.units import DAY, count, duration

WIDTH, HEIGHT, MARGIN = 720, 360, 60
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#111;background:#fff}
table{border-collapse:collapse;margin:.5em 0}td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child,
.words td,.words th{text-align:left}
.figures td{white-space:nowrap}.wide{overflow-x:auto}h2{margin-top:1.6em}small{color:#555}
svg{max-width:100%;height:auto}text{font-size:12px}
"""


def page(made: Plan, seed: int, today: datetime.date) -> str:
    """The whole page."""
    chosen = made.cheapest or made.nearest[0]
    name = escape(made.model.name)
    parts = [
        f"<h1>Training {name} on {count(made.request.tokens)} tokens</h1>", *_summary(made, chosen, seed, today),
        "<h2>Dollars against days</h2>", plot(made.options, made.pareto), front_list(made),
        "<h2>Where the money goes</h2>", money_bar(chosen), _buying(made, chosen),
        "<h2>Options, cheapest first</h2>", _options(made, today),
        "<h2>Terms and their sources</h2>", _terms(chosen), _notes(made, today),
    ]  # fmt: skip
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Plan: {name}</title>'
    body = f"<body>{''.join(parts)}</body>"
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head>{body}</html>\n'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "figures") -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _summary(made: Plan, chosen: Option, seed: int, today: datetime.date) -> list[str]:
    one, quote, wish = chosen.candidate, chosen.quote, made.request.wish
    dates = finish_dates(chosen, seed)
    low, middle, high = (dates.quantile(share) / DAY for share in (0.1, 0.5, 0.9))
    missed = f"Nothing keeps to the limits; nearest ({wish.lacks(chosen)})"
    verdict = "Cheapest within the limits" if made.cheapest else missed
    energy = "not known" if chosen.energy_kwh is None else f"{chosen.energy_kwh / 1e3:,.0f} MWh"
    carbon = "" if chosen.tonnes_co2e is None else f", {chosen.tonnes_co2e:,.0f} tCO2e"
    rows = [
        ("machines", f"{one.gpus:,} x {one.gpu} ({one.cluster}) from {quote.provider}, {layout_words(chosen)}"),
        ("price", f"${quote.usd_per_gpu_hour:,.2f} per GPU-hour, {quote.term}, {quote.date}, {quote.age(today)} old"),
        ("days", f"{middle:,.1f}; one campaign in ten before {low:,.1f}, one in ten after {high:,.1f}"),
        ("dollars", f"{dollars(chosen.dollars)} for {chosen.gpu_hours:,.0f} GPU-hours"),
        ("energy", energy + carbon),
        ("failures", f"{dates.failures.mean():,.0f} expected; goodput {one.goodput.fraction:.1%}; a checkpoint every "
                     f"{duration(one.goodput.interval)}"),
    ]  # fmt: skip
    return [f"<p><b>{escape(verdict)}</b></p>", _table(("", ""), rows, "words")]


def _options(made: Plan, today: datetime.date) -> str:
    front = set(made.pareto)
    rows = [
        (f"{'●' if index in front else ''} {one.candidate.gpus:,} x {one.candidate.gpu}", one.candidate.cluster,
         one.quote.provider, f"{one.quote.usd_per_gpu_hour:,.2f}", one.quote.age(today), f"{one.days:,.1f}",
         f"{one.days_low:,.1f}-{one.days_high:,.1f}", f"{one.gpu_hours:,.0f}", dollars(one.dollars),
         "-" if one.energy_kwh is None else f"{one.energy_kwh / 1e3:,.0f}", f"{one.candidate.goodput.fraction:.1%}")
        for index, one in enumerate(made.options)
    ]  # fmt: skip
    head = (
        "machines",
        "cluster",
        "from",
        "$/GPU-h",
        "price age",
        "days",
        "90%",
        "GPU-hours",
        "dollars",
        "MWh",
        "goodput",
    )
    return _table(head, rows) + "<p><small>● nothing is both faster and cheaper</small></p>"


def plot(found: Sequence[Option], front: Sequence[int]) -> str:
    """Every option as a dot, the front as numbered dots joined by a line; logarithmic both ways."""
    days, cost = [one.days for one in found], [one.dollars for one in found]

    def place(value: float, values: list[float], room: float) -> float:
        span = math.log(max(values) / min(values))
        return 0.0 if span == 0 else math.log(value / min(values)) / span * room

    def at(one: Option) -> tuple[float, float]:
        x = MARGIN + place(one.days, days, WIDTH - 2 * MARGIN)
        return x, HEIGHT - MARGIN - place(one.dollars, cost, HEIGHT - 2 * MARGIN)

    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#999"/>' for x, y in map(at, found))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(found[index]) for index in front))
    named = "".join(_named(*at(found[index]), found[index]) for index in front)
    words = [
        (MARGIN, HEIGHT - 20, f"{min(days):,.1f} days"), (WIDTH - MARGIN - 60, HEIGHT - 20, f"{max(days):,.1f} days"),
        (5, HEIGHT - MARGIN, dollars(min(cost))), (5, MARGIN, dollars(max(cost))),
    ]  # fmt: skip
    text = "".join(f'<text x="{x}" y="{y}">{escape(word)}</text>' for x, y, word in words)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="dollars against days">{dots}'
        f'<polyline points="{line}" fill="none" stroke="#009e73" stroke-width="2"/>{named}{text}</svg>'
    )


def _named(x: float, y: float, one: Option) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#009e73"><title>{escape(_words(one))}</title></circle>'


def _words(one: Option) -> str:
    machines = f"{one.candidate.gpus:,} x {one.candidate.gpu} from {one.quote.provider}"
    return f"{one.days:,.1f} days, {dollars(one.dollars)}: {machines}"


def money_bar(option: Option) -> str:
    """A bar whose parts are also letters, and a table of them."""
    shares, x, bar = money_shares(option), 0.0, ""
    for name, (letter, ink) in PARTS.items():
        width = shares[name] * WIDTH
        bar += f'<rect x="{x:.1f}" y="0" width="{width:.1f}" height="30" fill="{_hex(ink)}"/>'
        bar += f'<text x="{x + 3:.1f}" y="20">{letter}</text>' if width > 14 else ""
        x += width
    rows = [
        (f"{letter} {name}", f"{shares[name]:.1%}", dollars(shares[name] * option.dollars))
        for name, (letter, _) in PARTS.items()
    ]
    drawn = f'<svg viewBox="0 0 {WIDTH} 30" role="img" aria-label="shares of the money">{bar}</svg>'
    return drawn + _table(("", "", ""), rows)


def front_list(made: Plan) -> str:
    """What the green dots stand for, fastest first."""
    items = "".join(f"<li>{escape(_words(made.options[index]))}</li>" for index in made.pareto)
    return f"<ol>{items}</ol><p><small>green: nothing is both faster and cheaper</small></p>"


def _hex(ink: Colour) -> str:
    return "#" + "".join(f"{(part + 255) // 2:02x}" for part in ink.rgb)  # paler, so that black letters can be read


def _buying(made: Plan, option: Option) -> str:
    own = made.buying(option)
    if own is None:
        return ""
    months = own.break_even_months
    when = "never" if math.isinf(months) else f"after {months:,.1f} months"
    rows = [
        (str(one.year), *map(dollars, (one.buying, one.renting, one.buying_so_far, one.renting_so_far)))
        for one in own.years
    ]
    told = (
        f"Bought for {dollars(own.price)} per GPU ({own.item}, {own.date}; {own.source}): "
        f"{dollars(own.owned_per_hour)} per hour in use against {dollars(own.rent_per_hour)} of rent; "
        f"buying pays off {when}."
    )
    head = ("year", "buying", "renting", "buying so far", "renting so far")
    return f"<h2>Rent or buy</h2><p>{escape(told)}</p>{_table(head, rows)}"


def _terms(option: Option) -> str:
    one = option.candidate
    figures = [*one.goodput.figures, *(one.draw.figures if one.draw else [])]
    rows = [(term.label, f"{term.value:.5g} {term.unit}", term.source) for term in figures]
    price = ("price", f"{option.quote.usd_per_gpu_hour:g} USD/h", option.quote.source)
    return _table(("term", "value", "source"), [*rows, price], "words")


def _notes(made: Plan, today: datetime.date) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in made.notes)
    return f"<h2>Notes</h2><ul>{items}</ul><p><small>distsim {__version__}, {today.isoformat()}</small></p>"
