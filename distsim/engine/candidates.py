"""Layouts worth timing on a cluster, by Megatron's rules, and the best of them for each size of each cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from distsim import catalog
from distsim.engine.energy import draw
from distsim.engine.goodput import Checkpoint, Policy, goodput
from distsim.engine.memory import memory_of
from distsim.engine.models import LoadedModel
from distsim.engine.plan import Candidate
from distsim.engine.resolve import Setup, resolve
from distsim.engine.step import StepReport, step_of
from distsim.errors import DistsimError
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.specs.cluster import Cluster
from distsim.specs.failures import Failures
from distsim.specs.job import Job
from distsim.specs.rules import divisors
from distsim.specs.storage import Storage
from distsim.units import GIGA

TP_DEGREES = (1, 2, 4, 8)
PP_DEGREES = (1, 2, 4, 8, 16)
MICRO_BATCHES = (1, 2, 4)
RECOMPUTE = ("none", "selective", "full")
EXPERT_DEGREE = 8
"""Most expert parallelism that is tried: a node's worth."""
SHORTLIST = 3
FITTING_SPLITS = 2
"""Products tp * pp that are timed once one fits: more model parallelism than that only costs traffic."""
PLAIN_HOST_RATE = 26 * GIGA
"""To host memory over PCIe 4.0, one direction, where the preset does not say (nvbandwidth README, 8 x A100)."""


Shortlists = dict[tuple[str, int, int], list[dict[str, Any]]]


@dataclass(frozen=True)
class Terms:
    """What holds for all candidates of a plan: the job's own options, and what it trains against."""

    job: Job
    global_batch: int
    failures: Failures
    storage: Storage
    policy: Policy


def candidate(terms: Terms, model: LoadedModel, cluster: str, gpus: int, known: Shortlists) -> Candidate | None:
    """The fastest layout that fits on so many accelerators, or None.

    What fits follows from the accelerator and the size of its fabric; so the layouts that were fastest on one such
    cluster are the only ones timed on the next, whose network differs.
    """
    spec: Cluster = catalog.load("clusters", cluster)
    key = (catalog.load("gpus", spec.gpu).name, spec.domain, gpus)
    if key in known:
        timed = [step_of(_setup(terms, model, cluster, degrees)) for degrees in known[key]]
    else:
        timed = list(_timed(terms, model, cluster, gpus))
    timed.sort(key=lambda report: report.seconds)
    known.setdefault(key, [_degrees(report) for report in timed[:SHORTLIST]])
    return _candidate(terms, model, timed[0]) if timed else None


def _degrees(report: StepReport) -> dict[str, Any]:
    y = report.setup.layout
    degrees = {"gpus": y.gpus, "tp": y.tp, "pp": y.pp, "micro_batch": y.micro_batch}
    return degrees | {"recompute": report.setup.recompute}


def _timed(terms: Terms, model: LoadedModel, cluster: str, gpus: int) -> Iterator[StepReport]:
    """Fitting layouts: splits in order of rising model parallelism, the mildest recomputation that fits."""
    sizes: set[int] = set()
    for tp, pp in _splits(model, catalog.load("clusters", cluster), gpus):
        if len(sizes) >= FITTING_SPLITS and tp * pp not in sizes:
            return
        for report in _variants(terms, model, cluster, {"gpus": gpus, "tp": tp, "pp": pp}):
            sizes.add(tp * pp)
            yield report


def _splits(model: LoadedModel, cluster: Cluster, gpus: int) -> list[tuple[int, int]]:
    """(tp, pp) that the accelerators divide into and whose 2-byte weights alone would fit, mildest first."""
    room = catalog.load("gpus", cluster.gpu).capacity
    experts = EXPERT_DEGREE if model.spec.experts is not None else 1
    weights = model.parameters * DTYPE_BYTES["bf16"] / experts
    pairs = [
        (tp, pp) for tp in TP_DEGREES for pp in PP_DEGREES
        if tp <= cluster.domain and gpus % (tp * pp) == 0 and pp <= model.spec.layers and weights / (tp * pp) < room
    ]  # fmt: skip
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def _variants(terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, int]) -> Iterator[StepReport]:
    """Rising micro-batches while they fit without recomputation; the mildest recomputation for the first of them."""
    sequences, rest = divmod(terms.global_batch, degrees["gpus"] // (degrees["tp"] * degrees["pp"]))
    for micro in MICRO_BATCHES:
        if rest or not sequences or sequences % micro:
            return
        policies = RECOMPUTE if micro == MICRO_BATCHES[0] else RECOMPUTE[:1]
        setup = _mildest(terms, model, cluster, {**degrees, "micro_batch": micro}, policies)
        if setup is None:
            return
        yield step_of(setup)
        if setup.recompute != RECOMPUTE[0]:
            return


def _mildest(
    terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, Any], policies: Sequence[str]
) -> Setup | None:
    for recompute in policies:
        try:
            setup = _setup(terms, model, cluster, {**degrees, "recompute": recompute})
        except DistsimError:
            return None  # this split breaks a rule of the model: the next one is tried
        if memory_of(setup).fits:
            return setup
    return None


def _setup(terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, Any]) -> Setup:
    job = terms.job
    update = {"cluster": cluster, "global_batch": terms.global_batch, "model": model.spec, **degrees}
    if job.zero is None:
        update["zero"] = 1
    experts = model.spec.experts
    if experts is not None and job.ep is None:
        spread = degrees["gpus"] // degrees["pp"]
        update["ep"] = max(d for d in divisors(experts.count) if spread % d == 0 and d <= EXPERT_DEGREE)
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
        draw(setup.accelerator, setup.cluster, report.mfu), report.breakdown, report.mfu,
    )  # fmt: skip


def candidates(terms: Terms, model: LoadedModel, places: Sequence[tuple[str, int]]) -> list[Candidate]:
    """The best layout for each (cluster, accelerators) that has one."""
    known: Shortlists = {}
    found = (candidate(terms, model, cluster, gpus, known) for cluster, gpus in places)
    return [one for one in found if one is not None]
