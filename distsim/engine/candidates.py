"""Layouts worth timing on a cluster, by Megatron's rules, and the best of them for each size of each cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from distsim import catalog
from distsim.engine.energy import draw
from distsim.engine.goodput import Checkpoint, Policy, goodput
from distsim.engine.models import LoadedModel
from distsim.engine.plan import Candidate
from distsim.engine.resolve import Setup, resolve
from distsim.engine.step import StepReport, step_of
from distsim.errors import DistsimError
from distsim.specs.failures import Failures
from distsim.specs.job import Job
from distsim.specs.rules import divisors
from distsim.specs.storage import Storage
from distsim.units import GIGA

TP_DEGREES = (1, 2, 4, 8)
PP_DEGREES = (1, 2, 4, 8, 16)
MICRO_BATCHES = (1, 2, 4)
FITTING_SPLITS = 3
"""Products tp * pp that are timed once one fits: more model parallelism than that only costs traffic."""
PLAIN_HOST_RATE = 26 * GIGA
"""To host memory over PCIe 4.0, one direction, where the preset does not say (nvbandwidth README, 8 x A100)."""


@dataclass(frozen=True)
class Terms:
    """What holds for all candidates of a plan: the job's own options, and what it trains against."""

    job: Job
    global_batch: int
    failures: Failures
    storage: Storage
    policy: Policy


def candidate(terms: Terms, model: LoadedModel, cluster: str, gpus: int) -> Candidate | None:
    """The fastest layout that fits on so many accelerators, or None."""
    best: StepReport | None = None
    for report in _timed(terms, model, cluster, gpus):
        if best is None or report.seconds < best.seconds:
            best = report
    return None if best is None else _candidate(terms, model, best)


def _timed(terms: Terms, model: LoadedModel, cluster: str, gpus: int) -> Iterator[StepReport]:
    """Fitting layouts: splits in order of rising model parallelism, the mildest recomputation that fits."""
    sizes: set[int] = set()
    for tp, pp in _splits(model, catalog.load("clusters", cluster).domain, gpus):
        if len(sizes) >= FITTING_SPLITS and tp * pp not in sizes:
            return
        fitting = list(_variants(terms, model, cluster, gpus, tp, pp))
        if fitting:
            sizes.add(tp * pp)
            yield from fitting


def _splits(model: LoadedModel, domain: int, gpus: int) -> list[tuple[int, int]]:
    pairs = [
        (tp, pp) for tp in TP_DEGREES for pp in PP_DEGREES
        if tp <= domain and gpus % (tp * pp) == 0 and pp <= model.spec.layers
    ]  # fmt: skip
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def _variants(terms: Terms, model: LoadedModel, cluster: str, gpus: int, tp: int, pp: int) -> Iterator[StepReport]:
    dp = gpus // (tp * pp)
    if terms.global_batch % dp:
        return
    for micro in MICRO_BATCHES:
        if terms.global_batch // dp % micro:
            return
        report = _mildest(terms, model, cluster, {"gpus": gpus, "tp": tp, "pp": pp, "micro_batch": micro})
        if report is None:
            return
        yield report


def _mildest(terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, Any]) -> StepReport | None:
    for recompute in ("none", "selective", "full"):
        try:
            report = step_of(_setup(terms, model, cluster, {**degrees, "recompute": recompute}))
        except DistsimError:
            return None  # this split breaks a rule of the model: the next one is tried
        if report.memory.fits:
            return report
    return None


def _setup(terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, Any]) -> Setup:
    job = terms.job
    update = {"cluster": cluster, "global_batch": terms.global_batch, "model": model.spec, **degrees}
    if job.zero is None:
        update["zero"] = 1
    experts = model.spec.experts
    if experts is not None and job.ep is None:
        spread = degrees["gpus"] // degrees["pp"]
        update["ep"] = max(d for d in divisors(experts.count) if spread % d == 0 and d <= 8)
    return resolve(job.model_copy(update=update))


def checkpoint_bytes_per_parameter(setup: Setup) -> float:
    """Weights, master copy and full-size states of one parameter: 14 for Adam in mixed precision."""
    precision, optimizer = setup.precision, setup.optimizer
    states = sum(
        precision.state_bytes if state.bytes_per_element is None else state.bytes_per_element
        for state in optimizer.states if state.shape == "full" and state.of == "all"
    )  # fmt: skip
    return precision.parameter_bytes + precision.master_bytes * optimizer.master_copy + states


def checkpoint_of(report: StepReport, parameters: int) -> Checkpoint:
    """One checkpoint of a job: what its fullest rank holds, and all of it once."""
    setup = report.setup
    held = max(float(stage.states.parameters + stage.states.optimizer) for stage in report.memory.stages)
    host = setup.accelerator.host
    rate = (host.measured or host.rate) if host is not None else None
    network = setup.cluster.network
    nodes = -(-setup.layout.gpus // setup.cluster.gpus_per_node)
    links = {} if network is None else {"writers_rate": network.node_bytes_per_second * nodes}
    total = parameters * checkpoint_bytes_per_parameter(setup)
    return Checkpoint(total, held, rate or PLAIN_HOST_RATE, **links)


def _candidate(terms: Terms, model: LoadedModel, report: StepReport) -> Candidate:
    setup = report.setup
    y = setup.layout
    kept = goodput(y.gpus, terms.failures, checkpoint_of(report, model.parameters), terms.storage, terms.policy)
    shown = ("tp", "pp", "cp", "ep", "dp", "vpp", "zero", "micro_batch", "micro_batches", "seq")
    layout = {name: getattr(y, name) for name in shown} | {"recompute": setup.recompute}
    return Candidate(
        setup.cluster.name, setup.accelerator.name, y.gpus, layout, report.seconds, report.interval.low,
        report.interval.high, y.seq * terms.global_batch, kept,
        draw(setup.accelerator, setup.cluster, report.mfu), report.mfu,
    )  # fmt: skip


def candidates(terms: Terms, model: LoadedModel, places: Sequence[tuple[str, int]]) -> list[Candidate]:
    """The best layout for each (cluster, accelerators) that has one."""
    found = (candidate(terms, model, cluster, gpus) for cluster, gpus in places)
    return [one for one in found if one is not None]
