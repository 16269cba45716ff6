"""What a search is asked, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from distsim.engine.campaigns.pace import campaign_pace
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts import alike as search_alike
from distsim.engine.layouts import money as search_money
from distsim.engine.layouts import shown
from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.bounds import Bounds
from distsim.engine.layouts.choice import Choice, Steps
from distsim.formulas.money import MILLION
from distsim.specs.job import Job
from distsim.units import DAY


@dataclass(frozen=True)
class Request:
    """A search as it was asked for: the job, numbers of GPUs, bounds, objective and limits."""

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
    tokens: float | None = None
    """Tokens to train on."""
    deadline: float = math.inf
    """Seconds in which they are to be trained, failures not counted."""


@dataclass(frozen=True, repr=False, eq=False)
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
    kept: Kept
    known: Steps
    """Of layouts that were computed again."""
    rents: Mapping[int, search_money.Rent]
    """What each number of GPUs costs, where prices were asked for."""
    interrupted: bool
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        first = f"best={self.best[0]!r}" if self.best else "nothing feasible"
        return f"SearchReport({self.feasible:,} of {self.evaluated:,} layouts feasible: {first})"

    @cached_property
    def front(self) -> tuple[Choice, ...]:
        """Layouts that no other beats in both time and memory; like the next two they are computed again when they are
        asked for, which takes longer than a small search."""
        return () if self.request.brief else shown.front_of(self.best, self.kept, self.known)

    @cached_property
    def almost(self) -> tuple[Choice, ...]:
        """Layouts that nearly fit and would be better than the best."""
        return () if self.request.brief else shown.almost(self.best, self.kept, self.known)

    @cached_property
    def nearest(self) -> tuple[Choice, ...]:
        """Where nothing is feasible: the layouts that miss by least."""
        return () if self.request.brief or self.best else shown.nearest(self.kept, self.known, min(self.request.top, 5))

    @property
    def limited(self) -> bool:
        """Whether a step may only take so long."""
        return self.kept.longest(1) < math.inf

    @property
    def global_batch(self) -> int:
        """Sequences per step: of all layouts, or of the best where several were tried."""
        if len(self.batches) == 1 or not self.best:
            return self.batches[0]
        return int(self.best[0].found.group.batch)

    def usd_per_million_tokens(self, choice: Choice) -> float | None:
        """Dollars that a million tokens cost with a layout at the pace of campaigns, failures not counted; None where
        prices were not asked."""
        rent = self._rent(choice)
        return None if rent is None else float(rent.usd_per_million_tokens(choice.report.tokens_per_second))

    def training_seconds(self, choice: Choice) -> float | None:
        """How long the tokens of the request take with a layout at the pace of campaigns, failures not counted; None
        where none are stated."""
        tokens = self.request.tokens
        return None if tokens is None else tokens / choice.report.tokens_per_second * campaign_pace()

    def usd(self, choice: Choice) -> float | None:
        """Dollars for all tokens on the layout, where prices were asked for."""
        per_million, tokens = self.usd_per_million_tokens(choice), self.request.tokens
        return None if per_million is None or tokens is None else per_million * tokens / MILLION

    def committed_usd(self, choice: Choice) -> float | None:
        """What a reservation for them costs over its whole terms; None where machines are paid by the hour or no
        tokens are stated."""
        rent, training = self._rent(choice), self.training_seconds(choice)
        return None if rent is None or training is None else rent.committed_usd(training)

    def _rent(self, choice: Choice) -> search_money.Rent | None:
        return self.rents.get(int(choice.report.setup.layout.gpus))

    def alike(self, choice: Choice) -> search_alike.Alike | None:
        """How many layouts are like a ranked one; None where each is ranked by itself, or so many were asked for that
        it would take long."""
        if self.request.all_ranks or self.request.top > search_alike.MOST_COUNTED:
            return None
        return self._families[choice.found.name]

    @cached_property
    def _families(self) -> dict[search_alike.Name, search_alike.Alike]:
        return search_alike.alike([one.found for one in self.best or self.nearest], self.kept)

    def told(self, choice: Choice) -> dict[str, Any]:
        """A layout as plain data, with its price and, of ranked ones, how many are like it."""
        made, dollars = choice.to_dict(), self.usd_per_million_tokens(choice)
        if dollars is not None:
            made["usd_per_million_tokens"] = dollars
        training, total = self.training_seconds(choice), self.usd(choice)
        if training is not None:
            made["training_days"] = training / DAY
        if total is not None:
            made["usd"], made["committed_usd"] = total, self.committed_usd(choice)
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
