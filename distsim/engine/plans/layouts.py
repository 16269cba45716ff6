"""The layouts that a plan looks at: those of ``distsim search``, within the space that people train in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from distsim.engine.jobs.drives import needs_shards
from distsim.engine.jobs.models import USUAL_SEQUENCE
from distsim.engine.jobs.projected import stages_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.software import framework_of
from distsim.engine.layouts.bounds import Bounds, parse_bound
from distsim.engine.layouts.contradiction import contradiction
from distsim.engine.layouts.fold import Shared, setup_at
from distsim.engine.layouts.report import Request, SearchReport
from distsim.engine.layouts.search import search
from distsim.engine.layouts.variants import unread
from distsim.engine.plans.options import BOUNDED
from distsim.engine.plans.remembered import Remembered
from distsim.engine.steps.report import StepReport
from distsim.errors import DistsimError
from distsim.specs.cluster import Cluster
from distsim.specs.framework import Framework
from distsim.specs.job import Job

USUAL_SPACE = {
    "tp": "1..8", "pp": "1..16", "vpp": "1,2,4,8", "cp": "1", "schedule": "1f1b,interleaved-1f1b",
}  # fmt: skip
"""What is searched first for each cluster and size: what published runs chose (docs/plan.md)."""
WHOLE_SPACE = {"tp": "1..16", "pp": "1..64", "cp": "1..16", "schedule": USUAL_SPACE["schedule"]}
"""Searched where nothing in the usual space fits, and for the options that answer, with every number of chunks and
ZeRO stage: of 30 searches the best layout of all was in it."""
USUAL_MICRO_BATCH = 16
"""Sequences in the largest micro-batch that is tried at usual lengths. Assumed."""
MICRO_BATCH_TOKENS = USUAL_MICRO_BATCH * USUAL_SEQUENCE
"""Sequences in the largest micro-batch that is tried, or of short ones as many tokens."""
ODD_FACTORS = (3, 5)
"""Of micro-batches beside powers of two: published runs took 3 (SmolLM3), 5, 6 and 12."""
ALIKE = 0.01
"""Share of the step time that tells nothing: one layout measured twice differs by 0.5 to 2%."""


def overrides_of(job: Job, cluster: Cluster) -> dict[str, Any]:
    """Specs that replace those of the job wherever a plan resolves it."""
    return {"framework": framework_of(job), "cluster": cluster}


def micro_batches(seq: int, batch: int) -> list[int]:
    """Micro-batches that are tried: powers of two, and those with a factor 3 or 5 into which a batch divides."""
    most = max(USUAL_MICRO_BATCH, MICRO_BATCH_TOKENS // seq)
    powers = [2**power for power in range(most.bit_length())]
    odd = {factor * power for factor in ODD_FACTORS for power in powers if batch % (factor * power) == 0}
    return sorted({*powers, *(size for size in odd if size <= most)})


def space(job: Job, cluster: Cluster, stated: Bounds, whole: bool = False) -> Bounds:
    """The bounds of a search: those that the user states, the framework's habits, and the usual or the whole space."""
    framework = framework_of(job)
    habits = {**framework.usual, **framework.defaults}
    words = dict(WHOLE_SPACE if whole else USUAL_SPACE)
    if job.seq and job.seq > USUAL_SEQUENCE:
        words["cp"] = WHOLE_SPACE["cp"]
    words["micro_batch"] = ",".join(map(str, micro_batches(job.seq or USUAL_SEQUENCE, job.global_batch or 1)))
    if not whole:
        words["zero"] = ",".join(map(str, _usual_stages(job, framework, habits)))
    follows = "on,off" if whole else "on"  # off where tensor parallel degrees do not divide a sequence
    words["sequence_parallel"] = "off" if habits.get("sequence_parallel") is False else follows
    if not whole and cluster.domain < 8:
        words["tp"] = f"1..{cluster.domain}"
    usual = {name: parse_bound(name, text) for name, text in words.items()}
    own = frozenset(name for name in usual if name not in stated.given)
    return replace(stated, given={**usual, **stated.given}, usual=own)


def _usual_stages(job: Job, framework: Framework, habits: Mapping[str, Any]) -> Sequence[int]:
    """The ZeRO stage that is usual with a framework, or all where it has none that is."""
    usual = 3 if needs_shards(job, framework.supports) else habits.get("zero", 1)
    stages = [stage for stage in stages_of(job) if stage in framework.supports.zero] or stages_of(job)
    return [usual] if usual in stages else stages


OF_LAYOUT = (*BOUNDED, "recompute_modules")
"""Job options that tell found layouts apart."""


class Best(NamedTuple):
    """Options of a layout, with its step where the search has timed it."""

    options: dict[str, Any]
    report: StepReport | None
    whole: bool = False
    """Found among all layouts."""


REMEMBERED: Remembered[Best] = Remembered()


def best_layouts(
    job: Job, cluster: Cluster, gpus: int, stated: Bounds, count: int, margin: float = 0.0,
    shared: tuple[Shared, Shared] | None = None, whole: bool = False,
) -> list[Best]:  # fmt: skip
    """The fastest layouts that fit, fastest first, and the one that leaves most memory free of those as fast as the
    first; none where none fits. Raises where none is allowed. ``margin`` is a share of the memory that stays free;
    ``shared`` what the usual and the whole search on other networks have computed; with ``whole`` only that one is
    made. What was searched before is remembered."""

    def search_now() -> list[Best]:
        return _searched(job, cluster, gpus, stated, count, margin, shared, whole)

    if stated.runs is not None:
        return search_now()
    return REMEMBERED(job, cluster, (gpus, repr(stated), count, margin, whole), search_now)


def _searched(
    job: Job, cluster: Cluster, gpus: int, stated: Bounds, count: int, margin: float,
    shared: tuple[Shared, Shared] | None, whole: bool,
) -> list[Best]:  # fmt: skip
    for all_of_it, inside in list(zip((False, True), shared or (None, None), strict=True))[whole:]:
        bounds, specs, refusal = space(job, cluster, stated, all_of_it), overrides_of(job, cluster), None
        try:
            request = Request(job, (gpus,), bounds, top=count, margin=margin, overrides=specs, brief=True)
            found = search(request, shared=inside, empty=True)
        except DistsimError as error:
            refusal = error
            continue
        if found.best:
            every = [*((one.options, one.report) for one in found.best), (roomiest(found), None)]
            shown = [Best({name: one.get(name) for name in OF_LAYOUT}, report, all_of_it) for one, report in every]
            return [
                one for place, one in enumerate(shown) if all(one.options != other.options for other in shown[:place])
            ]
    if refusal is not None:
        raise refusal
    if not found.evaluated:
        raise contradiction(found.request, found.base, found.batches)
    return []


def roomiest(found: SearchReport) -> dict[str, Any]:
    """Options of the layout that needs least memory of those that are as fast as the best of a search."""
    front = found.kept.front.found
    quick = min(one.key for one in front) * (1 + ALIKE)
    least = min((one for one in front if one.key <= quick), key=lambda one: one.peak)
    return setup_at(least.group.setup, least.layout)


def with_options(job: Job, cluster: Cluster, options: Mapping[str, Any]) -> Setup:
    """A job with the options of a layout, as a setup."""
    update = {name: options[name] for name in OF_LAYOUT} | unread(options)
    if not update.get("zero", 1):  # a group that shards nothing
        update["zero_group"] = None
    return resolve(job.model_copy(update=update), overrides_of(job, cluster))
