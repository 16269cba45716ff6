"""Settings that make a step faster and change nothing of its layout: dispatchers, overlaps, graphs, losses."""

from __future__ import annotations

from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.advice.faster import LEAST_GAIN, changed
from distsim.engine.advice.quicker import changes
from distsim.engine.advice.runnable import runs
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import memory_of
from distsim.engine.step import seconds_of
from distsim.errors import DistsimError
from distsim.specs.flags import typed

OF_NO_LAYOUT = ("cp mode", "attention", "loss", "cuda graphs", "expert overlap", "expert dispatcher", "tp overlap",
                "update", "compile")  # fmt: skip
"""Kinds of change that leave degrees, micro-batches, recomputation and the training itself as they are."""


class Settings(NamedTuple):
    """Settings together, and the time that a step then takes."""

    words: tuple[str, ...]
    options: dict[str, Any]
    seconds: float
    peak: int
    likely: float
    """Share of measured runs with such a peak that would fit."""

    @property
    def flags(self) -> str:
        """What to add to the command line."""
        return typed(self.options)


@catalog.settled()
def quicker_settings(setup: Setup, margin: float = 0.0) -> Settings | None:
    """The settings that save most together: the best one, then the best beside it, as long as each gains and fits;
    None where none does. ``margin`` is the share of the memory that stays free."""
    found, seconds = None, seconds_of(setup)
    while (better := _best(setup, seconds, margin)) is not None:
        setup, one = better
        seconds = one.seconds
        before = found or Settings((), {}, 0.0, 0, 0.0)
        found = one._replace(words=(*before.words, *one.words), options={**before.options, **one.options})
    return found


def _best(setup: Setup, seconds: float, margin: float) -> tuple[Setup, Settings] | None:
    """The one setting more that saves most of those that fit, with the job that then is."""
    tried: list[tuple[float, str, dict[str, Any], Setup]] = []
    for kind, words, options in changes(setup):
        if kind not in OF_NO_LAYOUT:
            continue
        try:
            other = resolve(changed(setup, options), {"accelerator": setup.accelerator, "cluster": setup.cluster})
            took = seconds_of(other)
        except DistsimError:
            continue
        if runs(setup, other) and 1 - took / seconds >= LEAST_GAIN:
            tried.append((took, words, options, other))
    for took, words, options, other in sorted(tried, key=lambda entry: entry[0]):
        memory = memory_of(other)
        if memory.fits and memory.peak <= other.accelerator.limit(margin):
            return other, Settings((words,), options, took, memory.peak, memory.known.fitting)
    return None
