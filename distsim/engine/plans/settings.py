"""What settings that change no layout would save of an option of a plan."""

from __future__ import annotations

from typing import Any, NamedTuple

from distsim.engine.advice.settings import quicker_settings
from distsim.engine.jobs.resolve import Setup
from distsim.engine.plans.plan import Option


class Saving(NamedTuple):
    """Settings to add to a plan's command, and what its option then takes in the same layout."""

    words: tuple[str, ...]
    flags: str
    step_seconds: float
    days: float
    dollars: float
    """Rent of the run."""
    saved_days: float
    saved_dollars: float
    likely: float
    """Share of measured runs with its peak of memory that would fit."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


def saving_of(option: Option, setup: Setup, margin: float) -> Saving | None:
    """The saving on one option, whose job ``setup`` is; None where no setting is faster and fits."""
    found = quicker_settings(setup, margin)
    if found is None:
        return None
    days = option.candidate.days(option.tokens, found.seconds)
    dollars = option.dollars_at(days)
    return Saving(found.words, found.flags, found.seconds, days, dollars, option.days - days, option.dollars - dollars,
                  found.likely)  # fmt: skip
