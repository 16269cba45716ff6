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
VPP_DEGREES = (2, 4)
MICRO_BATCHES = (1, 2, 4, 8, 16)
RECOMPUTE = ("none", "selective", "full")
NODE_EXPERT_DEGREE, MOST_EXPERT_DEGREE = 8, 64
"""Expert parallelism that is tried: a node's worth, more only where that does not fit."""
SHORTLIST = 2
HOPELESS = 1.3
"""Behind the best by more than larger micro-batches or interleaving make up for."""
FITTING_SPLITS = 2
"""Products tp * pp that fit without recomputation before no more are tried: the rest would only cost traffic."""
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
        timed = [step_of(candidate_setup(terms, model, cluster, degrees)) for degrees in known[key]]
    else:
        timed = list(_timed(terms, model, cluster, gpus))
    timed.sort(key=lambda report: report.seconds)
    known.setdefault(key, [_degrees(report) for report in timed[:SHORTLIST]])
    return _candidate(terms, model, timed[0]) if timed else None


def _degrees(report: StepReport) -> dict[str, Any]:
    y = report.setup.layout
    degrees = {"gpus": y.gpus, "tp": y.tp, "pp": y.pp, "micro_batch": y.micro_batch, "vpp": y.vpp}
    return degrees | {"recompute": report.setup.recompute, "ep": y.ep}


def _timed(terms: Terms, model: LoadedModel, cluster: str, gpus: int) -> Iterator[StepReport]:
    """Fitting layouts: splits in order of rising model parallelism, the mildest recomputation that fits."""
    sizes: set[int] = set()
    best = float("inf")
    for tp, pp in _splits(model, catalog.load("clusters", cluster), gpus):
        if len(sizes) >= FITTING_SPLITS and tp * pp not in sizes:
            return
        for report in _variants(terms, model, cluster, {"gpus": gpus, "tp": tp, "pp": pp}, best):
            best = min(best, report.seconds)
            if report.setup.recompute == RECOMPUTE[0]:
                sizes.add(tp * pp)
            yield report


def _splits(model: LoadedModel, cluster: Cluster, gpus: int) -> list[tuple[int, int]]:
    """(tp, pp) that the accelerators divide into and whose 2-byte weights and gradients would fit, mildest first."""
    room = catalog.load("gpus", cluster.gpu).capacity
    experts = MOST_EXPERT_DEGREE if model.spec.experts is not None else 1
    states = model.parameters * 2 * DTYPE_BYTES["bf16"] / experts
    pairs = [
        (tp, pp) for tp in TP_DEGREES for pp in PP_DEGREES
        if tp <= cluster.domain and gpus % (tp * pp) == 0 and pp <= model.spec.layers and states / (tp * pp) < room
    ]  # fmt: skip
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def _variants(
    terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, int], best: float
) -> Iterator[StepReport]:
    """Rising micro-batches while they fit without recomputation; the mildest recomputation for the first of them.

    A split that starts far behind the ``best`` seconds so far is not followed further.
    """
    sequences, rest = divmod(terms.global_batch, degrees["gpus"] // (degrees["tp"] * degrees["pp"]))
    for micro in MICRO_BATCHES:
        if rest or not sequences or sequences % micro:
            return
        policies = RECOMPUTE if micro == MICRO_BATCHES[0] else RECOMPUTE[:1]
        setup = _mildest(terms, model, cluster, {**degrees, "micro_batch": micro}, policies)
        if setup is None:
            return
        report = step_of(setup)
        yield report
        if report.seconds > HOPELESS * best:
            return
        for vpp in _chunks(model, setup):
            chunked = _mildest(terms, model, cluster, {**degrees, "micro_batch": micro, "vpp": vpp}, [setup.recompute])
            if chunked is not None:
                yield step_of(chunked)
        if setup.recompute != RECOMPUTE[0]:
            return


def _chunks(model: LoadedModel, setup: Setup) -> list[int]:
    """Model chunks per stage for interleaving, where layers and micro-batches divide into them."""
    y = setup.layout
    if y.pp == 1 or y.micro_batches % y.pp:
        return []
    return [vpp for vpp in VPP_DEGREES if model.spec.layers % (y.pp * vpp) == 0]


def _mildest(
    terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, Any], policies: Sequence[str]
) -> Setup | None:
    """The first of rising recomputation and rising expert parallelism that fits."""
    for recompute in policies:
        for ep in _expert_degrees(model, degrees):
            try:
                setup = candidate_setup(terms, model, cluster, {**degrees, "recompute": recompute, "ep": ep})
            except DistsimError:
                return None  # this split breaks a rule of the model: the next one is tried
            if memory_of(setup).fits:
                return setup
    return None


def _expert_degrees(model: LoadedModel, degrees: dict[str, Any]) -> list[int]:
    experts = model.spec.experts
    if experts is None:
        return [1]
    spread = degrees["gpus"] // degrees["pp"]
    able = [degree for degree in divisors(experts.count) if spread % degree == 0 and degree <= MOST_EXPERT_DEGREE]
    return [degree for degree in able if degree >= NODE_EXPERT_DEGREE] or able[-1:]


def candidate_setup(terms: Terms, model: LoadedModel, cluster: str, degrees: dict[str, Any]) -> Setup:
    job, layers, pp = terms.job, model.spec.layers, degrees["pp"]
    update = {"cluster": cluster, "global_batch": terms.global_batch, "model": model.spec, **degrees}
    if job.zero is None:
        update["zero"] = 1
    if layers % pp:
        update["stage_layers"] = uneven(layers, pp)
    return resolve(job.model_copy(update=update))


def uneven(layers: int, stages: int) -> tuple[int, ...]:
    """Layers per stage; the first, which holds most micro-batches, and the last, which has the head, get least."""
    each, more = divmod(layers, stages)
    longer = range(stages - 1 - more, stages - 1)
    return tuple(each + (stage in longer) for stage in range(stages))


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
