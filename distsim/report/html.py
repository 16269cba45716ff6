"""The answer of ``distsim plan`` as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

import datetime

from distsim.engine.jobs.resolve import Setup
from distsim.engine.plans.choice import faster
from distsim.engine.plans.details import details
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan, finish_dates
from distsim.report import html_layout, html_sections
from distsim.report.file_names import cluster_names
from distsim.report.html_cash import cash
from distsim.report.html_figures import figure, key, money_bar
from distsim.report.html_scatter import lettered, round_dollars, scatter, shown
from distsim.report.html_style import CSS
from distsim.report.job_words import trained_words
from distsim.report.markup import Html, datum, element, items, joined, paragraph, section, table
from distsim.report.plan import PARTS, layout_words, money_shares
from distsim.report.plan_buying import assumed, cash_of_years, heading, no_price, sentences
from distsim.report.plan_plot import dearest
from distsim.report.plan_settings import saving_words
from distsim.report.plan_words import (
    BEYOND,
    besides,
    carbon,
    days,
    energy,
    fullness,
    gpu_hours,
    interval,
    kept,
    outside,
    owed,
    owed_whole,
    punctual,
    rate,
    rented_whole,
    source,
    unbeaten,
    undecided,
    unsure,
    within,
)
from distsim.report.prose import number
from distsim.units import DAY, KWH_PER_MWH, count, dollars, duration, least_to_most, rounded

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load for the page: nothing but the style inside it."""
CONTENTS = {
    "answer": "Answer", "options": "Options", "trade": "Days against dollars", "money": "Where the money goes",
    "buying": "", "memory": "Memory", "pipeline": "Pipeline", "losses": "Losses", "prices": "Prices",
    "assumptions": "Assumptions", "sources": "Versions and sources",
}  # fmt: skip


def page(made: Plan, seed: int, top: int, today: datetime.date, asked: str = "") -> str:
    """The whole page. ``asked`` is the command that led to it."""
    chosen = made.cheapest or made.nearest[0]
    inside = details(made, chosen)
    whose = "" if inside.setup.tuning is None else "adapters of "
    title = f"Training {whose}{made.model.name}: which accelerators, how long, at what price"
    body = [
        element("h1", title), paragraph(*_question(made, inside.setup, today), class_="soft"), _contents(chosen),
        element("main", "\n", joined([
            _answer(made, chosen, inside.setup, seed, today), _options(made, chosen, top), _trade(made, chosen),
            _money(chosen), _buying(made, chosen, today), html_layout.memory(chosen, inside),
            html_layout.pipeline(inside), html_sections.losses(made, chosen),
            html_sections.prices(made, today), html_sections.assumptions(made, chosen, inside, seed),
            html_sections.versions(made, inside, today, asked),
        ])),
    ]  # fmt: skip
    head = [
        element("meta", charset="utf-8"), element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"), element("title", title),
        element("style", Html(CSS)),
    ]  # fmt: skip
    whole = element("html", element("head", joined(head)), "\n", element("body", joined(body)), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def _question(made: Plan, setup: Setup, today: datetime.date) -> list[str]:
    wish = made.request.wish
    limits = [] if wish.days is None else [within(wish)]
    limits += [] if wish.dollars is None else [f"for at most {round_dollars(wish.dollars)}"]
    told = f"{count(made.model.parameters)} parameters, {count(made.request.tokens)} tokens"
    asked = f", {' and '.join(limits)}" if limits else ", no deadline, no budget"
    trains = "".join(f"; {words}" for words in trained_words(setup))
    return [f"{told}{asked}{trains}; estimated on ", element("time", today.isoformat(), datetime=today.isoformat())]


def _contents(chosen: Option) -> Html:
    links = items(element("a", name or heading(chosen), href=f"#{place}") for place, name in CONTENTS.items())
    return element("nav", links, aria_label="Contents")


def _answer(made: Plan, chosen: Option, setup: Setup, seed: int, today: datetime.date) -> Html:
    one, quote = chosen.candidate, chosen.quote
    origin = "" if quote.owned else f" from {quote.whose}"
    what = f"{one.gpus:,} × {one.gpu} ({cluster_names(made)[one.cluster]}){origin}"
    cost = f"{days(chosen.days)}, {dollars(chosen.dollars)}"
    price = rate(chosen, today)
    if made.cheapest is None:
        told = [
            paragraph(element("strong", "No option meets the limits."),
                      f" Tried: {least_to_most(made.sizes)} accelerators. Nearest: ", what, f": {cost}, {price}.",
                      class_="answer no"),
            _misses(made),
        ]  # fmt: skip
    else:
        how, used = ("buy", " and use them for about ") if quote.owned else ("rent", " for about ")
        told = [paragraph(f"Cheapest: {how} ", element("strong", what), used, element("strong", cost),
                          f", {price}.", class_="answer")]  # fmt: skip
    wish, quickest = made.request.wish, made.fastest
    limited = "" if wish.days is None and wish.dollars is None else " within the limits"
    if quickest is not None and faster(quickest, chosen):
        told.append(paragraph(
            f"Fastest{limited}: {quickest.candidate.gpus:,} × {quickest.candidate.gpu} "
            f"{source(quickest.quote)}: {days(quickest.days)}, {dollars(quickest.dollars)}{_whole(quickest)}."
        ))  # fmt: skip
    told += [_tiles(chosen), paragraph(_finish(made, chosen, seed))]
    told += [paragraph(f"Deadline: {words}.") for words in (unsure(made),) if words]
    told += [paragraph(f"As cheap: {words}.") for words in (undecided(made),) if words]
    told += [paragraph(f"Extra costs: {words}.") for words in (besides(made, chosen, today),) if words]
    told += [paragraph(words.capitalize(), ".") for words in fullness(chosen)]
    told += [paragraph("Settings: ", words, ".") for words in (saving_words(made, chosen),) if words]
    told += [paragraph(f"Rented: {words}.") for words in (rented_whole(chosen),) if words]
    if owed(chosen):
        word = "Bought. " if chosen.quote.owned else "Reserved. "
        told.append(paragraph(element("strong", word), f"{owed(chosen)}."))
    told.append(paragraph(f"{made.notes[0][0].upper()}{made.notes[0][1:]}.", class_="soft"))
    told += [paragraph(f"{words[0].upper()}{words[1:]}, nothing else.") for words in trained_words(setup)]
    return section("answer", "Answer", *told, paragraph("Layout: ", layout_words(chosen), "."))


def _finish(made: Plan, chosen: Option, seed: int) -> str:
    """When it is done, as simulated campaigns spread."""
    dates = finish_dates(chosen, seed)
    p10, p50, p90 = (days(dates.quantile(share) / DAY) for share in (0.1, 0.5, 0.9))
    share = "" if made.request.wish.days is None else f"; {kept(made, chosen)}"
    return (
        f"Median finish after {p50}; one run in ten finishes before {p10}, one in ten after {p90} "
        f"({len(dates.seconds):,} simulated campaigns with uncertain step time, {dates.failures.mean():,.1f} failures "
        f"each on average, seed {seed}){share}."
    )


def _whole(option: Option) -> str:
    """What has to be paid where that is more than the run's hours."""
    paid = "purchase" if option.quote.owned else "owed"
    return "" if option.committed_dollars is None else f" (of {owed_whole(option)} {paid})"


def _misses(made: Plan) -> Html:
    bound = any(one.committed_dollars is not None for one in made.nearest)
    head = ["option", "from", "days", "dollars", *(["owed"] if bound else []), "misses by"]
    rows = [
        [f"{one.candidate.gpus:,} × {one.candidate.gpu}", one.quote.whose, datum(one.days, number(one.days)),
         datum(one.dollars, dollars(one.dollars)), *([_owed(one)] if bound else []), made.request.wish.lacks(one)]
        for one in made.nearest
    ]  # fmt: skip
    return table("Nearest options, and by how much each misses the limits", head, rows, (0, 1, len(head) - 1))


def _owed(option: Option) -> str:
    """What is owed in all, for a cell."""
    whole = option.committed_dollars
    return owed_whole(option) if whole is None else datum(whole, owed_whole(option))


def _tiles(option: Option) -> Html:
    """The figures to remember."""
    terms = option.candidate.goodput
    told = (
        ("Cost" if option.quote.owned else "Rent", dollars(option.dollars), f"90% interval {interval(option)}"),
        ("Duration", days(option.days), f"90% interval {days(option.days_low)} to {days(option.days_high)}"),
        ("GPU-hours", gpu_hours(option), f"{rounded(option.tokens_per_dollar)} tokens per dollar"),
        ("Goodput", f"{terms.fraction:.1%}", f"one failure per {duration(terms.mean_time_between_failures)}"),
        ("Energy", energy(option), carbon(option)),
    )
    tiles = [
        element("div", element("dt", name), element("dd", big, class_="big"), element("dd", small, class_="soft"))
        for name, big, small in told
    ]
    return element("dl", joined(tiles), class_="tiles")


def _options(made: Plan, chosen: Option, top: int) -> Html:
    letters, clusters = lettered(made), cluster_names(made)
    front = set(made.pareto)
    listed = [index for index in range(len(made.options)) if index < top or index in front]
    reserved = any(made.options[index].committed_dollars is not None for index in listed)
    due = made.request.wish.days is not None
    head = ["", "GPUs", "accelerator", "cluster", "from", "$/GPU-h", "days", "90% interval",
            *(["on time"] if due else []), "GPU-hours",
            "dollars", *(["owed"] if reserved else []), "MWh", "goodput", "MFU"]  # fmt: skip
    rows = []
    for index in listed:
        option = made.options[index]
        one, quote = option.candidate, option.quote
        mark = f"{letters.get(index, '●' if index in front else '')}{' ★' if option is chosen else ''}"
        mark += "" if made.request.wish.met(option) else f" {BEYOND}"
        rows.append([
            element("span", mark, class_="chosen") if option is chosen else mark, f"{one.gpus:,}", one.gpu,
            clusters[one.cluster], quote.whose, datum(quote.usd_per_gpu_hour, f"{quote.usd_per_gpu_hour:,.2f}"),
            datum(option.days, number(option.days)), f"{number(option.days_low)}–{number(option.days_high)}",
            *([datum(made.request.wish.on_time(option), punctual(made, option))] if due else []),
            datum(option.gpu_hours, gpu_hours(option)), datum(option.dollars, dollars(option.dollars)),
            *([_owed(option)] if reserved else []),
            datum(option.energy_kwh, number((option.energy_kwh or 0) / KWH_PER_MWH, 0)), f"{one.goodput.fraction:.1%}",
            "-" if option.mfu is None else f"{option.mfu:.0%}",
        ])  # fmt: skip
    caption = (
        f"{len(rows)} of {len(made.options)} options, cheapest first. ★ the option shown below; letters: "
        f"{unbeaten(made.options)}{outside(made, [made.options[index] for index in listed], f'; {BEYOND} ')}"
    )
    return section("options", "Options", table(caption, head, rows, (0, 2, 3, 4)))


def _trade(made: Plan, chosen: Option) -> Html:
    hidden = len(made.options) - len(shown(made, chosen))
    many = "1 option" if hidden == 1 else f"{hidden} options"
    more = f" Not shown: {many} over {dollars(dearest(made.options))} that others beat." if hidden else ""
    caption = (
        f"Both scales are logarithmic. Squares with letters: {unbeaten(made.options)}; circles: the other "
        f"options; the large ring: the option shown on this page.{more}"
    )
    return section("trade", "Days against dollars", figure(caption, scatter(made, chosen)))


def _money(option: Option) -> Html:
    shares = money_shares(option)
    rows = [
        [key(letter, colour), name, datum(shares[name], f"{shares[name]:.1%}"),
         datum(shares[name] * option.dollars, dollars(shares[name] * option.dollars))]
        for name, (letter, colour) in PARTS.items() if shares[name] >= 5e-4
    ]  # fmt: skip
    caption = f"{dollars(option.dollars)} split by what the accelerators did while they were paid for"
    paid = "cost" if option.quote.owned else "rent"
    return section(
        "money", "Where the money goes", figure(caption, money_bar(option)),
        table(f"Shares of the {paid}", ["", "part", "share", "dollars"], rows, (0, 1)),
    )  # fmt: skip


def _buying(made: Plan, option: Option, today: datetime.date) -> Html:
    own = made.buying(option)
    title = heading(option)
    if own is None:
        why = no_price(made, option)
        return section("buying", title, paragraph(f"{why[0].upper()}{why[1:]}."))
    house = made.request.facility
    told = [f"{one[0].upper()}{one[1:]}." for one in (*sentences(own, option, house, today), assumed(house))]
    head, cells = cash_of_years(own)
    rows = [[str(year), *(datum(value, dollars(value)) for value in amounts)] for year, amounts in cells]
    caption = "Cumulative dollars per accelerator; bought on the first day, sold at the end of its life"
    plot = [] if (drawn := cash(own)) is None else [figure(caption, drawn)]
    years = table("Cash flow of each year per accelerator", head, rows)
    return section("buying", f"{title}, per {option.candidate.gpu}", *map(paragraph, told), *plot, years)
