"""The answer of ``distsim plan`` as lines of text: summary, options, where the money goes, rent against buy."""

from __future__ import annotations

import csv
import datetime
import io
import math
from collections.abc import Sequence
from typing import Any

from distsim.engine.plans.choice import faster
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan, finish_dates
from distsim.report.file_names import cluster_names
from distsim.report.plan_buying import buying_lines
from distsim.report.plan_head import question, software
from distsim.report.plan_plot import pareto_lines
from distsim.report.plan_settings import saving_lines
from distsim.report.plan_step import DEGREES, step_command
from distsim.report.plan_words import (
    BEYOND,
    Clock,
    besides,
    clock_of,
    days,
    drawn,
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
    saving,
    source,
    standing_by,
    taken,
    unbeaten,
    undecided,
    unsure,
)
from distsim.report.prose import folded, number
from distsim.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Colour, Style, columns
from distsim.units import DAY, KWH_PER_MWH, count, dollars, duration, least_to_most, rounded

WIDEST_BAR = 80
ON_TIME = "on time"
"""Column of the share of an option's runs that keeps to the deadline."""
DISPENSABLE = ("region", "MFU", "goodput", "GPU-hours", "MWh", "90%", "price age", ON_TIME, "accelerator")
"""Columns that go, in this order, until the table of options is as narrow as the terminal; the cluster stays,
which with its provider tells offers apart."""
OWED = "owed"
"""Column of what reservations cost over their whole terms, and machines to buy."""
WHERE_ANY = (OWED, ON_TIME, "region", "price age")
"""Columns that are there only where a row has something in them."""
COMMUNICATION = ("tensor_parallel", "data_parallel", "pipeline_transfer", "expert_parallel", "context_parallel")
PARTS: dict[str, tuple[str, Colour]] = {
    "arithmetic": ("A", BLUE), "recomputation": ("R", SKY), "communication": ("C", ORANGE),
    "pipeline bubble": ("B", VERMILLION), "optimizer and rest": ("O", PURPLE), "failures and checkpoints": ("F", GREEN),
    "accelerators without ranks": ("I", YELLOW),
}  # fmt: skip


def lines(made: Plan, seed: int, top: int, today: datetime.date, term: Style) -> list[str]:
    """Everything but the explanations."""
    chosen = made.cheapest
    told = [*folded(question(made, term)), ""]
    if chosen is None:
        chosen = made.nearest[0]
        told += [*_misses(made, term), *folded(saving_lines(made, chosen)), ""]
    else:
        told += [*folded(_summary(made, chosen, seed, today, term)), f"the step    {step_command(made, chosen)}"]
        told += [*folded(saving_lines(made, chosen)), ""]
    told += [*table(made, top, today, term), ""]
    named = [one for one in (chosen, made.fastest) if one is not None]
    told += [*plot, ""] if (plot := pareto_lines(made.options, made.pareto, term, named)) else []
    told += [*money_lines(chosen, term), "", *folded(buying_lines(made, chosen, today, term), 4)]
    return told + folded(_scaling(made, chosen), 4)


def _summary(made: Plan, chosen: Option, seed: int, today: datetime.date, term: Style) -> list[str]:
    told = [_pick(made, "cheapest", chosen, today, term)]
    quickest = made.fastest
    if quickest is not None and faster(quickest, chosen):
        told.append(_pick(made, "fastest ", quickest, today, term))
    dates = finish_dates(chosen, seed)
    p10, p50, p90 = (days(dates.quantile(share) / DAY) for share in (0.1, 0.5, 0.9))
    wish = made.request.wish.days
    within = f"; {kept(made, chosen)}" if wish is not None else ""
    terms, mean = chosen.candidate.goodput, chosen.interruptions
    few, idle = number(mean, 0 if mean >= 10 else 1), rented_whole(chosen)
    bound = [f"{'bought  ' if chosen.quote.owned else 'reserved'}    {owed(chosen)}"] if owed(chosen) else []
    tokens = [rounded(chosen.tokens / chosen.dollars_at(end)) for end in (chosen.days_high, chosen.days_low)]
    return [
        *told, "",
        f"{term.bold('cheapest in detail')}: {layout_words(chosen)}; {software(made, chosen)}",
        f"finish      median {p50}, 10th percentile {p10}, 90th {p90} "
        f"({len(dates.seconds):,} simulated campaigns with uncertain step time, seed {seed}){within}",
        *(f"deadline    {words}" for words in (unsure(made),) if words),
        *(f"as cheap    {words}" for words in (undecided(made),) if words),
        f"cost        {dollars(chosen.dollars)}, 90% interval {interval(chosen)}; {gpu_hours(chosen)} GPU-hours",
        *(f"extra       {words}" for words in (besides(made, chosen, today),) if words),
        f"spares      {standing_by(chosen)}",
        *([f"rented      {idle}"] if idle else []),
        *bound,
        *fullness(chosen),
        f"tokens      {rounded(chosen.tokens_per_dollar)} per dollar, 90% interval {tokens[0]} to {tokens[1]}",
        f"failures    {few} expected{taken(chosen)}, one every {duration(terms.mean_time_between_failures)}; "
        f"goodput {terms.fraction:.1%}; {saving(terms)}",
        f"energy      {drawn(chosen)}",
    ]  # fmt: skip


def _pick(made: Plan, word: str, option: Option, today: datetime.date, term: Style) -> str:
    one, quote = option.candidate, option.quote
    paid = "purchase" if quote.owned else "owed"
    whole = f" (of {owed_whole(option)} {paid})" if option.committed_dollars is not None else ""
    return (
        f"{term.bold(word)}    {one.gpus:,} x {one.gpu} ({cluster_names(made)[one.cluster]}) {source(quote)}: "
        f"{term.bold(days(option.days))}, {term.bold(dollars(option.dollars))}{whole} {rate(option, today)}"
    )


def layout_words(option: Option) -> str:
    """The layout as a user would type it."""
    layout = option.candidate.layout
    words = [f"{name} {layout[name]}" for name in (*DEGREES, "dp") if layout[name] > 1]
    again = " and ".join((layout.get("recompute_modules") or layout["recompute"]).split(","))
    words += [f"zero {layout['zero']}", f"micro-batch {layout['micro_batch']}", f"recompute {again}"]
    some = layout["recompute"] == "full" and layout["recompute_layers"] > 0  # else all layers
    return ", ".join([*words, *([f"recompute-layers {layout['recompute_layers']}"] if some else [])])


def _misses(made: Plan, term: Style) -> list[str]:
    bound = any(one.committed_dollars is not None for one in made.nearest)
    clock, clusters = clock_of(made.nearest), cluster_names(made)
    rows = [
        [f"{one.candidate.gpus:,} x {one.candidate.gpu}", clusters[one.cluster], one.quote.whose, clock.told(one.days),
         dollars(one.dollars), *([owed_whole(one)] if bound else []), made.request.wish.lacks(one)]
        for one in made.nearest
    ]  # fmt: skip
    head = ["nearest", "cluster", "from", clock.name, "dollars", *([OWED] if bound else []), "misses by"]
    lines = columns(head, rows, left=(0, 1, 2, len(head) - 1))
    late = made.request.wish.days is not None and all(one.days > made.request.wish.days for one in made.options)
    most = max(made.sizes)
    other = f"; --gpus {2 * most}..{8 * most} tries more, and without --gpus sizes for the deadline are tried"
    tried = f"Tried: {least_to_most(made.sizes)} accelerators{other if made.request.sizes and late else ''}."
    told = f"{term.ink('No option meets the limits.', VERMILLION)} {tried}"
    return [*folded([told], 4), *folded(lines, lines[0].index(head[-1]))]


def table(made: Plan, top: int, today: datetime.date, term: Style) -> list[str]:
    """The cheapest options, with those of the Pareto front marked; a narrow terminal gets fewer columns."""
    front, mark, beyond = set(made.pareto), term.choose("●", "*"), term.choose(BEYOND, "x")
    shown = made.options[:top]
    clock, clusters = clock_of(shown), cluster_names(made)
    rows = [
        {"": (mark if index in front else "") + ("" if made.request.wish.met(option) else beyond),
         **_cells(made, option, today, clock, clusters)}
        for index, option in enumerate(shown)
    ]  # fmt: skip
    head = [name for name in rows[0] if name not in WHERE_ANY or any(row[name] != "-" for row in rows)]
    left = {"", "accelerator", "cluster", "from", "region", "price age"}
    told: list[str] = []
    for dropped in ("", *DISPENSABLE):
        head = [name for name in head if not dropped or name != dropped]
        flush = tuple(index for index, name in enumerate(head) if name in left)
        told = columns(head, [[row[name] for name in head] for row in rows], left=flush)
        if max(map(len, told)) <= term.width:
            break
    more = len(made.options) - len(rows)
    tail = [f"{more} more: --top {len(made.options)}, --csv or --json"] if more > 0 else []
    limits = outside(made, shown, f"; {beyond} ")
    title = f"{term.bold('Options')}, cheapest first; {mark} {unbeaten(made.options)}{limits}"
    return [*folded([title], indent=4), *told, *tail]


def _cells(made: Plan, option: Option, today: datetime.date, clock: Clock, clusters: dict[str, str]) -> dict[str, str]:
    one, quote = option.candidate, option.quote
    return {
        "GPUs": f"{one.gpus:,}", "accelerator": one.gpu, "cluster": clusters[one.cluster], "from": quote.whose,
        "region": quote.region or "-", "$/GPU-h": f"{quote.usd_per_gpu_hour:,.2f}", "price age": quote.age(today),
        clock.name: clock.told(option.days),
        "90%": f"{clock.told(option.days_low)}-{clock.told(option.days_high)}", ON_TIME: punctual(made, option),
        "GPU-hours": gpu_hours(option),
        "dollars": dollars(option.dollars), OWED: owed_whole(option),
        "MWh": "-" if option.energy_kwh is None else number(option.energy_kwh / KWH_PER_MWH, 0),
        "goodput": f"{one.goodput.fraction:.1%}", "MFU": "-" if option.mfu is None else f"{option.mfu:.0%}",
    }  # fmt: skip


def money_shares(option: Option) -> dict[str, float]:
    """Shares of the dollars: what the GPUs did while they were paid."""
    one, parts = option.candidate, option.candidate.breakdown
    known = {
        "arithmetic": parts.get("compute", 0.0), "recomputation": parts.get("recompute", 0.0),
        "communication": sum(parts.get(name, 0.0) for name in COMMUNICATION),
        "pipeline bubble": parts.get("pipeline_bubble", 0.0),
    }  # fmt: skip
    rest = max(one.step_seconds - sum(known.values()), 0.0)
    busy = option.busy_share
    shares = {name: one.share(seconds) * busy for name, seconds in {**known, "optimizer and rest": rest}.items()}
    lost = {"failures and checkpoints": (1 - one.goodput.fraction) * busy}
    return {**shares, **lost, "accelerators without ranks": 1 - busy}


def money_lines(option: Option, term: Style) -> list[str]:
    """A bar of where the money goes, and a row per part."""
    shares = money_shares(option)
    width = max(20, min(WIDEST_BAR, term.width - 4))
    bar, done, cells = "", 0.0, 0
    for name, (letter, ink) in PARTS.items():
        done += shares[name]
        run = round(done * width) - cells
        bar += term.ground(letter * run, ink) if run > 0 else ""
        cells += max(run, 0)
    rows = [
        [term.ground(letter, ink), name, f"{shares[name]:.1%}", dollars(shares[name] * option.dollars)]
        for name, (letter, ink) in PARTS.items() if shares[name] >= 5e-4
    ]  # fmt: skip
    title = f"{term.bold('Where the money goes')} ({option.candidate.gpus:,} x {option.candidate.gpu})"
    return [title, bar, *columns(["", "", "", ""], rows, left=(0, 1))[1:]]


def _scaling(made: Plan, option: Option) -> list[str]:
    if not made.request.compute_optimal or made.request.terms.job.lora_rank:  # a rule for training all weights
        return []
    best = made.optimum(option)
    if best is None:
        return []
    machines = f"{best.option.gpus:,} x {best.option.gpu} {source(best.option.quote)}"
    return [
        "",
        f"compute-optimal for {dollars(best.dollars)} at these prices, storage included: about "
        f"{count(best.parameters)} parameters with 20 tokens each, in {days(best.days)} on {machines} "
        "(Chinchilla, Hoffmann et al. 2022; for dense models, data quality not considered)",
    ]


def explained(made: Plan, term: Style) -> list[str]:
    """Each term of goodput, energy and owning of the chosen option, and below it its formula and source."""
    chosen = made.cheapest or made.nearest[0]
    draw, own = chosen.candidate.draw, made.buying(chosen)
    figures = [*chosen.candidate.goodput.figures, *(draw.figures if draw else []), *(own.figures if own else [])]
    rows = [[one.label, _plain(one.value), "" if one.value == math.inf else one.unit] for one in figures]
    head, *told = columns(["term", "value", "unit"], rows, left=(0, 2))
    answer = [term.bold(f"Terms of {chosen.candidate.gpus:,} x {chosen.candidate.gpu}"), head.rstrip()]
    for row, one in zip(told, figures, strict=True):
        source = f"{one.formula}: {one.source}" if one.formula else one.source
        answer += [row.rstrip(), *folded([f"    {source}"], indent=4)]
    return answer


def _plain(value: float) -> str:
    """Six digits without an exponent."""
    if value == math.inf:
        return "never"
    text = f"{value:.6g}"
    return text if "e" not in text else f"{value:,.0f}" if abs(value) >= 1 else f"{value:.9f}".rstrip("0")


def _number(value: Any) -> Any:
    """A switch as 1 or 0, as the files of a search have it."""
    return int(value) if isinstance(value, bool) else value


def csv_lines(made: Plan) -> Sequence[str]:
    """The options as CSV, SI units in the headers."""
    keys = ("cluster", "gpu", "gpus", "global_batch", "days", "gpu_hours", "dollars", "energy_kwh", "tonnes_co2e",
            "goodput", "spare_nodes", "tokens_per_dollar", "step_seconds", "step_mfu", "mfu")  # fmt: skip
    layout = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "micro_batch", "recompute")
    spread = ("days", "dollars", "energy_kwh", "tokens_per_dollar")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    ends = [f"{name}_{end}" for name in spread for end in ("low", "high")]
    price = ("provider", "term", "usd_per_gpu_hour", "price_date", "pareto", "within_limits", "committed_dollars")
    further = ("etp", "zero_group", "sequence_parallel", "recompute_layers", "schedule", "seq", "micro_batches",
               "recompute_modules")  # fmt: skip
    added = ("gpu_power", "framework", "payable_dollars", "billed_gpus")
    offer = ("instance", "region")
    writer.writerow([*keys, *layout, *price, "memory_fraction", *ends, *further, *added, *offer, "on_time"])
    front = set(made.pareto)
    for index, option in enumerate(made.options):
        row, quote = option.to_dict(), option.quote
        told = [quote.provider, quote.term, quote.usd_per_gpu_hour, quote.of_day, int(index in front),
                int(made.request.wish.met(option)), row["committed_dollars"], row["memory_fraction"]]  # fmt: skip
        bounds = [(row[f"{name}_interval"] or {}).get(end) for name in spread for end in ("low", "high")]
        rest = (*(_number(row["layout"][key]) for key in further), *(row[key] for key in added),
                *(row["price"][key] for key in offer), made.request.wish.on_time(option))  # fmt: skip
        writer.writerow([*(row[key] for key in keys), *(row["layout"][key] for key in layout), *told, *bounds, *rest])
    return out.getvalue().splitlines()
