"""``distsim search``: every layout that rules and bounds allow, priced by the same ledger as ``distsim step``."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from distsim import catalog
from distsim.engine.campaigns.batch import ADAPTED, USUAL_STEP_TOKENS, adapted_batch, divided_batch
from distsim.engine.campaigns.pace import campaign_pace
from distsim.engine.campaigns.prices import high_rents
from distsim.engine.corrections.unfitted import unfitted
from distsim.engine.counted import Pool, Show
from distsim.engine.exchanges.profile_use import unused_by_job
from distsim.engine.exchanges.reach import refuse_beyond, straddling
from distsim.engine.jobs.framework_notes import checkpoints_alone, narrow_by_default
from distsim.engine.jobs.lacking import lacking
from distsim.engine.jobs.modules import module_notes
from distsim.engine.jobs.placement import placement_note
from distsim.engine.jobs.reference import pair_note
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts import money as search_money
from distsim.engine.layouts import schedules as search_schedules
from distsim.engine.layouts import shown
from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.choice import Choice, Steps
from distsim.engine.layouts.chunks import gather
from distsim.engine.layouts.contradiction import contradiction
from distsim.engine.layouts.fold import Block, Inside, Shared, blocks, footprint_of, untimed
from distsim.engine.layouts.opened import left_out, opened
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.ranking import COST, OBJECTIVES, Objective
from distsim.engine.layouts.report import Request, SearchReport
from distsim.engine.layouts.space import Group, groups
from distsim.engine.layouts.support import has, lenient
from distsim.engine.layouts.support import notes as support_notes
from distsim.engine.layouts.tried import unread_notes
from distsim.engine.layouts.variants import READ_BEYOND_ONE, base_setup, unread
from distsim.engine.layouts.ways import without_stages
from distsim.engine.networks.unknown import unknown_links
from distsim.engine.steps.simulated import ALWAYS_EXACT, LEARNED
from distsim.errors import DistsimError, did_you_mean
from distsim.specs.flags import flag
from distsim.specs.model import Model
from distsim.units import count

LEAST_KEPT = 64
"""Layouts that are kept as they pass, where fewer are asked for: what is shown is ordered anew among them."""


@catalog.settled()  # each layout that is shown is resolved again, with the same presets
def search(
    request: Request,
    watch: Show | None = None,
    every: Callable[[Block], None] | None = None,
    pool: Pool | None = None,
    shared: Shared | None = None,
    partly: bool = False,
    enough: int = 0,
    empty: bool = False,
) -> SearchReport:
    """Evaluate all layouts, if they are ``enough`` in a pool's processes if one is given, with the same answer;
    ``every`` is given each block of them, but not from a pool. ``shared`` keeps what the same search on other networks
    would compute again. With ``partly`` an interrupt ends the search with what it has, with ``empty`` that there are no
    layouts is an answer: to say why takes longer."""
    began = time.perf_counter()
    _check(request)
    request = lenient(request)
    notes: list[str] = []
    base = base_setup(request.job, max(request.gpus), request.overrides)
    refuse_beyond(base, max(request.gpus))
    batches = request.batches or (request.job.global_batch or usual_batch(base, request.gpus, notes),)
    rents = rents_of(request)
    notes += [*_rent_notes(rents), *left_out(request)]
    kept = _nothing_yet(request, base, batches[0], rents, pool is None)
    interrupted = False
    try:
        _walk(request, batches, kept, watch, every, pool, shared, enough)
        _simulate(request, base.model, batches, kept, every, notes)
    except KeyboardInterrupt:
        if not partly:
            raise
        interrupted = True
        notes.append("interrupted: showing the best of what was evaluated so far")
    if not kept.evaluated and not interrupted and not empty:
        raise contradiction(request, base, batches)
    known: Steps = {}
    best = shown.ranked(kept, request.top, known, request.all_ranks)
    late = sum(one.found.seconds > kept.longest(one.found.group.batch) for one in best)  # by their closed form
    if best:
        first = best[0].report.setup
        notes += filter(None, [search_money.left_idle(rents.get(int(first.layout.gpus)), first)])
    return SearchReport(
        request, base, batches, kept.evaluated, kept.fitting, kept.feasible + late if best else 0,
        time.perf_counter() - began, kept.limit, best, kept, known, rents, interrupted,
        _notes(request, base, [*notes, *unread_options(request, batches, best)], best, bool(rents)),
    )  # fmt: skip


def _rent_notes(rents: Mapping[int, search_money.Rent]) -> list[str]:
    """What is told of rents, and those that are suspiciously high."""
    stated = ((one.quote.whose if one.quote else "--price", one.usd_per_gpu_hour) for one in rents.values())
    return [*dict.fromkeys(rent.note for rent in rents.values() if rent.note), *high_rents(stated)]


def _nothing_yet(
    request: Request, base: Setup, batch: int, rents: Mapping[int, search_money.Rent], alone: bool
) -> Kept:
    """What a search begins with; one that runs ``alone``, in this process, may keep no more than what is shown."""
    hourly = {gpus: rent.usd_per_hour for gpus, rent in rents.items()} if request.objective == COST else {}
    certain = {*request.bounds.words("schedule")} <= {*LEARNED, *ALWAYS_EXACT}  # found in the order of their own steps
    brief = request.brief and not request.all_ranks and alone and certain
    most = request.top + shown.SPARE if brief else max(LEAST_KEPT, 2 * request.top)
    limit, objective = base.accelerator.limit(request.margin), Objective(request.objective, hourly)
    return Kept(limit, objective, request.within, most, batch, pace_of(request, base), brief, not certain)


def _check(request: Request) -> None:
    """Raise for an objective that is none, and for a share of the memory that leaves none."""
    if request.objective not in OBJECTIVES:
        near = did_you_mean(str(request.objective), OBJECTIVES)
        raise DistsimError(f"unknown objective {request.objective!r}", near, f"objectives: {', '.join(OBJECTIVES)}")
    if not 0 <= request.margin < 1:
        raise DistsimError(f"--margin {request.margin:g} is not a share of the memory", "give 0 to 0.99, e.g. 0.05")


def _notes(
    request: Request, base: Setup, found: Sequence[str], best: Sequence[Choice], priced: bool
) -> tuple[str, ...]:  # fmt: skip
    """All notes of a search, with those that were ``found`` on its way."""
    most = max(request.gpus)
    return (
        *base.notes, *narrow_by_default(base), *checkpoints_alone(base), *unfitted(base), *lacking(base),
        *unknown_links(base.accelerator, base.cluster, most), *found, *placed(best),
        *without_stages(base, most, request.bounds), *support_notes(request, tuple(best), base.model),
        *unused_profile(best), *pace_note(request, priced), *split_pairs(best),
    )  # fmt: skip


def split_pairs(best: Sequence[Choice]) -> list[str]:
    """A note where the best layouts split pairs of answers, as the user asked for."""
    setups = [one.report.setup for one in best]
    return [note for note in dict.fromkeys(pair_note(one.job, int(one.layout.micro_batch)) for one in setups) if note]


def pace_note(request: Request, priced: bool) -> list[str]:
    """What days and dollars rest on, where there are any."""
    told = [*(["days"] if request.tokens is not None else []), *(["dollars"] if priced else [])]
    pace = f"steps take {campaign_pace():g} times as long as in benchmarks"
    return [f"{' and '.join(told)} assume the pace of published campaigns: {pace}"] if told else []


def unused_profile(best: Sequence[Choice]) -> list[str]:
    """A note where the network profile has no factor for any of the best layouts."""
    found = [unused_by_job(choice.report.setup) for choice in best]
    return list(found[0]) if found and all(found) else []


def unread_options(request: Request, batches: Sequence[int], best: Sequence[Choice]) -> list[str]:
    """A note for each option that the job states and none of the best layouts reads."""
    stated = {
        flag(option, value): degree for option, degree in READ_BEYOND_ONE.items()
        if best and (value := getattr(request.job, option)) is not None
        and all(option in unread(one.report.setup.layout._asdict()) for one in best)
    }  # fmt: skip
    return unread_notes(stated, lambda: tried(request, batches), "shown")


def tried(request: Request, batches: Sequence[int]) -> Iterator[Group]:
    """All layouts of a search again; where only schedules without a closed form are asked for, those whose degrees
    these were tried under."""
    names = request.bounds.words("schedule")
    if names and names == search_schedules.asked(request.bounds):
        request = replace(request, bounds=search_schedules.with_stand_ins(request.bounds))
    for gpus in request.gpus:
        yield from _groups(request, gpus, batches)


def placed(best: Sequence[Choice]) -> list[str]:
    """Notes on the best layout: how the framework places layers that do not divide, which groups cross nodes, which
    recipe of 8 bits the modules take that are computed again, and what an MFU over 100% counts."""
    setups = [choice.report.setup for choice in best[:1]]
    notes = [placement_note(None, one.chunk_layers, one.model, one.layout, one.framework) for one in setups]
    notes += [note for one in setups for note in (*straddling(one), *module_notes(one.job, one.precision))]
    beyond = (note for choice in best if (note := choice.report.beyond_peak()))
    return [*(f"layout 1: {note}" for note in notes if note), *itertools.islice(beyond, 1)]


def pace_of(request: Request, base: Setup) -> float:
    """Seconds per sequence that meet the deadline at the pace of campaigns; infinite where there is none."""
    if request.tokens is None or request.deadline == math.inf:
        return math.inf
    return float(request.deadline / campaign_pace() / request.tokens * base.layout.seq)


def rents_of(request: Request) -> dict[int, search_money.Rent]:
    """What each number of GPUs costs, where prices are asked for."""
    wish = request.price or (search_money.Wish() if request.objective == COST else None)
    if wish is None:
        return {}
    return search_money.rents(wish, base_setup(request.job, max(request.gpus), request.overrides), request.gpus)


def _walk(
    request: Request, batches: Sequence[int], kept: Kept, watch: Show | None, every: Callable[[Block], None] | None,
    pool: Pool | None, shared: Shared | None = None, enough: int = 0,
) -> None:  # fmt: skip
    prices = Prices()
    for gpus in sorted(request.gpus):
        found = _groups(request, gpus, batches)
        whole, done = sum(group.layouts for group in found), kept.evaluated
        if pool is not None and whole >= enough:
            gather(pool, found, kept, watch)
            found = []
        for number, group in enumerate(found):
            inside = Inside() if shared is None else shared.setdefault((gpus, number), Inside())
            # the first is timed in any case, so that what cannot be timed is refused
            timed = not number or every is not None or footprint_of(group, inside).fits(kept.most_bytes)
            if not timed:
                kept.untimed.append(group)
            for block in blocks(group, prices, inside) if timed else untimed(group, inside):
                kept.add(block)
                if every is not None:
                    every(block)
                if watch is not None:
                    watch(kept.evaluated, done + whole)
        if request.objective == "fewest-gpus" and shown.ranked(kept, 1, {}):
            return
    if not kept.fitting and not kept.brief:
        _time_nearest(kept, prices)


def _time_nearest(kept: Kept, prices: Prices) -> None:
    """Time the groups that may have one of the nearest misses, where these are all there is to show."""
    bound, groups = kept.nearest.worst, kept.untimed
    kept.timed()
    for group in groups:
        inside = Inside()
        if footprint_of(group, inside).fits(bound):
            for block in blocks(group, prices, inside):
                kept.miss(block)


def _simulate(
    request: Request, model: Model, batches: Sequence[int], kept: Kept, every: Callable[[Block], None] | None,
    notes: list[str],
) -> None:  # fmt: skip
    """Add the best layouts under the schedules that have no closed form, where these are asked for."""
    names = search_schedules.asked(request.bounds)
    able = [name for name in names if has(request, model, "schedule", name)]
    if not able:
        return
    origin, words = kept, set(request.bounds.words("schedule"))
    if words == set(names):  # no layout is known yet
        origin = replace(kept)
        seeking = replace(request, bounds=search_schedules.with_stand_ins(request.bounds))
        _walk(seeking, batches, origin, None, None, None)
    before, prices = kept.evaluated, Prices()
    for group in search_schedules.simulated(origin, request.bounds, lambda: kept.fitting):
        try:
            for block in blocks(group, prices):
                kept.add(block)
                if every is not None:
                    every(block)
        except DistsimError:  # sizes that the schedule cannot take
            continue
    many = f"{kept.evaluated - before:,} layouts"
    notes.append(f"{', '.join(able)}: simulated only at the degrees of the best few under other schedules ({many})")


def _groups(request: Request, gpus: int, batches: Sequence[int]) -> list[Group]:
    """All groups for a number of GPUs, batch after batch, each with every recipe and offloading."""
    every = list(opened(request, gpus))
    return [group for batch in batches for base in every for group in groups(base, gpus, batch, request.bounds)]


def usual_batch(base: Setup, gpus: Sequence[int], notes: list[str]) -> int:
    """About four million tokens, so that data parallel ranks divide them on the number with the largest odd factor; few
    sequences where adapters train."""
    odd = max(gpus, key=lambda number: number // (number & -number))
    adapted = base.tuning is not None and base.tuning.rank > 0
    seq = int(base.layout.seq)
    batch = adapted_batch(seq, max(gpus), odd) if adapted else divided_batch(USUAL_STEP_TOKENS / seq, odd)
    why = f": {ADAPTED}" if adapted else ""
    tokens = count(batch * base.layout.seq)
    notes.append(f"--global-batch not given: using {batch:,} sequences ({tokens} tokens) per step{why}")
    return batch
