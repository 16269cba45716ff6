"""The smallest changes that make a job fit, each one computed, not guessed."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from distsim import catalog
from distsim.engine.advice.change import Change
from distsim.engine.advice.changes import changes
from distsim.engine.advice.combinations import combinations
from distsim.engine.advice.restored import restored
from distsim.engine.advice.trials import Mend, Trials
from distsim.engine.memory import MemoryReport, memory_of
from distsim.errors import DistsimError

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
LEAST_FREED = 0.005
"""Share of a job's memory that a setting put back must free to be tried together with others."""


class Mended(NamedTuple):
    """Mends that fit, smallest first; ``nearest`` is the best of what was tried when none does."""

    fitting: list[Mend]
    nearest: Mend | None
    tried: int


@catalog.settled()  # hundreds of jobs that differ by an option or two
def mend(report: MemoryReport, most: int = 6, margin: float = 0.0) -> Mended:
    """What makes a job fit that does not: one change where one is enough, else the fewest together. ``margin`` is the
    share of the memory that stays free."""
    trials = Trials(report.setup, margin)
    pool = [*_freeing(trials, report), *changes(report.setup)]
    for count in range(1, MOST_AT_ONCE + 1):
        resorts = LAST_RESORTS | HARDWARE if count <= FREE_UNTIL else LAST_RESORTS
        for combined in itertools.islice(combinations(pool, count), MOST_TRIED):
            if trials.settled(resorts) >= most:
                break  # what comes later is no smaller
            trials.try_(combined)
        if trials.settled(resorts if count < FREE_UNTIL else LAST_RESORTS) >= (1 if count > 1 else 2):
            break
    if all("gpus" in found.families for found in trials.fitting):  # another training, before only more GPUs
        for combined in itertools.islice(combinations(pool, FREE_UNTIL, rare=True), MOST_TRIED):
            trials.try_(combined)
    trials.soften(pool, most)
    return Mended(trials.smallest(most), trials.nearest(), trials.tried)


def _freeing(trials: Trials, report: MemoryReport) -> Iterator[Change]:
    """Settings of the user's without which the job needs less memory, of its GPUs or else of its hosts, put back."""
    for step, one in enumerate(restored(report.setup)):
        shown = {name: value for name, value in one.options.items() if value is not None}
        change = Change(one.name, step, one.words, shown, without=[name for name in one.options if name not in shown])
        setup = trials.setup_with((change,))
        try:
            needs = memory_of(setup) if setup else report
        except DistsimError:
            continue
        if report.peak - needs.peak >= LEAST_FREED * report.peak or needs.fits_hosts > report.fits_hosts:
            yield change
