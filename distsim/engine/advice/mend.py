"""The smallest changes that make a job fit, each one computed, not guessed."""

import itertools
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from distsim import catalog
from distsim.arrays import Number
from distsim.engine.advice.changes import Change, changes, grows, together
from distsim.engine.advice.combinations import by_family, combinations
from distsim.engine.advice.recomputation import some_layers
from distsim.engine.advice.runnable import runs
from distsim.engine.exchanges.reach import refuse_beyond
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import MemoryReport, memory_unless
from distsim.errors import DistsimError
from distsim.specs.flags import typed

MOST_AT_ONCE = 4
"""Changes combined before giving up: more would be another job."""
MOST_TRIED = 500
"""Layouts computed per number of changes, well under a second."""
LAST_RESORTS = {"offload", "precision", "adapters", "quantize"}
"""Families after which the search goes on: they cost much time, or are another training."""
HARDWARE = {"gpus", "gpu"}
"""Families that cost money."""
FREE_UNTIL = 3
"""Changes at once that are tried before a mend that costs money may end the search."""


class Mend(NamedTuple):
    """Changes to a job and the memory that it then needs."""

    changes: tuple[Change, ...]
    shown: dict[str, Any]
    """The changed options."""
    report: MemoryReport
    limit: float
    """Bytes that it may take: the accelerator's, less what is to stay free."""
    batch: int
    """Sequences per step of the job as stated."""

    @property
    def fits(self) -> bool:
        """Whether it keeps within the limit, and its hosts hold what is offloaded."""
        return self.report.peak <= self.limit and self.report.fits_hosts

    @property
    def likely(self) -> float:
        """Share of measured runs with such a peak that would fit."""
        return self.report.known.fitting

    @property
    def effort(self) -> float:
        """How far this is from the job as stated; only its order means something."""
        return sum(change.effort for change in self.changes)

    @property
    def families(self) -> tuple[str, ...]:
        """The kinds of its changes."""
        return tuple(change.family for change in self.changes)

    @property
    def flags(self) -> str:
        """Its changes as options to add to the command line."""
        return typed(self.shown)

    @property
    def words(self) -> str:
        """Its changes in words."""
        same = ", same global batch" if "global_batch" in self.shown and not self.other_batch else ""
        told = [self._words(change) + same * (change.family == "micro_batch") for change in self.changes]
        other = f"{self.global_batch:,} instead of {self.batch:,} sequences per step"
        return ", ".join([*told, *[other] * self.other_batch])

    @property
    def global_batch(self) -> int:
        """Sequences per step."""
        return int(self.report.setup.layout.global_batch)

    @property
    def other_batch(self) -> bool:
        """Whether these are not those of the job, which its ranks do not divide."""
        return self.global_batch != self.batch

    def _words(self, change: Change) -> str:
        """What one of the changes does; how many layers a stage has depends on the others."""
        again = change.shown.get("recompute_layers")
        most = max(self.report.setup.stage_layers)
        return change.words if again is None else some_layers(again, most)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        report = self.report
        return {"flags": self.flags, "words": self.words, "peak": report.peak, "capacity": round(self.limit),
                "fits": self.fits, "likely": round(self.likely, 3), "gpus": report.setup.layout.gpus,
                "global_batch": self.global_batch}  # fmt: skip


class Mended(NamedTuple):
    """Mends that fit, smallest first; ``nearest`` is the best of what was tried when none does."""

    fitting: list[Mend]
    nearest: Mend | None
    tried: int


@catalog.settled()  # hundreds of jobs that differ by an option or two
def mend(report: MemoryReport, most: int = 6, margin: float = 0.0) -> Mended:
    """What makes a job fit that does not: one change where one is enough, else the fewest together. ``margin`` is the
    share of the memory that stays free."""
    search = Search(report.setup, margin)
    pool = list(changes(report.setup))
    for count in range(1, MOST_AT_ONCE + 1):
        resorts = LAST_RESORTS | HARDWARE if count <= FREE_UNTIL else LAST_RESORTS
        for combined in itertools.islice(combinations(pool, count), MOST_TRIED):
            if search.settled(resorts) >= most:
                break  # what comes later is no smaller
            search.try_(combined)
        if search.settled(resorts if count < FREE_UNTIL else LAST_RESORTS) >= (1 if count > 1 else 2):
            break
    if all("gpus" in found.families for found in search.fitting):  # another training, before only more GPUs
        for combined in itertools.islice(combinations(pool, FREE_UNTIL, rare=True), MOST_TRIED):
            search.try_(combined)
    search.soften(pool, most)
    return Mended(search.smallest(most), search.nearest(), search.tried)


class _Missed:
    """Changes that are being tried; and what they leave of a GPU that is too small, at most."""

    __slots__ = ("combined", "left", "setup", "shown")

    def __init__(self, combined: tuple[Change, ...], shown: dict[str, Any], setup: Setup) -> None:
        self.combined, self.shown, self.setup = combined, shown, setup
        self.left: Number = 0

    def too_full(self, left: Number) -> bool:
        """Whether so much that is left is too little."""
        self.left = min(self.left, left)
        return bool(left < 0)


def _meant(shown: dict[str, Any], setup: Setup, stated: bool) -> None:
    """Say of recomputed layers what means something on the stages of a changed job: no more than they have, and nothing
    of all, unless the job has ``stated`` how many."""
    most = max(setup.stage_layers)
    if shown.get("recompute_layers", 0) >= most:
        shown["recompute_layers"] = most
        if not stated:
            del shown["recompute_layers"]


class Search:
    """Tries changes on one job and keeps what fits."""

    def __init__(self, setup: Setup, margin: float) -> None:
        self.setup = setup
        self.margin = margin
        self.fitting: list[Mend] = []
        self.roomiest: Mend | None = None
        """Of what no GPU is too small for."""
        self.missed: list[_Missed] = []
        self.known: dict[tuple[Change, ...], Mend | None] = {}
        self.tried = 0

    def try_(self, combined: tuple[Change, ...]) -> None:
        """Compute one combination, unless a part of it is known to be enough."""
        if any(set(known.changes) <= set(combined) for known in self.fitting):
            return
        found = self.computed(combined)
        if found is None:
            return
        if found.fits:
            self.fitting.append(found)
        if self.roomiest is None or found.report.headroom > self.roomiest.report.headroom:
            self.roomiest = found

    def computed(self, combined: tuple[Change, ...]) -> Mend | None:
        """The job with some changes; None where it is no valid layout, or a GPU is too small for it."""
        self.tried += 1
        if combined not in self.known:
            self.known[combined] = self._computed(combined)
        return self.known[combined]

    def _computed(self, combined: tuple[Change, ...]) -> Mend | None:
        fields, shown = together(self.setup, combined)
        setup = self._resolved(fields)
        if setup is None and grows(self.setup, combined):  # of more ranks than sequences each needs one
            setup = self._resolved({**fields, "global_batch": None})
            shown["global_batch"] = 0 if setup is None else int(setup.layout.global_batch)
        if setup is None or not runs(self.setup, setup):
            return None
        _meant(shown, setup, self.setup.job.recompute_layers is not None)
        missed = _Missed(combined, shown, setup)
        found = self._with_memory(missed, missed.too_full)
        if missed.left < 0:
            self.missed.append(missed)
        return found

    def _resolved(self, fields: dict[str, Any]) -> Setup | None:
        """The job with other options; None where it is no valid layout."""
        try:
            setup = resolve(type(self.setup.job).read({**self._stated(), **fields}))
            if setup.layout.gpus > self.setup.layout.gpus:
                refuse_beyond(setup, setup.layout.gpus)
        except DistsimError:
            return None
        return setup

    def _with_memory(self, tried: _Missed, hopeless: Callable[[Number], bool]) -> Mend | None:
        """A combination with its memory, unless that is ``hopeless``."""
        try:
            report = memory_unless(tried.setup, hopeless)
        except DistsimError:
            return None
        if report is None:
            return None
        for name in ("dp", "zero_group"):
            value = getattr(report.setup.layout, name)
            if getattr(self.setup.job, name) not in (None, value):
                tried.shown[name] = value
        limit, batch = report.setup.accelerator.limit(self.margin), int(self.setup.layout.global_batch)
        return Mend(tried.combined, tried.shown, report, limit, batch)

    def nearest(self) -> Mend | None:
        """Of all that was tried what leaves most, the first of equals; where no GPU is large enough, those are asked
        first that may lack least."""
        if self.roomiest is not None:
            return self.roomiest
        best: Mend | None = None
        most, first = -math.inf, 0
        for place, missed in sorted(enumerate(self.missed), key=lambda one: -one[1].left):
            if missed.left < most:
                break
            found = self._with_memory(missed, partial(operator.gt, most))
            if found is not None and (found.report.headroom > most or place < first):
                best, most, first = found, found.report.headroom, place
        return best

    def soften(self, pool: list[Change], most: int) -> None:
        """Replace the changes of long combinations, which took the strongest of each family, by the mildest of that
        family that still fit."""
        families = by_family(pool)
        few = [one for one in self.fitting if len(one.changes) <= 2]
        for found in [one for one in self.smallest(2 * most) if len(one.changes) > 2]:
            best, last = found, None
            while best is not last:
                last = best
                for place in range(len(found.changes)):
                    best = self._softer(best, place, families)
            few.append(best)
        sets = [set(one.changes) for one in few]
        self.fitting = [one for one, own in zip(few, sets, strict=True) if not any(other < own for other in sets)]

    def _softer(self, found: Mend, place: int, families: dict[str, list[Change]]) -> Mend:
        """A mend with the mildest change of one family that is enough beside the others."""
        kept, change = found.changes, found.changes[place]
        milder = [other for other in families[change.family] if other.effort < change.effort]
        tried = (self.computed((*kept[:place], other, *kept[place + 1 :])) for other in milder)
        return next((one for one in tried if one is not None and one.fits), found)

    def settled(self, resorts: set[str]) -> int:
        """How many ways to fit, one per set of families, use none of the ``resorts``."""
        families = {found.families for found in self.fitting}
        return sum(resorts.isdisjoint(names) for names in families)

    def _stated(self) -> dict[str, Any]:
        job = self.setup.job
        # only what somebody stated: what a framework that nobody named refuses is told by runs()
        return {name: getattr(job, name) for name in job.model_fields_set if getattr(job, name) is not None}

    def smallest(self, most: int) -> list[Mend]:
        """The mends of least effort, one per set of families."""
        best: dict[tuple[str, ...], Mend] = {}
        for found in sorted(self.fitting, key=lambda one: (one.effort, one.report.peak)):
            best.setdefault(found.families, found)
        return list(best.values())[:most]
