"""Changes of a job tried one after another: what fits is kept, and of what does not how much it lacks."""

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from distsim.arrays import Number
from distsim.engine.advice.change import Change
from distsim.engine.advice.changes import grows, together
from distsim.engine.advice.combinations import by_family
from distsim.engine.advice.hopeless import Hopeless
from distsim.engine.advice.recomputation import some_layers
from distsim.engine.advice.runnable import runs
from distsim.engine.exchanges.reach import refuse_beyond
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import MemoryReport, memory_unless
from distsim.errors import DistsimError
from distsim.specs.flags import typed


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
    def without(self) -> tuple[str, ...]:
        """Options of the command line that are to be left out of it."""
        return tuple(dict.fromkeys(name for change in self.changes for name in change.without))

    @property
    def words(self) -> str:
        """Its changes in words."""
        same = ", same global batch" if "global_batch" in self.shown and not self.other_batch else ""
        told = [words + same * (change.family == "micro_batch") for change in self.changes
                if (words := self._words(change))]  # fmt: skip
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
        """What one of the changes does; how many layers a stage has depends on the others, and of several that state a
        ZeRO stage only one names the highest, which counts."""
        again = change.shown.get("recompute_layers")
        if again is not None:
            return some_layers(again, max(self.report.setup.stage_layers))
        sharding = [one for one in self.changes if one.shown.get("zero") == self.shown.get("zero")]
        naming = min(sharding, key=lambda one: one.family != "zero")
        if "zero" not in change.shown or change is naming:
            return change.words
        return change.words.removesuffix(f"ZeRO {change.shown['zero']}").removesuffix(", ")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        report = self.report
        return {"flags": self.flags, "without": list(self.without), "words": self.words,
                "peak": report.peak, "capacity": round(self.limit), "fits": self.fits,
                "likely": round(self.likely, 3), "gpus": report.setup.layout.gpus,
                "global_batch": self.global_batch}  # fmt: skip


class _Missed(NamedTuple):
    """Changes with which a GPU is too small, and what they leave of it at most, in bytes."""

    combined: tuple[Change, ...]
    left: Number


class _Changed(NamedTuple):
    """A job with changes that are being tried, and the options that a user would type."""

    combined: tuple[Change, ...]
    shown: dict[str, Any]
    setup: Setup


def _meant(shown: dict[str, Any], setup: Setup, stated: bool) -> None:
    """Say of recomputed layers what means something on the stages of a changed job: no more than they have, and nothing
    of all, unless the job has ``stated`` how many."""
    most = max(setup.stage_layers)
    if shown.get("recompute_layers", 0) >= most:
        shown["recompute_layers"] = most
        if not stated:
            del shown["recompute_layers"]


class Trials:
    """Tries changes on one job and keeps what fits."""

    def __init__(self, setup: Setup, margin: float) -> None:
        self.setup = setup
        self.margin = margin
        # only what somebody stated: what a framework that nobody named refuses is told by runs()
        job = setup.job
        self.stated = {name: value for name in job.model_fields_set if (value := getattr(job, name)) is not None}
        self.fitting: list[Mend] = []
        self.roomiest: Mend | None = None
        """Of what no GPU is too small for."""
        self.missed: list[_Missed] = []
        self.hopeless = Hopeless(setup, self.setup_with)
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
        if (left := self.hopeless.leaves(combined)) < 0:
            self.missed.append(_Missed(combined, left))
            return None
        changed = self._changed(combined)
        if changed is None:
            return None
        leaves: list[Number] = []  # beside the first stage's states, then beside all of each stage

        def too_full(left: Number) -> bool:
            leaves.append(left)
            return bool(left < 0)

        found = self._with_memory(changed, too_full)
        if leaves:
            self.hopeless.learn(combined, leaves[0])
        if (left := min(leaves, default=0)) < 0:
            self.missed.append(_Missed(combined, left))
        return found

    def _changed(self, combined: tuple[Change, ...]) -> _Changed | None:
        fields, shown = together(self.setup, combined)
        setup = self._resolved(fields)
        if setup is None and grows(self.setup, combined):  # of more ranks than sequences each needs one
            setup = self._resolved({**fields, "global_batch": None})
            shown["global_batch"] = 0 if setup is None else int(setup.layout.global_batch)
        if setup is None or not runs(self.setup, setup):
            return None
        _meant(shown, setup, self.setup.job.recompute_layers is not None)
        return _Changed(combined, shown, setup)

    def setup_with(self, combined: tuple[Change, ...]) -> Setup | None:
        """The job with some changes; None where it is no valid layout, or none that its framework runs."""
        changed = self._changed(combined)
        return None if changed is None else changed.setup

    def _resolved(self, fields: dict[str, Any]) -> Setup | None:
        """The job with other options; None where it is no valid layout."""
        try:
            setup = resolve(type(self.setup.job).read({**self.stated, **fields}))
            if setup.layout.gpus > self.setup.layout.gpus:
                refuse_beyond(setup, setup.layout.gpus)
        except DistsimError:
            return None
        return setup

    def _with_memory(self, tried: _Changed, hopeless: Callable[[Number], bool]) -> Mend | None:
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
            changed = self._changed(missed.combined)
            found = changed and self._with_memory(changed, partial(operator.gt, most))
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

    def smallest(self, most: int) -> list[Mend]:
        """The mends of least effort, one per set of families."""
        best: dict[tuple[str, ...], Mend] = {}
        for found in sorted(self.fitting, key=lambda one: (one.effort, one.report.peak)):
            best.setdefault(found.families, found)
        return list(best.values())[:most]
