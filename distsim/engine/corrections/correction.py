"""What measured runs of the same framework say about the prediction error of a job.

Step times of measured runs deviate from the fitted model by amounts that similar runs share. Kriging (a Gaussian
process with an exponential kernel; Rasmussen and Williams 2006, chapter 2) weighs those deviations by likeness; far
from every run there is no correction. A run is never used to correct itself.
"""

from typing import NamedTuple, Self, TypedDict

from distsim.engine.corrections.known_runs import Evidence, evidence, newest_year, others, own_source, peaks
from distsim.engine.corrections.likeness import (
    Likeness,
    alike,
    bounded,
    distances,
    fullness_of,
    likeness_of,
    shared,
    vote_place,
)
from distsim.engine.corrections.own_runs import OWN
from distsim.engine.corrections.stalls import Vote, distinct_state, state_of
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup
from distsim.specs.timing import PLAIN

ALIKE, SIMILAR = 0.7, 0.4
"""Likeness to the nearest run from which a job goes by these words."""
TOLD = 3
"""Nearest runs that an answer names."""


class Publication(NamedTuple):
    """Which measured run a job is, if it is one, and where that stands."""

    run: str = ""
    """Its name in tables of runs."""
    year: float | None = None
    """Of its software."""
    source: str = ""
    """Who measured it."""
    company: bool = True
    """Whether further runs of its document (documents.py) are fitted to."""
    beside: bool = False
    """Whether there are further runs of its document that nothing is fitted to."""
    strange: bool = False
    """Whether runs that nothing is fitted to are not asked about it."""


UNPUBLISHED = Publication()
"""A job that nobody is known to have measured."""


class _Named(TypedDict):
    runs: tuple[str, ...]
    sources: tuple[str, ...]


class Correction(NamedTuple):
    """Deviation (of the logarithm of time) to be expected, likeness of the nearest run, the nearest runs, and the state
    of the software (specs/timing.py) that runs like the job were in."""

    logarithm: float
    nearest: float
    runs: tuple[str, ...] = ()
    state: int = PLAIN
    familiar: bool = False
    """Whether the job is a run of a source whose other runs are known: same cluster, same settings."""
    own: bool = False
    """Whether that source is the user."""
    fitted: bool = True
    """Whether numbers are fitted to that source."""
    sources: tuple[str, ...] = ()
    """Who measured each of the nearest runs."""

    def within(self, document: bool) -> Self:
        """Familiar only where its source's other runs are of the same document, as all of a user's are."""
        return self._replace(familiar=self.familiar and (self.own or document))

    @property
    def word(self) -> str:
        """How well the job is covered by measured runs."""
        return "alike" if self.nearest >= ALIKE else "similar" if self.nearest >= SIMILAR else "unlike"


def correction_of(setup: Setup, published: Publication = UNPUBLISHED) -> Correction:
    """What measured runs say of a job, or of the measured run that it is. Software is that of the run's year, in the
    state that similar runs were in; or the newest measured on the chip, in its plain state."""
    kin = kin_of(setup.framework, setup.compiled)
    source, known = own_source(kin, published.source), evidence(kin)
    if source != OWN and not (published.company or published.strange):
        said = _said(setup, others(kin), published, source)
        if said.familiar and (published.beside or not _of_source(known, source)):
            return said._replace(fitted=False).within(published.beside)
    return _said(setup, known, published, source).within(published.company)


def peak_correction_of(setup: Setup, published: Publication = UNPUBLISHED) -> Correction:
    """What runs of the same source say of a job's peak of memory: the logarithm of what it takes over what is
    predicted. Nothing is fitted to peaks, and other people's say nothing."""
    nothing, kin = Correction(0.0, 0.0), kin_of(setup.framework, setup.compiled)
    if published.strange:
        return nothing
    source, known = own_source(kin, published.source), peaks(kin)
    return _said(setup, known, published, source) if _of_source(known, source, published.run) else nothing


def nearest_of(setup: Setup, correction: Correction) -> Correction:
    """The correction of a job with the nearest of all measured runs: those of sources that nothing is fitted to as
    well, which correct no job."""
    known = others(kin_of(setup.framework, setup.compiled))
    if correction.familiar or not known:
        return correction
    here = likeness_of(setup, newest_year(known, setup.accelerator.name)).compared()
    near = [_Near(alike(distances(here, one.likeness)[1]), one) for one in known if one.state == PLAIN]
    best = max(near, key=lambda one: one.likeness).likeness
    return correction if best <= correction.nearest else correction._replace(nearest=best, **_named(near))


def _said(setup: Setup, all_known: tuple[Evidence, ...], published: Publication, source: str) -> Correction:
    """What the runs of a table say of a job, as a run of a ``source`` there."""
    run, year = published.run, published.year
    then = newest_year(all_known, setup.accelerator.name) if year is None else year
    stated = likeness_of(setup, then, source)
    here = stated.compared()
    familiar = _of_source(all_known, here.names[-1], run)
    for known in all_known:
        if known.run == run and known.likeness == here:
            return Correction(bounded(known.alone), known.nearest, (), known.alone_state, familiar, source == OWN)
    # who else measured tells nothing of the software that a sweep ran in
    votes = [one.vote for one in all_known if one.vote and one.likeness.names[-1] == here.names[-1]]
    state, sure = _state(setup, stated, votes) if votes and year is not None else (PLAIN, 1.0)
    total = 0.0
    near: list[_Near] = []
    for known in all_known:
        if known.state == state:
            apart, besides = distances(here, known.likeness)
            total += known.weight * shared(alike(apart), known.likeness.names[-1] == here.names[-1] == OWN)
            near.append(_Near(alike(apart if familiar else besides) * sure, known))
    nearest = max((one.likeness for one in near), default=0.0)
    return Correction(bounded(total), nearest, state=state, familiar=familiar, own=source == OWN, **_named(near))


def _of_source(known: tuple[Evidence, ...], source: str, run: str = "") -> bool:
    """Whether there are runs of a source, another one than ``run``."""
    return any(one.run != run and one.likeness.names[-1] == source for one in known)


class _Near(NamedTuple):
    likeness: float
    one: Evidence


def _named(near: list[_Near]) -> _Named:
    """The runs among these that an answer names, the most similar first, and who measured each."""
    named = [one for share, one in sorted(near, key=lambda one: (-one[0], one[1].run))[:TOLD] if share >= SIMILAR]
    return {"runs": tuple(one.run for one in named), "sources": tuple(one.likeness.names[-1] for one in named)}


def _state(setup: Setup, here: Likeness, votes: list[Vote]) -> tuple[int, float]:
    """The state of software to expect, and how likely it is."""
    layout = setup.layout
    state, sure = state_of(vote_place(here, fullness_of(setup)), votes)
    nodes = layout.gpus / setup.cluster.gpus_per_node
    return distinct_state(state, layout.tp, layout.pp, nodes), min(max(sure, 0.0), 1.0)
