"""What ``distsim calibrate RUNS.csv`` prints: errors before and after, and on runs that the fit did not see."""

from __future__ import annotations

from distsim.engine.fitting.runs import Calibration, by_source
from distsim.engine.steps.intervals import FEW_MOVED
from distsim.report.prose import folded
from distsim.report.style import columns

MOST_SOURCES = 6
"""Sources that are named."""
MOST_REASONS = 6
"""Reasons that are told of rows which are not fitted to."""
LABELS = {
    "fifths of the runs left out": "5-fold cross-validation",
    "fifths, corrected by alike runs": "5-fold, corrected",
    "whole sources left out": "left-out source",
    "sources, corrected by alike runs": "left-out source, corrected",
    "runs of sources never fitted": "sources never fitted to",
    "fifths of these, corrected by alike runs": "these, 5-fold, corrected",
}
"""What the table calls the scores, by their keys in the JSON."""
MEANINGS = "5-fold and left-out: by fits without those runs; corrected: by similar runs"


def lines(found: Calibration, folder: str) -> list[str]:
    """The scores, what was fitted to, and which runs were not used."""
    rows = [
        [LABELS.get(name, name), str(one.runs), f"{one.median:.1%}", f"{one.p90:.1%}", f"{one.source_mean:.1%}"]
        for name, one in found.scores.items()
    ]
    header = ["step time", "runs", "median error", "90th percentile", "mean of sources"]
    sources = by_source(found.examples)
    named = {"rows without a source" if name == "?" else name: count for name, count in sources.items()}
    told = ", ".join(f"{name} {count}" for name, count in list(named.items())[:MOST_SOURCES])
    many = f"{len(sources)} sources" if len(sources) > 1 else "one source"
    more = " …" if len(sources) > MOST_SOURCES else ""
    made = [*columns(header, rows), "", MEANINGS, f"fitted to {len(found.examples)} runs of {many}: {told}{more}"]
    made += _skipped(found)
    if found.assumed:
        made += ["assumed for your runs:", *(f"  {count}  {words}" for words, count in found.assumed.items())]
    return folded([*made, *_own(found), f"written: {folder}/fitted.toml, residuals.toml, evidence/"], indent=2)


def _skipped(found: Calibration) -> list[str]:
    """Which runs were not used: a user's with the reasons, and of the shipped ones beside them only how many."""
    told, count = found.own_skipped if found.own else found.skipped, sum(found.skipped.values())
    few = sum(told.values())
    made = [f"not fitted to: {few} {'of your rows' if found.own else 'runs'}"] if few else []
    made += [f"  {number}  {reason}" for reason, number in list(told.items())[:MOST_REASONS]]
    return [*made, f"not fitted to: {count - few} of the shipped runs"] if count > few else made


def _own(found: Calibration) -> list[str]:
    """What the user's own runs will do."""
    if not found.own:
        return []
    named = ", ".join(f"--framework {name} ({count})" for name, count in found.own_frameworks.items())
    made = [f"your runs will correct jobs with {named}"]
    if (settings := found.own_settings) < (runs := len(found.own)):
        made += [f"{runs} runs of yours measure {settings} setting{'s'[: settings != 1]}; repeats of one count once"]
    if lacking := found.still_to_measure:
        more = ", ".join(f"{count} more with {name}" for name, count in lacking.items())
        made += [f"intervals of all layouts narrow from {FEW_MOVED} settings of a framework on: measure {more}"]
    return made
