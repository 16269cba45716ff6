"""The page's parts on evidence: prices, terms of the losses, assumptions, sources, versions."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Iterator

import distsim
from distsim.engine.campaigns.prices import STALE_DAYS
from distsim.engine.figures import Figure
from distsim.engine.jobs.hardware import profile_of
from distsim.engine.plans.details import Details
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.engine.plans.request import Request
from distsim.engine.plans.scope import paid_for
from distsim.report.job_words import trained_words
from distsim.report.markup import Html, datum, element, items, paragraph, section, table
from distsim.report.plan_words import saving, standing_by, taken
from distsim.specs.base import Sourced
from distsim.specs.price import OWNED
from distsim.units import count, decimal_bytes, duration, gib


def losses(made: Plan, option: Option) -> Html:
    """Every term of goodput and of energy, with its value, formula and source."""
    kept = option.candidate.goodput
    draw = option.candidate.draw
    head = ["term", "value", "formula", "source"]
    words = (0, 2, 3)
    told = [
        paragraph(
            f"Of all paid time, {kept.fraction:.1%} is training (the goodput). The rest goes to failures, "
            "restarts, checkpoints and planned pauses; the formulas are in distsim's documentation."
        ),
        table("Terms of the goodput", head, [_row(one) for one in kept.figures], words),
    ]
    if draw is not None:
        told.append(table("Terms of the energy", head, [_row(one) for one in draw.figures], words))
    own = made.buying(option)
    if own is not None:
        told.append(table("Terms of owning one accelerator", head, [_row(one) for one in own.figures], words))
    return section("losses", "Time lost to failures and checkpoints", *told, items(kept.notes) if kept.notes else "")


def _row(one: Figure) -> list[str]:
    value = float(one.value)
    shown = "never" if value == math.inf else datum(value, _value(value, one.unit))
    return [one.label, shown, element("code", one.formula or "stated"), one.source]


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return duration(value)
    if unit in ("B", "B/s"):
        return gib(value) if unit == "B" else decimal_bytes(value, unit)
    return f"{value:.4g}" if unit == "1" else f"{value:.4g} {unit}"


def prices(made: Plan, today: datetime.date) -> Html:
    """Every price that an option uses, with its age and its source."""
    used = sorted({one.quote for one in made.options}, key=lambda quote: (quote.gpu, quote.usd_per_gpu_hour))
    rows = [
        [quote.gpu, quote.whose, quote.instance, quote.region or "-",
         datum(quote.usd_per_gpu_hour, f"${quote.usd_per_gpu_hour:,.2f}"), quote.of_day or "-", quote.age(today),
         quote.source]
        for quote in used
    ]  # fmt: skip
    head = ["accelerator", "from", "instance", "region", "per GPU-hour", "date", "age", "source"]
    terms = made.request.price_terms
    return section(
        "prices", "Prices, their age and their source",
        paragraph(
            f"Term: {', '.join(terms)}; {paid_for(terms)} only. Where a date is only a month or a year, the price is "
            f"at most as old as its first day. {_oldest(made.request)} Ask for quotes before you decide."
        ),
        table("Prices used", head, rows, (0, 1, 2, 3, 5, 6, 7)),
    )  # fmt: skip


def _oldest(request: Request) -> str:
    """Which prices are too old to be reckoned with."""
    if request.price_days is not None:
        return (
            f"Prices more than {request.price_days:,.10g} days older than the newest known one are left out, as asked."
        )
    rents = f"Rents more than {STALE_DAYS} days older than the newest known one are left out."
    if request.price_terms == (OWNED,):
        return "Purchase prices are used whatever their age."
    return f"{rents} Purchase prices are used whatever their age." if OWNED in request.price_terms else rents


def assumptions(made: Plan, option: Option, inside: Details, seed: int) -> Html:
    """What was taken for granted, stated or not."""
    request, setup = made.request, inside.setup
    layout, house, kept = setup.layout, request.facility, option.candidate.goodput
    policy, faults = request.terms.policy, request.terms.failures
    copies = "while training goes on" if policy.asynchronous else "while training waits"
    often, optimum = saving(kept), policy.interval_seconds is None
    why = " (Daly's optimum within what storage allows)" if optimum else " (as stated)"
    told = [
        f"{count(request.tokens)} tokens in sequences of {layout.seq:,}, {option.candidate.global_batch or 0:,} "
        f"sequences per step ({count(option.candidate.tokens_per_step)} tokens): "
        f"{request.tokens / option.candidate.tokens_per_step:,.0f} steps of {duration(option.candidate.step_seconds)}.",
        f"Software profile {setup.framework.name}, precision {setup.precision.name}, optimizer {setup.optimizer.name}.",
        *(f"{words[0].upper()}{words[1:]}, nothing else." for words in trained_words(setup)),
        *([] if setup.gpu_power is None else [f"Accelerators run under a power limit of {setup.gpu_power:g} W."]),
        f"Failures: preset {faults.name}; one{taken(option)} per {duration(kept.mean_time_between_failures)} on "
        f"{kept.gpus:,} accelerators; spares: {standing_by(option)}. {faults.notes}",
        f"{often[0].upper()}{often[1:]}{why if kept.checkpoints > 1 else ''}, written {copies}; storage preset "
        f"{request.terms.storage.name}. {request.terms.storage.notes}",
        f"Facility: preset {house.name}, PUE {house.pue:g}, "
        f"{'power price unknown' if house.usd_per_kwh is None else f'${house.usd_per_kwh:g} per kWh'}, "
        f"{'grid unknown' if house.kg_co2e_per_kwh is None else f'{house.kg_co2e_per_kwh:g} kg CO2e per kWh'}.",
        f"Intervals are 90% prediction intervals of the step time, learned from measured runs. Finish dates "
        f"come from simulated campaigns with seed {seed}.",
        *(f"{note[0].upper()}{note[1:]}." for note in made.notes),
    ]  # fmt: skip
    return section("assumptions", "Assumptions", items(told))


def versions(made: Plan, inside: Details, today: datetime.date, asked: str) -> Html:
    """Who made this page, when, of what."""
    rows = [
        [kind, spec.name, figure, source, "" if spec.checked is None else spec.checked.isoformat()]
        for kind, spec in _presets(made, inside) for figure, source in spec.source.items()
    ]  # fmt: skip
    told = [
        paragraph(
            f"distsim {distsim.__version__}, Python {platform.python_version()}, made on ",
            element("time", today.isoformat(), datetime=today.isoformat()),
            ". The page is self-contained: it loads nothing from elsewhere and has no script.",
        )
    ]
    if asked:
        told += [paragraph("Made with:"), element("pre", element("code", asked))]
    own = made.buying(_chosen(made))
    if own is not None:
        rows.append(["price to buy", own.item, "usd per system", own.source, own.date])
    head = ["kind", "name", "figure", "source", "checked"]
    told.append(table("Sources of the presets behind the option shown", head, rows, (0, 1, 2, 3, 4)))
    return section("sources", "Versions and sources", *told)


def _chosen(made: Plan) -> Option:
    return made.cheapest or made.nearest[0]


def _presets(made: Plan, inside: Details) -> Iterator[tuple[str, Sourced]]:
    setup, request = inside.setup, made.request
    found = (
        ("model", setup.model), ("accelerator", setup.accelerator), ("cluster", setup.cluster),
        ("framework", setup.framework), ("failures", request.terms.failures), ("storage", request.terms.storage),
        ("facility", request.facility), ("power", profile_of(setup.accelerator)),
    )  # fmt: skip
    yield from ((kind, spec) for kind, spec in found if isinstance(spec, Sourced))
