"""Clusters of a plan with their fastest layouts, and what they lose to failures and draw in power."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from distsim import catalog
from distsim.arrays import ceil_div
from distsim.engine.campaigns.batch import StepBatch
from distsim.engine.campaigns.pace import campaign_ends, campaign_pace
from distsim.engine.corrections.unfitted import unfitted
from distsim.engine.counted import Pool, Show
from distsim.engine.exchanges.offloading import host_rate, shared_host_rate
from distsim.engine.exchanges.reach import domain_gpus
from distsim.engine.footprint.low_rank import LOW_RANK, low_rank_bytes
from distsim.engine.footprint.peak_error import TIGHT, peak_error
from distsim.engine.footprint.states import states_of
from distsim.engine.jobs.flops import trained_parameters
from distsim.engine.jobs.lacking import lacking
from distsim.engine.jobs.models import LoadedModel
from distsim.engine.jobs.reference import pair_note
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.bounds import Bounds
from distsim.engine.layouts.fold import Shared
from distsim.engine.networks.unknown import unknown_architecture, unknown_links
from distsim.engine.plans.energy import draw, starved_node
from distsim.engine.plans.goodput import Checkpoint, Goodput, Policy, goodput
from distsim.engine.plans.layouts import ALIKE, best_layouts, with_options
from distsim.engine.plans.plan import Candidate
from distsim.engine.step import step_of
from distsim.engine.steps.report import StepReport
from distsim.errors import DistsimError
from distsim.formulas.goodput import undisturbed_seconds
from distsim.layers.network import network_parameters, plain_context
from distsim.specs.cluster import Cluster
from distsim.specs.failures import Failures
from distsim.specs.job import Job
from distsim.specs.storage import Storage
from distsim.units import GIGA

SHORTLIST = 2
"""Fastest layouts of a cluster that a plan looks at, besides the one that leaves most memory free. Assumed."""
PLAIN_HOST_RATE = 26 * GIGA
"""To host memory over PCIe 4.0, one direction, where the preset does not say (nvbandwidth README, 8 x A100)."""
SHOWN = ("tp", "pp", "cp", "ep", "etp", "dp", "vpp", "schedule", "zero", "zero_group", "sequence_parallel",
         "micro_batch", "micro_batches", "recompute_layers", "seq")  # fmt: skip


UNFELT: Mapping[str, Any] = {
    "name": "", "aliases": (), "provider": None, "notes": "", "source": {}, "checked": None, "power": None,
}  # fmt: skip
"""Fields of a cluster that neither time nor memory of a layout depends on, left blank."""
UNFELT_ON_CHIP: Mapping[str, Any] = {"host_memory": None, "storage": None}
"""Those that only a job feels which keeps something in host memory or on drives."""
UNFELT_IN_NODE: Mapping[str, Any] = {"network": None}
"""That which a job does not feel that no more accelerators run than a node has."""
Hardware = tuple[Cluster, int]
"""What layouts depend on: nodes, network and number of accelerators."""
Place = tuple[str, int]
"""A cluster by its name, and how many of its accelerators."""


@dataclass
class Known:
    """What the clusters of a plan have in common."""

    chosen: dict[Hardware, StepReport | None] = field(default_factory=dict)
    """The step of the layout to plan with; None where none fits."""
    inside: dict[Hardware, tuple[Shared, Shared]] = field(default_factory=dict)
    """Computation and memory of the layouts that were searched, on any network."""
    whole: set[Hardware] = field(default_factory=set)
    """Those whose layout was found among all."""


@dataclass(frozen=True)
class Terms:
    """What holds for all candidates of a plan: the job's own options, and what it trains against."""

    job: Job
    batch: StepBatch
    failures: Failures
    storage: Storage
    policy: Policy
    bounds: Bounds = field(default_factory=Bounds)
    """Layouts that the user asks for."""
    margin: float = 0.0
    """Share of the memory that a layout leaves free."""
    tokens: float = math.inf
    """How long the campaign trains."""
    whole: bool = False
    """Search all layouts, not only the usual ones."""

    def job_on(self, model: LoadedModel, cluster: str, gpus: int) -> Job:
        """The job on so many accelerators of a cluster, its layout open."""
        batch = self.batch.sequences(gpus)
        update = {"model": model.spec, "cluster": cluster, "gpus": gpus, "global_batch": batch}
        return self.job.model_copy(update=update)


def candidate_setup(terms: Terms, model: LoadedModel, cluster: str, gpus: int, layout: Mapping[str, Any]) -> Setup:
    """A candidate's job with its layout, nothing open."""
    return with_options(terms.job_on(model, cluster, gpus), catalog.load("clusters", cluster), layout)


def candidate(terms: Terms, model: LoadedModel, cluster: str, gpus: int, known: Known) -> Candidate | None:
    """The fastest layout that fits on so many accelerators, or None; clusters that are alike are searched once."""
    spec: Cluster = catalog.load("clusters", cluster)
    job = terms.job_on(model, cluster, gpus)
    felt = _felt(terms, spec, gpus)
    if (felt, gpus) not in known.chosen:
        inside = known.inside.setdefault((_within(felt), gpus), ({}, {}))
        found = best_layouts(job, spec, gpus, terms.bounds, SHORTLIST, terms.margin, inside, terms.whole)
        timed = [one.report or step_of(candidate_setup(terms, model, cluster, gpus, one.options)) for one in found]
        known.chosen[felt, gpus] = sure_to_fit(timed) if timed else None
        known.whole |= {(felt, gpus) for one in found if one.whole}
    report = known.chosen[felt, gpus]
    if report is None:
        return None
    made = _candidate(terms, cluster, replace(report, setup=replace(report.setup, cluster=spec)))
    return replace(made, whole=(felt, gpus) in known.whole)


def _felt(terms: Terms, spec: Cluster, gpus: int) -> Cluster:
    """The cluster with what no step depends on set alike, so that clusters whose steps are the same compare equal."""
    on_chip = {} if terms.job.offload else UNFELT_ON_CHIP
    in_node = UNFELT_IN_NODE if gpus <= spec.gpus_per_node else {}
    return spec.model_copy(update={**UNFELT, **on_chip, **in_node})


def twins(terms: Terms, places: Sequence[Place], among: Sequence[Place]) -> list[Place]:
    """Some places, and those ``among`` others whose layouts are the same."""
    felt = {place: _felt(terms, catalog.load("clusters", place[0]), place[1]) for place in {*places, *among}}
    return [one for one in dict.fromkeys((*places, *among))
            if any(one[1] == place[1] and felt[one] == felt[place] for place in places)]  # fmt: skip


def _within(felt: Cluster) -> Cluster:
    """The same without its network: what is felt inside nodes."""
    return felt.model_copy(update=UNFELT_IN_NODE)


def sure_to_fit(timed: Sequence[StepReport]) -> StepReport:
    """The fastest of some layouts; where measured runs like it might well not fit, the fastest of those as fast whose
    runs would, or the one that needs least memory."""
    fastest = min(report.seconds for report in timed)
    alike = sorted((one for one in timed if one.seconds <= fastest * (1 + ALIKE)), key=lambda one: one.seconds)
    sure = (one for one in alike if peak_error(one.memory.peak, one.memory.capacity).fitting >= TIGHT)
    return next(sure, min(alike, key=lambda one: one.memory.peak))


def checkpoint_bytes_per_parameter(setup: Setup) -> float:
    """Weights, master copy and states of what trains, but for those of one number a row or tensor, in the mean of its
    parameters: 14 for Adam in mixed precision, less where matrices have one state (Muon) or narrow ones (GaLore)."""
    precision = setup.trained_precision
    parts = network_parameters(plain_context(setup.model, setup.tuning)).values()
    trained = [(one, times) for parameters, times in parts for one in parameters if one.trains]
    states = sum(
        times * (one.elements * state.bytes_under(precision) if state.shape == "full"
                 else low_rank_bytes(setup, precision, one, state))
        for one, times in trained for state in states_of(setup, one) if state.shape in ("full", *LOW_RANK)
    )  # fmt: skip
    each = states / sum(one.elements * times for one, times in trained)
    return float(precision.parameter_bytes + precision.master_bytes + each)


def checkpoint_of(report: StepReport) -> Checkpoint:
    """One checkpoint of a job: what its fullest rank holds, and all that trains once, predictions of further tokens
    among it."""
    setup = report.setup
    held = max(float(stage.states.parameters + stage.states.optimizer) for stage in report.memory.stages)
    if setup.tuning is not None:  # frozen weights are written nowhere
        held = max(float(stage.states.gradients + stage.states.optimizer) for stage in report.memory.stages)
    rate = host_rate(setup) or shared_host_rate(setup, PLAIN_HOST_RATE)
    network = setup.cluster.network
    nodes = ceil_div(setup.layout.gpus, setup.cluster.gpus_per_node)
    links = {} if network is None else {"writers_rate": network.node_bytes_per_second * nodes}
    total = round(trained_parameters(setup)) * checkpoint_bytes_per_parameter(setup)
    return Checkpoint(total, held, float(rate), **links)


def _candidate(terms: Terms, cluster: str, report: StepReport) -> Candidate:
    """A timed layout on a cluster, by the name or file under which it was asked for and has its price."""
    setup = report.setup
    layout = setup.layout
    saved = checkpoint_of(report)
    steady = replace(terms.policy, node_preempted_every=None)
    work = undisturbed_seconds(terms.tokens, layout.step_tokens, report.seconds) * terms.policy.pace
    kept, spot = (
        goodput(layout.gpus, terms.failures, saved, terms.storage, policy, setup.cluster.gpus_per_node, work)
        for policy in (steady, terms.policy)
    )
    shown = {name: getattr(layout, name) for name in SHOWN}
    shown |= {"sequence_parallel": bool(layout.sequence_parallel), "recompute": setup.recompute}
    shown |= {name: getattr(setup.job, name) for name in ("recompute_modules", "remat_policy")}
    shown["stage_layers"] = list(setup.chunk_layers) if len(set(setup.chunk_layers)) > 1 else None
    low, high = report.interval.low, report.interval.high
    if terms.policy.pace == campaign_pace():
        low, high = (end * report.seconds for end in campaign_ends(low / report.seconds, high / report.seconds))
    return Candidate(
        cluster, setup.accelerator.name, layout.gpus, shown, report.seconds, low, high, layout.step_tokens, kept,
        draw(setup.accelerator, setup.cluster, _campaign_utilisation(report, kept)), report.breakdown, report.mfu,
        layout.global_batch, saved.total_bytes, report.memory.peak / report.memory.capacity, spot, _notes(setup),
        setup.gpu_power, setup.framework.name, setup.cluster.domain, domain_gpus(setup),
    )  # fmt: skip


def _notes(setup: Setup) -> tuple[str, ...]:
    """What a plan has to know of a cluster's accelerator."""
    chip = setup.accelerator
    of_links = unknown_links(chip, setup.cluster, setup.layout.gpus)
    pairs = pair_note(setup.job, int(setup.layout.micro_batch))
    told = unknown_architecture(chip), plain_host(setup), starved_node(chip, setup.cluster), pairs
    return (*filter(None, told), *of_links, *unfitted(setup), *lacking(setup))


def plain_host(setup: Setup) -> str:
    """A note on a chip whose link to its host is not known, over which checkpoints leave it, or nothing."""
    if host_rate(setup):
        return ""
    return (
        f"the host link of {setup.accelerator.name} is not known: checkpoints are assumed to be copied at "
        f"{PLAIN_HOST_RATE / GIGA:.0f} GB/s, as over PCIe 4.0"
    )


def _campaign_utilisation(report: StepReport, kept: Goodput) -> float | None:
    """Utilisation at the pace of campaigns and stragglers, which the power follows: with operations that run once more,
    which draw what others do. None for a chip without a peak."""
    return None if report.hfu is None else report.hfu / kept.slow_steps


Answer = Candidate | DistsimError | None
"""The best layout of a place; what is wrong with the options there; or None where nothing fits."""


class Part(NamedTuple):
    """Places whose nodes are alike, which share what is computed inside them."""

    terms: Terms
    model: LoadedModel
    places: tuple[Place, ...]


def answers(
    terms: Terms, model: LoadedModel, places: Sequence[Place], watch: Show | None = None, pool: Pool | None = None
) -> dict[Place, Answer]:
    """The answer of each (cluster, accelerators), in their order whoever computes them; raises where the options are
    wrong everywhere."""
    known: dict[Place, Answer] = {}
    tell = watch or (lambda done, whole: None)
    tasks = parts(terms, model, places)
    made = enumerate(map(answers_of, tasks)) if pool is None else pool.share(answers_of, tasks)
    tell(0, len(places))
    for index, found in made:
        known |= zip(tasks[index].places, found, strict=True)
        tell(len(known), len(places))
    told = {place: known[place] for place in places}
    refusals = [one for one in told.values() if isinstance(one, DistsimError)]
    if refusals and len(refusals) == len(told):
        raise refusals[-1]
    return told


def parts(terms: Terms, model: LoadedModel, places: Sequence[Place]) -> list[Part]:
    """Places by what they share: the inside of nodes."""
    alike: dict[Hardware, list[Place]] = {}
    for cluster, gpus in dict.fromkeys(places):
        felt = _felt(terms, catalog.load("clusters", cluster), gpus)
        alike.setdefault((_within(felt), gpus), []).append((cluster, gpus))
    return [Part(terms, model, tuple(group)) for group in alike.values()]


@catalog.settled()
def answers_of(part: Part) -> list[Answer]:
    """The answer of each place of a part."""
    known, found = Known(), list[Answer]()
    for cluster, gpus in part.places:
        try:
            found.append(candidate(part.terms, part.model, cluster, gpus, known))
        except DistsimError as error:
            found.append(error)
    return found
