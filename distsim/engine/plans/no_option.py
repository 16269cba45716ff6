"""Why a plan has no option at all, and what to type instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from distsim import catalog
from distsim.engine.campaigns.prices import Quote
from distsim.engine.jobs.models import USUAL_SEQUENCE
from distsim.engine.plans.goodput import LEAST_INTERVAL_SECONDS
from distsim.engine.plans.plan import LONGEST_DAYS, Candidate, Option
from distsim.engine.plans.sold import chip_of, gpu_of
from distsim.errors import DistsimError
from distsim.formulas.goodput import daly_interval_seconds, wall_over_work
from distsim.specs.flags import flag, typed
from distsim.specs.limits import LARGEST_DEGREE
from distsim.specs.written import model_word, options_of
from distsim.units import DAY, YEAR, duration, least_to_most

if TYPE_CHECKING:
    from distsim.engine.plans.request import Request

YEAR_DAYS = YEAR / DAY
FIXED = ("tp", "pp", "cp", "ep", "zero", "recompute", "micro_batch", "zero_group")
"""Bounds that decide what layouts need of a GPU's memory."""
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
            *_held(request),
            *_smaller(request, places),
            "try more accelerators with --gpus, or accelerators with more memory"
            if request.sizes
            else f"{least_to_most([gpus for _, gpus in places])} were tried: take accelerators with more memory",
        )
    if not any(known.values()):
        raise _not_whole(request, model, [gpus for _, gpus in places], known)
    priced = [one.under(quote.term) for one in made for quote in known[one.cluster, one.gpus]]
    return _for_ever(request, priced)


def _not_whole(
    request: Request, model: str, tried: Sequence[int], known: Collection[tuple[str, int]]
) -> DistsimError:  # fmt: skip
    """Layouts fit, but on numbers of accelerators that are no whole nodes; ``known`` are the places of these."""
    nodes = sorted({catalog.load("clusters", cluster).gpus_per_node for cluster, _ in known})
    fitting = {gpus for _, gpus in known}
    sizes = [size for size in dict.fromkeys(tried) if size in fitting]
    full = [size for size in dict.fromkeys(tried) if size not in fitting]
    words, whole = ", ".join(map(str, sorted(sizes))), f"whole nodes of {' or '.join(map(str, nodes))}"
    return DistsimError(
        f"no listed provider rents out {words} accelerators in {whole}" if request.own_rate is None
        else f"{words} accelerators are not {whole}",
        f"no layout of {model} that was tried fits on {', '.join(map(str, full))}" if full else "",
        f"use whole nodes: --gpus {_whole_nodes(sizes, nodes[0])}",
    )  # fmt: skip


def _held(request: Request) -> list[str]:
    """What the user fixed of the layout, none of which more accelerators mend."""
    job, bounds = request.terms.job, request.terms.bounds.given
    fixed = [f"{flag(name)} {bound.text}" for name, bound in bounds.items() if name in FIXED]
    if job.seq and job.seq > USUAL_SEQUENCE:
        fixed.append(f"--seq {job.seq}")
    if request.terms.margin:
        fixed.append(f"--margin {request.terms.margin * 100:g}%")
    return [f"every layout that was tried has {', '.join(fixed)}: try without"] if fixed else []


def _smaller(request: Request, places: Sequence[tuple[str, int]]) -> list[str]:
    """Shorter sequences than those of a usual length, which nobody may have stated, and the command that lists what
    makes the job fit on the largest of some places."""
    job = request.terms.job
    usual = job.seq is not None and job.seq <= USUAL_SEQUENCE  # of longer ones ``_held`` tells
    cluster, gpus = max(places, key=lambda place: place[1] * chip_of(place[0]).capacity)
    bounds = {name: bound.text for name, bound in request.terms.bounds.given.items() if bound.text.isdigit()}
    asked = typed({"cluster": cluster, "gpus": gpus, **options_of(job), **bounds})
    return [
        f"sequences have {job.seq:,} tokens: --seq takes shorter ones, which need less" if usual else "",
        f"what makes it fit: distsim memory {model_word(job)} {asked}",
    ]


def without_option(
    request: Request, model: str, places: Sequence[tuple[str, int]],
    known: Mapping[tuple[str, int], Sequence[Quote]], found: Sequence[Option], refused: Mapping[tuple[str, int], str],
) -> list[str]:  # fmt: skip
    """A note on each number of accelerators, accelerator and cluster that was asked for and tried, and is in no option
    that was ``found``; ``known`` are the prices of each place that a layout fits, ``refused`` what is wrong elsewhere
    with the options."""
    had = {(one.cluster, one.gpus) for one in found}
    groups: dict[str, list[tuple[str, int]]] = {}
    for place in places:
        of_kinds = (
            f"{place[1]:,} accelerators" if request.sizes else "", gpu_of(place[0]) if request.gpus else "",
            place[0] if request.clusters else "",
        )  # fmt: skip
        for name in filter(None, of_kinds):
            groups.setdefault(name, []).append(place)
    return [
        f"left out: {name}{_why(model, group, known, refused)}"
        for name, group in groups.items() if not had.intersection(group)
    ]  # fmt: skip


def _why(
    model: str, group: Sequence[tuple[str, int]], known: Mapping[tuple[str, int], Sequence[Quote]],
    refused: Mapping[tuple[str, int], str],
) -> str:  # fmt: skip
    """Why none of some places is in an option."""
    fitting = [place for place in group if place in known]
    if all(place in refused for place in group):
        return f": {refused[group[0]]}"
    if not fitting:
        return f", on which no layout of {model} that was tried fits"
    if not any(known[place] for place in fitting):
        nodes = sorted({catalog.load("clusters", cluster).gpus_per_node for cluster, _ in fitting})
        return f", which nobody rents out in whole nodes of {' or '.join(map(str, nodes))}"
    return f", which would take more than {YEARS}, or fail too often to finish"


def _whole_nodes(sizes: Sequence[int], node: int) -> str:
    """The counts nearest to those asked for that are whole nodes."""
    return ",".join(dict.fromkeys(str(max(round(size / node), 1) * node) for size in sizes)) or str(node)


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
    fewer = f", about --gpus {min(sizes, key=lambda gpus: sizes[gpus])}" if sizes else ""
    return _failing(one, tokens, every, "machines fail or are taken away" if taken else "something fails", fewer)


def _failing(one: Candidate, tokens: float, every: float | None, why: str, fewer: str) -> DistsimError:
    """Failures leave a candidate no time: checkpoints that are due too seldom, that take too long to write, or neither.
    ``every`` is a stated time between them in seconds."""
    kept = one.goodput
    mean = kept.mean_time_between_failures
    often = f"no plan finishes: {why} every {duration(mean)} on {one.gpus:,} x {one.gpu}"
    if every is not None and days_on(one, one.gpus, tokens, None) <= LONGEST_DAYS:
        best = f"the best for so many is {duration(best_interval(one, mean))}"
        return DistsimError(f"{often}, and a checkpoint is due every {duration(every)}",
                            f"leave --checkpoint-every out: {best}")  # fmt: skip
    written = kept.blocking + kept.drain
    if written > mean:
        return DistsimError(f"{often}, and writing a checkpoint takes {duration(written)}",
                            f"use storage that writes faster, or fewer of them{fewer}")  # fmt: skip
    return DistsimError(f"{often}, which leaves no time to train", f"use fewer of them{fewer}")


def best_interval(one: Candidate, mean: float) -> float:
    """Seconds between two checkpoints that lose least where something fails every ``mean`` seconds."""
    kept = one.goodput
    best = float(daly_interval_seconds(kept.blocking, mean))
    return max(best, LEAST_INTERVAL_SECONDS, kept.drain - kept.blocking)


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
    stretch = wall_over_work(every or best_interval(one, mean), kept.blocking, kept.drain, kept.restart, mean)
    waits = 1 + (kept.wait_stretch - 1) * times
    return undisturbed_days(one, tokens) / times * float(stretch) * waits * kept.planned_stretch
