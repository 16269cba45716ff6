"""The smallest changes that make a job fit, each one computed, not guessed."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from distsim.engine.advice.changes import Change, changes, together
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import MemoryReport, first_headroom, memory_of
from distsim.errors import DistsimError

MOST_AT_ONCE = 4
"""Changes combined before giving up: more would be another job."""
MOST_TRIED = 500
"""Layouts computed per number of changes, well under a second."""
DOUBLINGS = 3
"""Doublings of the GPUs that one change or two may ask for; more only where nothing milder fits."""
PAIRS_ONLY = ("sequence parallel", "optimizer", "precision", "adapters")
"""Families that a combination of three and more leaves out: what they win there is small, or not free."""
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

    @property
    def fits(self) -> bool:
        """Whether it keeps within the limit, and its hosts hold what is offloaded."""
        return self.report.peak <= self.limit and self.report.fits_hosts

    @property
    def effort(self) -> float:
        """How far this is from the job as stated; only its order means something."""
        return sum(change.effort for change in self.changes)

    @property
    def flags(self) -> str:
        """What to add to the command line."""
        return " ".join(flag(name, value) for name, value in self.shown.items())

    @property
    def words(self) -> str:
        """What the changes do."""
        same = ", same global batch" if "global_batch" in self.shown else ""
        return ", ".join(
            f"{change.words}{same}" if change.family == "micro_batch" else change.words for change in self.changes
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        report = self.report
        return {"flags": self.flags, "words": self.words, "peak": report.peak, "capacity": round(self.limit),
                "fits": self.fits, "gpus": report.setup.layout.gpus}  # fmt: skip


class Mended(NamedTuple):
    """Mends that fit, smallest first; ``nearest`` is the best of what was tried when none does."""

    fitting: list[Mend]
    nearest: Mend | None
    tried: int


def flag(name: str, value: Any) -> str:
    """A job's option as a user types it."""
    spelled = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{spelled}" if value else f"--no-{spelled}"
    return f"--{spelled} {value}"


def mend(report: MemoryReport, most: int = 6, margin: float = 0.0) -> Mended:
    """What makes a job fit that does not: one change where one is enough, else the fewest together. ``margin`` is the
    share of the memory that stays free."""
    search = _Search(report.setup, margin)
    pool = list(changes(report.setup))
    for count in range(1, MOST_AT_ONCE + 1):
        resorts = LAST_RESORTS | HARDWARE if count <= FREE_UNTIL else LAST_RESORTS
        for combined in itertools.islice(_combinations(pool, count), MOST_TRIED):
            if search.settled(resorts) >= most:
                break  # what comes later is no smaller
            search.try_(combined)
        if search.settled(resorts if count < FREE_UNTIL else LAST_RESORTS) >= (1 if count > 1 else 2):
            break
    return Mended(search.smallest(most), search.nearest, search.tried)


def _combinations(pool: list[Change], count: int) -> Iterable[tuple[Change, ...]]:
    """One change from each of ``count`` families, least effort first; more than two take only the ends."""
    families = _by_family(pool) if count <= 2 else _ends(pool)
    if count <= 2 and "gpus" in families:
        families["gpus"] = families["gpus"][:DOUBLINGS]
    found: Iterator[tuple[Change, ...]] = itertools.chain.from_iterable(
        itertools.product(*(families[name] for name in names)) for names in itertools.combinations(families, count)
    )
    return sorted(found, key=lambda combined: sum(change.effort for change in combined))


def _by_family(pool: list[Change]) -> dict[str, list[Change]]:
    families: dict[str, list[Change]] = {}
    for change in pool:
        families.setdefault(change.family, []).append(change)
    return families


def _ends(pool: list[Change]) -> dict[str, list[Change]]:
    """The strongest change of each family, and every second number of GPUs."""
    families = {family: members for family, members in _by_family(pool).items() if family not in PAIRS_ONLY}
    return {family: members[::-2][::-1] if family == "gpus" else members[-1:] for family, members in families.items()}


class _Search:
    """Tries changes on one job and keeps what fits."""

    def __init__(self, setup: Setup, margin: float) -> None:
        self.setup = setup
        self.margin = margin
        self.fitting: list[Mend] = []
        self.nearest: Mend | None = None
        self.tried = 0

    def try_(self, combined: tuple[Change, ...]) -> None:
        """Compute one combination, unless a part of it is known to be enough."""
        if any(set(known.changes) <= set(combined) for known in self.fitting):
            return
        fields, shown = together(self.setup, combined)
        self.tried += 1
        try:
            setup = resolve(type(self.setup.job).read({**self._stated(), **fields}))
            if self._hopeless(setup):
                return
            report = memory_of(setup)
        except DistsimError:
            return  # not a valid layout
        for name in ("dp", "zero_group"):
            value = getattr(report.setup.layout, name)
            if getattr(self.setup.job, name) not in (None, value):
                shown[name] = value
        found = Mend(combined, shown, report, report.capacity * (1 - self.margin))
        if found.fits:
            self.fitting.append(found)
        over = self.nearest.report.headroom if self.nearest else None
        if over is None or report.headroom > over:
            self.nearest = found

    def _hopeless(self, setup: Setup) -> bool:
        """Whether the first stage alone shows that a job neither fits nor comes nearer than the best so far."""
        if self.nearest is None or setup.layout.pp == 1:
            return False
        left = first_headroom(setup)
        return bool(left < 0 and left <= min(self.nearest.report.headroom, 0))

    def settled(self, resorts: set[str]) -> int:
        """How many ways to fit, one per set of families, use none of the ``resorts``."""
        families = {tuple(change.family for change in found.changes) for found in self.fitting}
        return sum(resorts.isdisjoint(names) for names in families)

    def _stated(self) -> dict[str, Any]:
        job = self.setup.job
        # only what somebody stated: a framework that nobody named refuses nothing
        return {name: getattr(job, name) for name in job.model_fields_set if getattr(job, name) is not None}

    def smallest(self, most: int) -> list[Mend]:
        """The mends of least effort, one per set of families."""
        best: dict[tuple[str, ...], Mend] = {}
        for found in sorted(self.fitting, key=lambda one: (one.effort, one.report.peak)):
            best.setdefault(tuple(change.family for change in found.changes), found)
        return list(best.values())[:most]
