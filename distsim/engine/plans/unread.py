"""Notes on options that no layout of a plan's answer reads: whether those that do were tried, or there are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distsim import catalog
from distsim.engine.jobs.models import LoadedModel
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import tried
from distsim.engine.layouts.space import Group
from distsim.engine.layouts.support import lenient
from distsim.engine.layouts.tried import unread_notes as notes
from distsim.engine.layouts.variants import READ_BEYOND_ONE, unread
from distsim.engine.plans.candidates import Place, Terms
from distsim.engine.plans.layouts import overrides_of, space
from distsim.engine.plans.plan import Candidate, Option
from distsim.errors import DistsimError
from distsim.specs.flags import flag

OF_JOB = {**READ_BEYOND_ONE, "loss_parallel": "tp", "no_sync": "micro_batches"}
"""Options of a job, and the number of a layout that has to be more than one for them to be read."""
OF_LAYOUT = {"schedule": "pp", "sequence_parallel": "tp", "etp": "ep"}
"""The same for options that bound the search."""


def unread_notes(
    terms: Terms, model: LoadedModel, places: Sequence[Place], made: Sequence[Candidate], options: Sequence[Option]
) -> list[str]:  # fmt: skip
    """A note for each option that is stated and that no layout of the plan's ``options`` reads. ``made`` is the best
    layout of those ``places`` that have one."""
    job = terms.job
    stated = {name: flag(name, value) for name in OF_JOB if (value := getattr(job, name)) is not None}
    stated |= {name: flag(name) for name in OF_LAYOUT if name in terms.bounds.given}
    layouts = [option.candidate.layout for option in options]
    alone = {
        typed: (OF_JOB | OF_LAYOUT)[name] for name, typed in stated.items()
        if layouts and all(_unread(name, layout) for layout in layouts)
    }  # fmt: skip
    return notes(alone, lambda: _tried(terms, model, places, made), "among the options")


def _unread(option: str, layout: Mapping[str, Any]) -> bool:
    """Whether a layout has no use for an option."""
    return option in unread(layout) if option in READ_BEYOND_ONE else layout[(OF_JOB | OF_LAYOUT)[option]] == 1


def _tried(terms: Terms, model: LoadedModel, places: Sequence[Place], made: Sequence[Candidate]) -> Iterator[Group]:
    """The layouts of every place: those of the usual space, and of the whole one where that was searched."""
    best = {(one.cluster, one.gpus): one.whole for one in made}
    for cluster, gpus in dict.fromkeys(places):
        spec, job = catalog.load("clusters", cluster), terms.job_on(model, cluster, gpus)
        for whole in (False, True):
            if whole and not best.get((cluster, gpus), True):
                continue
            bounds = space(job, spec, terms.bounds, whole)
            try:
                batch = (terms.batch.sequences(gpus),)
                yield from tried(lenient(Request(job, (gpus,), bounds, overrides=overrides_of(job, spec))), batch)
            except DistsimError:
                continue
