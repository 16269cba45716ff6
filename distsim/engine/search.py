"""``distsim search``: every layout that rules and bounds allow, priced by the same ledger as ``distsim step``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distsim.engine import search_alike, search_money
from distsim.engine.resolve import Setup, resolve
from distsim.engine.search_best import Kept
from distsim.engine.search_bounds import Bounds
from distsim.engine.search_chunks import Pool, gather
from distsim.engine.search_contradiction import contradiction
from distsim.engine.search_fold import Block, blocks, setup_at
from distsim.engine.search_prices import Prices
from distsim.engine.search_ranking import COST, OBJECTIVES, Found, Objective
from distsim.engine.search_space import Group, groups
from distsim.engine.search_support import lenient
from distsim.engine.search_support import notes as support_notes
from distsim.engine.search_variants import FIXED, base_setup, variants
from distsim.engine.step import StepReport, step_of
from distsim.errors import DistsimError, did_you_mean
from distsim.specs.job import Job
from distsim.units import count

STEP_TOKENS = 4_000_000
"""Tokens per optimizer step where no batch is stated: Llama 2 (arXiv:2307.09288), section 2.2."""
KEPT = 64
FRONT = 24
"""Points of the front that are re-evaluated and reported; of more, every so many."""
SPARE = 3
"""More than asked are computed again, so that the order is that of their own numbers."""


@dataclass(frozen=True)
class Request:
    """What is searched for."""

    job: Job
    gpus: tuple[int, ...]
    bounds: Bounds
    objective: str = "throughput"
    margin: float = 0.0
    """Share of the memory that is to stay free."""
    within: float = math.inf
    """Seconds that a step may take."""
    top: int = 10
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Specs that replace those of the job, as in ``resolve``."""
    price: search_money.Wish | None = None
    """Whose prices; cost-per-token takes the usual ones where none are named."""
    all_ranks: bool = False
    """Rank layouts that are alike each by itself."""
    brief: bool = False
    """Only the best ones: no front, no near misses, which take longer to compute again than a small search takes."""
    batches: tuple[int, ...] = ()
    """Sequences per step to try; the job's own where there are none, as of the next two."""
    precisions: tuple[str, ...] = ()
    offloads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """A layout that was found, computed again by itself."""

    report: StepReport
    found: Found

    @property
    def options(self) -> dict[str, Any]:
        """What a user types for it."""
        return setup_at(self.report.setup, self.found.layout)

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract, with what its time is made of."""
        report = self.report
        return {
            "layout": report.setup.to_dict(), "options": self.options, "seconds": report.seconds, "mfu": report.mfu,
            "peak_memory": report.memory.peak, "tokens_per_second": report.tokens_per_second,
            "breakdown": report.breakdown,
        }  # fmt: skip


@dataclass(frozen=True)
class SearchReport:
    """The answer of ``distsim search``."""

    request: Request
    base: Setup
    batches: tuple[int, ...]
    """Sequences per step that were tried."""
    evaluated: int
    fitting: int
    """Layouts that fit memory."""
    feasible: int
    """Those of them whose step takes no longer than asked."""
    seconds: float
    """How long the search took."""
    limit: float
    best: tuple[Choice, ...]
    front: tuple[Choice, ...]
    almost: tuple[Choice, ...]
    nearest: tuple[Choice, ...]
    """Where nothing is feasible: the layouts that miss by least."""
    kept: Kept
    rents: Mapping[int, search_money.Rent]
    """What each number of GPUs costs, where prices were asked for."""
    interrupted: bool
    notes: tuple[str, ...]
    families: dict[Any, search_alike.Alike] = field(default_factory=dict)

    @property
    def global_batch(self) -> int:
        """Sequences per step: of all layouts, or of the best where several were tried."""
        if len(self.batches) == 1 or not self.best:
            return self.batches[0]
        return int(self.best[0].found.group.batch)

    def usd_per_million_tokens(self, choice: Choice) -> float | None:
        """Dollars that a million tokens cost with a layout, failures not counted; None where prices were not asked."""
        rent = self.rents.get(int(choice.report.setup.layout.gpus))
        return None if rent is None else rent.usd_per_million_tokens(choice.report.tokens_per_second)

    def alike(self, choice: Choice) -> search_alike.Alike | None:
        """How many layouts are like a ranked one; None where each is ranked by itself, or so many were asked for that
        it would take long."""
        if self.request.all_ranks or self.request.top > search_alike.MOST:
            return None
        if choice.found.name not in self.families:
            self.families[choice.found.name] = search_alike.alike(choice.found, self.kept)
        return self.families[choice.found.name]

    def told(self, choice: Choice) -> dict[str, Any]:
        """A layout as plain data, with its price and, of ranked ones, how many are like it."""
        made, dollars = choice.to_dict(), self.usd_per_million_tokens(choice)
        if dollars is not None:
            made["usd_per_million_tokens"] = dollars
        family = self.alike(choice) if any(choice is one for one in self.best) else None
        if family is not None:
            made["alike"] = family.to_dict()
        return made

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract; ``pareto`` counts from 0 in ``layouts``, least memory first."""
        layouts = list(self.best)
        places = {choice.found.name: index for index, choice in enumerate(self.best)}
        pareto = []
        for choice in self.front:
            where = choice.found.name
            if where not in places:
                places[where] = len(layouts)
                layouts.append(choice)
            pareto.append(places[where])
        return {
            "schema": "distsim.search/1", "evaluated": self.evaluated, "feasible": self.feasible,
            "seconds": self.seconds, "layouts": [self.told(choice) for choice in layouts], "pareto": pareto,
            "ranked": len(self.best), "objective": self.request.objective, "global_batch": self.global_batch,
            "global_batches": list(self.batches),
            "memory_limit": round(self.limit), "almost": [self.told(choice) for choice in self.almost],
            "nearest": [self.told(choice) for choice in self.nearest], "interrupted": self.interrupted,
            "prices": [rent.to_dict() for rent in self.rents.values()], "notes": list(self.notes),
        }  # fmt: skip


Watch = Callable[[int, int], None]
"""Told how many layouts are done, and of how many."""


def search(
    request: Request,
    watch: Watch | None = None,
    every: Callable[[Block], None] | None = None,
    pool: Pool | None = None,
) -> SearchReport:
    """Evaluate all layouts, in a pool's processes if one is given, with the same answer; ``every`` is given each block
    of them, but not from a pool. An interrupt ends the search with what it has."""
    began = time.perf_counter()
    if request.objective not in OBJECTIVES:
        near = did_you_mean(request.objective, OBJECTIVES)
        raise DistsimError(f"unknown objective {request.objective!r}", near, f"objectives: {', '.join(OBJECTIVES)}")
    if not 0 <= request.margin < 1:
        raise DistsimError(f"--margin {request.margin:g} is no share of the memory", "give 0 to 0.99, e.g. 0.05")
    request = lenient(request)
    notes: list[str] = []
    base = base_setup(request.job, max(request.gpus), request.overrides)
    batches = request.batches or (request.job.global_batch or usual_batch(base, request.gpus, notes),)
    limit = base.accelerator.capacity * (1 - request.margin)
    rents = rents_of(request)
    notes += dict.fromkeys(rent.note for rent in rents.values() if rent.note)
    hourly = {gpus: rent.usd_per_hour for gpus, rent in rents.items()} if request.objective == COST else {}
    objective = Objective(request.objective, hourly)
    kept = Kept(limit, objective, request.within, max(KEPT, 2 * request.top), batches[0])
    interrupted = False
    try:
        _walk(request, batches, kept, watch, every, pool)
    except KeyboardInterrupt:
        interrupted = True
        notes.append("interrupted: the best of what was evaluated so far")
    if not kept.evaluated and not interrupted:
        raise contradiction(request, base, batches)
    best = _ranked((kept.every if request.all_ranks else kept.best).found, request.top, kept)
    return SearchReport(
        request, base, batches, kept.evaluated, kept.fitting, kept.feasible, time.perf_counter() - began, limit,
        best,
        () if request.brief else tuple(choice(one) for one in thinned(kept.front.found)),
        () if request.brief else tuple(choice(one) for one in _almost(kept)),
        () if kept.feasible or request.brief else tuple(
            choice(one) for one in (kept.quickest.found or kept.nearest.found)[: min(request.top, 5)]
        ),
        kept, rents, interrupted, (*base.notes, *notes, *support_notes(request, best)),
    )  # fmt: skip


def rents_of(request: Request) -> dict[int, search_money.Rent]:
    """What each number of GPUs costs, where prices are asked for."""
    wish = request.price or (search_money.Wish() if request.objective == COST else None)
    if wish is None:
        return {}
    return search_money.rents(wish, base_setup(request.job, max(request.gpus), request.overrides), request.gpus)


def _almost(kept: Kept, most: int = 5) -> list[Found]:
    """Layouts that nearly fit and would be faster than the best that does."""
    best = min((one.seconds_per_sequence for one in kept.best.found), default=math.inf)
    return [one for one in kept.almost.found if one.seconds_per_sequence < best][:most]


def _walk(
    request: Request, batches: Sequence[int], kept: Kept, watch: Watch | None, every: Callable[[Block], None] | None,
    pool: Pool | None,
) -> None:  # fmt: skip
    prices = Prices()
    for gpus in sorted(request.gpus):
        found = _groups(request, gpus, batches)
        whole, done = sum(group.layouts for group in found), kept.evaluated
        if pool is not None:
            gather(pool, found, kept, watch)
        for group in found if pool is None else ():
            for block in blocks(group, prices):
                kept.add(block)
                if every is not None:
                    every(block)
                if watch is not None:
                    watch(kept.evaluated, done + whole)
        if request.objective == "fewest-gpus" and kept.feasible:
            return


def _groups(request: Request, gpus: int, batches: Sequence[int]) -> list[Group]:
    """All groups for a number of GPUs, batch after batch, each with every recipe and offloading."""
    opened = list(variants(request.job, gpus, request.precisions, request.offloads, request.overrides))
    return [group for batch in batches for base in opened for group in groups(base, gpus, batch, request.bounds)]


def usual_batch(base: Setup, gpus: Sequence[int], notes: list[str]) -> int:
    """About four million tokens: the GPUs' odd factor times a power of two, so that data parallel ranks divide it."""
    wanted = STEP_TOKENS / base.layout.seq
    odd = max(number // (number & -number) for number in gpus)
    batch = odd * 2 ** max(round(math.log2(max(wanted / odd, 1))), 0)
    notes.append(f"--global-batch not given: {batch} sequences taken, {count(batch * base.layout.seq)} tokens per step")
    return int(batch)


def choice(found: Found) -> Choice:
    """A found layout, computed again by ``distsim step``."""
    base = found.group.setup
    options = setup_at(base, found.layout)
    job = base.job.model_copy(update={**dict.fromkeys(FIXED), **options})
    same = {"accelerator": base.accelerator, "cluster": base.cluster, "framework": base.framework}
    return Choice(step_of(resolve(job, same)), found)


def _ranked(found: list[Found], top: int, kept: Kept) -> tuple[Choice, ...]:
    """The best few, in the order that their own computation gives."""
    again = [choice(one) for one in found[: top + SPARE]]
    order = sorted(again, key=lambda one: (
        kept.ordered(one.report.seconds, one.report.memory.peak, one.found.group), one.report.seconds,
        one.report.memory.peak,
    ))  # fmt: skip
    return tuple(order[:top])


def thinned(found: list[Found], most: int = FRONT) -> list[Found]:
    """Points of a front, evenly by their number, both ends kept."""
    if len(found) <= most:
        return list(found)
    return [found[round(index * (len(found) - 1) / (most - 1))] for index in range(most)]
