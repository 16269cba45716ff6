"""Why a plan has no option at all, and what to type instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from distsim import catalog
from distsim.engine.campaigns.prices import Quote
from distsim.engine.plans.goodput import LEAST_INTERVAL_SECONDS
from distsim.engine.plans.plan import LONGEST_DAYS, Candidate
from distsim.errors import DistsimError
from distsim.formulas.goodput import daly_interval_seconds, wall_over_work
from distsim.specs.limits import LARGEST_DEGREE
from distsim.units import DAY, YEAR, duration

if TYPE_CHECKING:
    from distsim.engine.plans.request import Request

YEAR_DAYS = YEAR / DAY
YEARS = f"{LONGEST_DAYS / YEAR_DAYS:.0f} years"


def nothing_found(
    request: Request, model: str, places: Sequence[tuple[str, int]], made: Sequence[Candidate],
    known: Mapping[tuple[str, int], Sequence[Quote]],
) -> DistsimError:  # fmt: skip
    """Nothing fits, or all of it takes for ever. Raises where nobody rents out so many. ``made`` are the layouts that
    fit, ``known`` the prices of each place."""
    if not known:
        return DistsimError(
            f"no layout of {model} fits any cluster that was tried: {', '.join(sorted({c for c, _ in places}))}",
            "try more accelerators with --gpus, or accelerators with more memory",
        )
    if not any(known.values()):
        nodes = sorted({catalog.load("clusters", cluster).gpus_per_node for cluster, _ in known})
        sizes = ", ".join(map(str, sorted({gpus for _, gpus in known})))
        raise DistsimError(
            f"no listed provider rents out {sizes} accelerators in whole nodes of {' or '.join(map(str, nodes))}",
            f"use whole nodes: --gpus {_whole_nodes(request.sizes, nodes[0])}",
        )
    priced = [one.under(quote.term) for one in made for quote in known[one.cluster, one.gpus]]
    return _for_ever(request, priced)


def _whole_nodes(sizes: Sequence[int], node: int) -> str:
    """The counts nearest to those asked for that are whole nodes."""
    return ",".join(str(max(round(size / node), 1) * node) for size in sizes) or str(node)


def _for_ever(request: Request, priced: Sequence[Candidate]) -> DistsimError:
    """Every option takes too long: failures leave it no time, or there is too much to compute. ``priced`` are what runs
    at the terms that somebody offers."""
    tokens = request.tokens
    one = min(priced, key=lambda one: one.days(tokens, one.step_seconds))
    work, every = undisturbed_days(one, tokens), request.terms.policy.interval_seconds
    sizes = {gpus: days for gpus in node_sizes(one) if (days := days_on(one, gpus, tokens, every)) <= LONGEST_DAYS}
    if work > LONGEST_DAYS:
        problem = (
            f"every plan takes more than {YEARS}: {one.gpus:,} x {one.gpu} compute for {work / YEAR_DAYS:,.0f} years"
        )
        if not sizes:
            why = f"no number of them up to {LARGEST_DEGREE:,} is enough"
            if work * one.gpus / LARGEST_DEGREE <= LONGEST_DAYS:
                why = "the number it takes would fail too often"
            return DistsimError(problem, f"{why}: train on fewer tokens, or a smaller model")
        return DistsimError(problem, f"enough if steps scale perfectly: --gpus {min(sizes)}")
    taken = request.terms.policy.node_preempted_every is not None and one.goodput is one.spot
    why = "machines fail or are taken away" if taken else "something fails"
    often = f"{why} every {duration(one.goodput.mean_time_between_failures)} on {one.gpus:,} x {one.gpu}"
    fewer = f", about --gpus {min(sizes, key=lambda gpus: sizes[gpus])}" if sizes else ""
    return DistsimError(f"no plan finishes: {often}, which leaves no time to train", f"use fewer of them{fewer}")


def undisturbed_days(one: Candidate, tokens: float) -> float:
    """Days of a run in which nothing fails and nothing is saved."""
    return one.work_seconds(tokens) * one.goodput.slow_steps / DAY


def node_sizes(one: Candidate) -> list[int]:
    """Numbers of accelerators: a node of a candidate, and its doubles."""
    node: int = catalog.load("clusters", one.cluster).gpus_per_node
    return [node * 2**power for power in range((LARGEST_DEGREE // node).bit_length())]


def days_on(one: Candidate, gpus: int, tokens: float, every: float | None) -> float:
    """Days on another number of accelerators by arithmetic: steps in proportion, checkpoints and restarts as they are,
    failures and waits for repairs as often as so many have. ``every`` is a stated time between checkpoints in
    seconds."""
    kept, times = one.goodput, gpus / one.gpus
    mean = kept.mean_time_between_failures / times
    best = max(float(daly_interval_seconds(kept.blocking, mean)), LEAST_INTERVAL_SECONDS, kept.drain - kept.blocking)
    stretch = wall_over_work(every or best, kept.blocking, kept.drain, kept.restart, mean)
    waits = 1 + (kept.wait_stretch - 1) * times
    return undisturbed_days(one, tokens) / times * float(stretch) * waits * kept.planned_stretch
