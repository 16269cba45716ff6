"""How sure a step time is: the spread of residuals of comparable measured runs (split conformal prediction).

Replays of a source that was measured before are compared with runs that were left out one fifth at a time (Vovk et al.
2005; Barber et al. 2021). Everything else, users' jobs included, runs on a cluster without measured runs: its residuals
are those of runs predicted without their whole source, each source weighing equally (Dunn, Wasserman and Ramdas 2022,
arXiv:1809.07441: a new group is exchangeable with groups, not with runs).
"""

from __future__ import annotations

import math
from typing import Any

from distsim.engine.calibrated import LEVEL as LEVEL
from distsim.engine.calibrated import calibrated, kept_while_fitted
from distsim.engine.corrections.correction import Correction
from distsim.engine.corrections.known_runs import has_own, own_beside
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.lacking import measured_as
from distsim.engine.steps.compose import stage_numbers
from distsim.engine.steps.report import Interval
from distsim.engine.steps.stage_seconds import products_of
from distsim.engine.steps.work import Work
from distsim.specs.timing import Kin

RESIDUALS = "residuals"
ELSEWHERE = "elsewhere"
MOVED = "moved"
UNFITTED = "unfitted"
FEW_RUNS = 12
"""Groups with fewer runs than this say too little about a tenth of them."""
FEW_OWN = 5
"""The same for a user's own runs: with fewer, none can be left out a fifth at a time, as those behind the spread
were."""
FEW_MOVED = 8
"""A user's own runs from which on jobs unlike all of them have an interval of their own: those that it was measured
with had as many at least."""
OWN_COUNTS = "own"
"""The table of how many settings of the user's own were measured under each framework: repeats count once."""
FEW_SOURCES = 10
"""The same for sources, which weigh equally: with fewer, a twentieth on either side is one run of one of them."""
PACES = {"busy": 0.35, "half-busy": 0.2, "waiting": 0.0}
"""Least share of a step that products take at the best measured rates, by word: what waits is known less well."""
STEPS = {"busy": "GPU-bound steps", "half-busy": "partly GPU-bound steps", "waiting": "steps that mostly wait"}
"""What an answer calls steps of each pace."""
NEAREST = {"alike": "a close match", "similar": "similar", "unlike": "not similar"}
"""What an answer says of the nearest measured run, by the word of its likeness."""


def group_names(kin: Kin, architecture: str, word: str, fitted: bool = True) -> list[str]:
    """Groups of comparable runs of known sources, the most similar first; ``word`` says how near the nearest run is.
    Sources that nothing is ``fitted`` to are known less well."""
    name, like = kin.name, kin.like
    if not fitted:
        return [f"{kind} {word}" for kind in (f"{UNFITTED} {like}", f"{UNFITTED} {kin.family}", UNFITTED)]
    own = [] if like == name else [f"{name} {architecture} {word}", f"{name} {word}"]
    return [*own, f"{like} {architecture} {word}", f"{like} {word}", f"any {word}"]


def pace_name(busy: float) -> str:
    """How busy a chip is, as a word; ``busy`` says what share of the predicted step is products."""
    return next((pace for pace, least in PACES.items() if busy >= least), next(reversed(PACES)))


def elsewhere_names(pace: str, family: str, fitted: bool) -> list[str]:
    """Groups of runs of unknown sources at a pace, the most similar first: of a family of frameworks on chips that runs
    are ``fitted`` on, of any framework on these, all."""
    name = f"{ELSEWHERE} {pace}"
    return [*([f"{name} fitted {family}", f"{name} fitted"] if fitted else []), name]


def moved_name(word: str) -> str:
    """The group of runs that differ from all others of their source, by how near the nearest one is."""
    return f"{MOVED} {'unlike' if word == 'unlike' else 'near'}"


def own_count(kin: Kin) -> int:
    """How many settings of the user's own were measured under a framework, or under the one that it is timed like."""
    return _own_counts().get(kin.name if has_own(kin) else kin.like, 0)


@kept_while_fitted(1, RESIDUALS)
def _own_counts() -> dict[str, int]:
    found: dict[str, int] = calibrated(RESIDUALS, OWN_COUNTS.__eq__).get(OWN_COUNTS, {})
    return found


@kept_while_fitted(1024, RESIDUALS)
def residuals_of(names: tuple[str, ...]) -> dict[str, Any]:
    """Spread of residuals of ``groups``, and the ``architectures`` that runs are fitted on, as ``make calibrate``
    wrote it."""
    wanted = {"architectures", *(f"groups.{name}" for name in names)}
    return calibrated(RESIDUALS, wanted.__contains__, "architectures", "groups")


def interval_of(work: Work, seconds: float, correction: Correction) -> Interval:
    """The 90% interval around a prediction. A user's job is compared with the user's own runs, with runs of sources
    that have no others with a setting of theirs, and with runs of unknown sources; the narrowest interval is given. So
    is the narrower one for a run of a source that others stand in, but none that numbers are fitted to."""
    setup = work.setup
    architecture, kin = setup.accelerator.generation, kin_of(setup.framework, setup.compiled)
    busy = products_of(stage_numbers(work), setup.layout.micro_batches) / seconds
    pace = pace_name(float(busy))
    beside = not correction.own or own_beside(setup)
    known = group_names(kin, architecture, correction.word, correction.fitted) if correction.familiar and beside else []
    moved = moved_name(correction.word)
    tables = residuals_of((*known, moved, *elsewhere_names(pace, kin.family, fitted=True)))
    groups = tables["groups"]
    enough = [name for name in known if name in groups and groups[name]["runs"] >= FEW_RUNS][:1]
    if correction.own and own_count(kin) < FEW_OWN:
        enough = []
    found = [_around(seconds, groups[name], _of_known(groups[name]["runs"], name)) for name in enough]
    if found and not correction.own and correction.fitted:
        return found[0]
    if correction.own and moved in groups and own_count(kin) >= FEW_MOVED and beside:
        found.append(_around(seconds, groups[moved], _of_moved(groups[moved])))
    fitted = measured_as(setup.accelerator, setup.precision) in tables["architectures"]["fitted"]
    names = elsewhere_names(pace, kin.family, fitted)
    name = next((one for one in names if groups.get(one, {}).get("sources", 0) >= FEW_SOURCES), names[-1])
    group = groups[name]
    sources = f"{group['sources']} sources, each predicted from the others" if group["sources"] > 1 else "one source"
    family = f" under {kin.family}" if name == names[0] and len(names) > 1 else ""
    outside = _around(seconds, group, f"{group['runs']:,} runs of {sources} ({STEPS[pace]}{family})")
    return min((*found, outside), key=lambda one: one.high / one.low)


def _of_known(runs: float, name: str) -> str:
    """What an interval rests on: how many runs of a group, which it names."""
    *whose, word = name.split()
    kind, whose = (
        ("runs of sources like it", whose[1:] or ["any"]) if whose[0] == UNFITTED else ("measured runs", whose)
    )
    return f"{runs:,} {kind} ({' on '.join(whose)}; nearest run {NEAREST[word]})"


def _of_moved(group: dict[str, float]) -> str:
    """The same of runs with a setting that others of their source have not."""
    return f"{group['runs']:,} runs of {group['sources']} sources, each predicted from runs of its source that differ"


def _around(seconds: float, group: dict[str, float], told: str) -> Interval:
    def span(over: str, under: str) -> tuple[float, float]:
        return seconds * math.exp(-group[over]), seconds * math.exp(group[under])

    half = span("half_over", "half_under") if "half_over" in group else None
    return Interval(LEVEL, *span("over", "under"), told, half)
