"""Settings that a search does not try and that make a layout which it found faster than its best."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.advice.settings import Settings, quicker_settings
from distsim.engine.layouts.alike import AS_GOOD
from distsim.engine.layouts.choice import Choice
from distsim.engine.layouts.ranking import MEMORY
from distsim.engine.layouts.report import SearchReport

RANKS = 10
"""Ranked layouts that are looked at, besides those of the front."""


class Quicker(NamedTuple):
    """A layout with settings that change nothing of it, and what it saves of the best one's time."""

    settings: Settings
    choice: Choice
    rank: int
    """0 where it is of the front alone."""
    tokens_per_second: float
    gain: float
    """Share of the time that a token takes with the best layout."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        found = self.settings
        return {
            "flags": found.flags, "seconds": found.seconds, "tokens_per_second": self.tokens_per_second,
            "gain": self.gain, "peak_memory": found.peak, "likely": found.likely,
            "options": {**self.choice.options, **found.options}, "rank": self.rank or None,
        }  # fmt: skip


@catalog.settled()
def quicker(report: SearchReport) -> Quicker | None:
    """Of the ranked layouts and those of the front on as many GPUs as the best, the quickest with settings of its own;
    None where none is faster than the best one by more than its near twins are, or nobody asks for speed."""
    if not report.best or report.interrupted or report.request.brief or report.request.objective == MEMORY:
        return None
    first = report.best[0]
    tried = [one for rank, choice in _looked_at(report, first) if (one := _with_settings(report, first, rank, choice))]
    best = max(tried, key=lambda one: one.tokens_per_second, default=None)
    return best if best is not None and best.gain > AS_GOOD else None


def _looked_at(report: SearchReport, first: Choice) -> Iterable[tuple[int, Choice]]:
    """Layouts with their rank, 0 for those that have none; each once."""
    gpus = first.report.setup.layout.gpus
    ranks = {one.found.name: rank for rank, one in enumerate(report.best, 1)}
    for choice in {one.found.name: one for one in (*report.best[:RANKS], *report.front)}.values():
        if choice.report.setup.layout.gpus == gpus:
            yield ranks.get(choice.found.name, 0), choice


def _with_settings(report: SearchReport, first: Choice, rank: int, choice: Choice) -> Quicker | None:
    found = quicker_settings(choice.report.setup, report.request.margin)
    if found is None or found.seconds > report.kept.longest(int(choice.found.group.batch)):
        return None
    rate = choice.report.tokens_per_second * choice.seconds / found.seconds
    return Quicker(found, choice, rank, rate, 1 - first.report.tokens_per_second / rate)


def plain(found: Quicker | None) -> dict[str, Any]:
    """As in the JSON contract."""
    return {"settings": None if found is None else found.to_dict()}
