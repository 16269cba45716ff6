"""``distsim plan``: which clusters to try, at which prices, and what comes out of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.engine import plan as plans
from distsim.engine.batch import StepBatch
from distsim.engine.candidates import Terms, Watch, candidates
from distsim.engine.flops import active_parameters, model_flops
from distsim.engine.models import LoadedModel, load_model
from distsim.engine.ownership import Ownership, ownership, system_for
from distsim.engine.pace import campaign_pace
from distsim.engine.plan import Option, Wish
from distsim.engine.prices import STALE_DAYS, Quote, best, price_lists, quotes, recent
from distsim.engine.resolve import resolve
from distsim.errors import DistsimError
from distsim.formulas import scaling
from distsim.specs.accelerator import Accelerator
from distsim.specs.facility import Facility
from distsim.specs.job import Job
from distsim.specs.price import Term
from distsim.units import DAY, GIGA, count

if TYPE_CHECKING:
    from distsim.engine.campaign import Campaigns

MOST_TOKENS = 1e18
Z90 = 1.645
"""Standard deviations from the middle to either end of a 90 % interval of a normal distribution."""
LONGEST_USUAL_SEQUENCE = 8192
"""Most tokens of a run are trained at no more than this, whatever the context in the end: Llama 3 (arXiv:2407.21783),
sections 3.2 and 3.4."""
MANY_FAILURES, FEW_CAMPAIGNS = 2_000, 500
"""Campaigns of very many failures are alike: fewer of them are simulated."""
USUAL_DAYS = 30.0
USUAL_UTILISATION = 0.4
LEAST_MEMORY = 40 * GIGA
LARGEST_CLUSTER = 32_768
GPU_VENDORS = ("NVIDIA", "AMD")
"""Whose accelerators a plan looks at unless others are named: those that most frameworks run on."""
SIZES = (0.5, 1, 2, 4)
"""Cluster sizes that are tried, as multiples of what the deadline asks for at the usual utilisation."""


class NoPlanError(DistsimError):
    """The question is right and the answer is that nothing is feasible."""


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    terms: Terms
    tokens: float
    wish: Wish
    facility: Facility
    price_terms: tuple[Term, ...] = ("on-demand",)
    gpus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    providers: tuple[str, ...] = ()
    compute_optimal: bool = False
    price_days: float = STALE_DAYS
    """Prices so much older than the newest are left out."""


@dataclass(frozen=True)
class Plan:
    """Options, cheapest first, and those that answer the wish."""

    request: Request
    model: LoadedModel
    flops_per_token: float
    options: tuple[Option, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def pareto(self) -> list[int]:
        """Indices of options that none beats in days and dollars."""
        return plans.pareto(self.options)

    @property
    def cheapest(self) -> Option | None:
        """Cheapest within the limits."""
        return plans.cheapest(self.options, self.request.wish)

    @property
    def fastest(self) -> Option | None:
        """Fastest within the limits."""
        return plans.fastest(self.options, self.request.wish)

    @property
    def nearest(self) -> list[Option]:
        """Those that miss the limits by least."""
        return plans.nearest(self.options, self.request.wish)

    def buying(self, option: Option) -> Ownership | None:
        """Buying the machines of an option instead; None where no system price or no power is known."""
        system = system_for(option.candidate.gpu)
        if system is None or option.watts is None:
            return None
        return ownership(system, option.quote.usd_per_gpu_hour, option.watts, self.request.facility)

    def optimal_parameters(self, option: Option) -> float:
        """Parameters of the compute-optimal model for the budget, at an option's FLOPs per dollar."""
        dollars = self.request.wish.dollars or option.dollars
        return float(scaling.optimal_parameters(self.flops_per_token * option.tokens_per_dollar * dollars))

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract, and more."""
        index = {id(option): position for position, option in enumerate(self.options)}
        pick = {"cheapest": self.cheapest, "fastest": self.fastest}
        chosen = self.cheapest or (self.nearest[0] if self.nearest else None)
        buying = None if chosen is None else self.buying(chosen)
        return {
            "schema": "distsim.plan/1", "model": self.model.name, "tokens": self.request.tokens,
            "global_batch": None if chosen is None else chosen.candidate.global_batch,
            "options": [option.to_dict() for option in self.options],
            "pareto": self.pareto,
            **{name: None if one is None else index[id(one)] for name, one in pick.items()},
            "met": self.cheapest is not None,
            "nearest": [{"option": index[id(one)], "lacks": self.request.wish.lacks(one)} for one in self.nearest],
            "buying": None if buying is None else buying.to_dict(),
            "facility": self.request.facility.name, "failures": self.request.terms.failures.name,
            "storage": self.request.terms.storage.name, "notes": list(self.notes),
        }  # fmt: skip


def tokens_for(stated: float | None, compute_optimal: bool, model: LoadedModel) -> float:
    """Tokens as stated, or Chinchilla's for the model."""
    if stated is not None and compute_optimal:
        raise DistsimError("--tokens and --compute-optimal are both given", "keep one of them")
    if compute_optimal:
        return float(scaling.optimal_tokens(model.parameters))
    if stated is None:
        raise DistsimError("no tokens given", "e.g.: --tokens 2T", "or: --compute-optimal, for Chinchilla's number")
    if not 0 < stated <= MOST_TOKENS:
        raise DistsimError(f"--tokens {stated:g} is out of range", "valid: more than 0, at most 1e18; e.g. --tokens 2T")
    return stated


def sequence_of(model: LoadedModel) -> int:
    """Tokens per sequence of most of a run: the model's context where that is not a long one."""
    return min(model.spec.context, LONGEST_USUAL_SEQUENCE)


def step_batch(stated: int | None, job: Job, model: LoadedModel, tokens: float) -> StepBatch:
    """Sequences per optimizer step: as stated, or growing with the cluster up to what is good for the run."""
    active = active_parameters(resolve(Job(model=model.spec)))
    most = scaling.good_batch_tokens(scaling.training_flops(active, tokens))
    seq = job.seq if job.seq is not None else sequence_of(model)
    return StepBatch(seq, stated, float(most), model.spec.experts is not None)


def finish_dates(option: Option, seed: int = 0) -> Campaigns:
    """Simulated campaigns of an option; the step time varies as its interval says."""
    from distsim.engine.campaign import CAMPAIGNS, simulate

    one = option.candidate
    spread = max(math.log(one.step_high / one.step_low) / (2 * Z90), 0.0) if one.step_low > 0 else 0.0
    work = option.tokens / one.tokens_per_step * one.step_seconds
    failures = one.goodput.interruptions(work)
    campaigns = CAMPAIGNS if failures <= MANY_FAILURES else FEW_CAMPAIGNS
    return simulate(one.goodput, work, campaigns, seed, spread)


def make_plan(request: Request, watch: Watch | None = None) -> Plan:
    """Time the clusters that are worth it and price them."""
    model = load_model(request.terms.job.model)
    lists = price_lists(request.providers)
    listed = [quote for term in request.price_terms for quote in quotes(lists, term)]
    offered = recent(listed, request.price_days)
    clusters = _clusters(request, offered)
    per_token = _flops_per_token(request, model, clusters[0])
    places = [(name, size) for name in clusters for size in _sizes(request, name, per_token)]
    _check_tokens(request, model)
    made = candidates(request.terms, model, places, watch)
    if not made:
        raise NoPlanError(
            f"no layout of {model.name} fits any cluster that was tried: {', '.join(sorted({c for c, _ in places}))}",
            "try more accelerators with --gpus, or accelerators with more memory",
        )
    known = {
        (one.cluster, one.gpus): best(
            offered, one.cluster, one.gpus, catalog.load("clusters", one.cluster).gpus_per_node
        )
        for one in made
    }
    found = plans.options(made, request.tokens, known, request.facility)
    if not found:
        raise _nothing_found(request, known)
    return Plan(request, model, per_token, tuple(found), tuple(_notes(request, model, len(listed) - len(offered))))


def _nothing_found(request: Request, known: Mapping[tuple[str, int], Sequence[Quote]]) -> NoPlanError:
    """Why no candidate became an option: nobody rents out so many, or they take for ever."""
    if not any(known.values()):
        nodes = sorted({catalog.load("clusters", cluster).gpus_per_node for cluster, _ in known})
        sizes = ", ".join(map(str, sorted({gpus for _, gpus in known})))
        return NoPlanError(
            f"nobody rents out {sizes} accelerators as whole nodes of {' or '.join(map(str, nodes))}",
            f"use whole nodes: --gpus {nodes[0]}",
        )
    often = request.terms.policy.node_preempted_every is not None
    mend = "machines are taken away too often for so many of them" if often else "use more accelerators: --gpus 4096"
    return NoPlanError(f"every plan takes more than {plans.LONGEST_DAYS / 365:.0f} years", mend)


def _check_tokens(request: Request, model: LoadedModel) -> None:
    per_step = request.terms.batch.sequences(1) * (request.terms.job.seq or model.spec.context)
    if request.tokens < per_step:
        raise DistsimError(
            f"{request.tokens:,.0f} tokens are less than one step of {per_step:,} tokens",
            "give more --tokens, or a smaller --global-batch",
        )


def _clusters(request: Request, offered: Sequence[Quote]) -> list[str]:
    """Clusters that are offered for rent in whole nodes, those asked for or all that can train."""
    sold: dict[str, str] = {}
    for quote in offered:
        if quote.cluster and quote.gpus_per_instance >= catalog.load("clusters", quote.cluster).gpus_per_node:
            sold[quote.cluster] = quote.gpu
    wanted = {catalog.load("gpus", name).name for name in request.gpus}
    named = {catalog.load("clusters", name).name for name in request.clusters}
    chosen = [
        cluster for cluster, gpu in sold.items()
        if (not wanted or gpu in wanted) and (not named or cluster in named) and (wanted or named or _can_train(gpu))
    ]  # fmt: skip
    if not chosen:
        asked = ", ".join([*request.gpus, *request.clusters]) or "the providers asked for"
        raise DistsimError(
            f"nobody's {' or '.join(request.price_terms)} price for whole nodes of {asked} is known",
            f"with such prices: {', '.join(sorted(set(sold.values()))) or 'none'}",
            "other terms: --price on-demand, spot, reserved-1y; your own prices: presets/prices/NAME.toml",
        )
    return sorted(chosen)


def _can_train(gpu: str) -> bool:
    accelerator: Accelerator = catalog.load("gpus", gpu)
    able = accelerator.peak.bf16 is not None and accelerator.memory >= LEAST_MEMORY
    return able and accelerator.vendor in GPU_VENDORS


def _flops_per_token(request: Request, model: LoadedModel, cluster: str) -> float:
    return float(model_flops(resolve(request.terms.job.model_copy(update={"cluster": cluster, "model": model.spec}))))


def _sizes(request: Request, cluster: str, flops_per_token: float) -> list[int]:
    """Accelerators to try: as asked, or powers of two around what the deadline needs."""
    spec = catalog.load("clusters", cluster)
    most = LARGEST_CLUSTER if spec.network is not None else spec.domain
    if request.sizes:
        return [size for size in request.sizes if size <= most]
    peak = catalog.load("gpus", spec.gpu).peak.bf16
    seconds = (request.wish.days or USUAL_DAYS) * DAY
    need = flops_per_token * request.tokens / (seconds * USUAL_UTILISATION * (peak or GIGA))
    powers = {2 ** max(round(need * factor - 1).bit_length(), 0) for factor in SIZES}
    return sorted({min(max(size, spec.gpus_per_node), most) for size in powers})


def _notes(request: Request, model: LoadedModel, left_out: int) -> list[str]:
    notes = [
        "rent of accelerators only: no storage, egress, support or taxes; nobody asked whether so many are to be had",
    ]
    if (pace := campaign_pace()) == request.terms.policy.pace:
        notes.append(f"steps take {pace:g} times as long as a benchmark's, as in published campaigns; --pace sets it")
    if request.terms.batch.stated is None:
        notes.append(request.terms.batch.words)
    if request.terms.job.seq is not None and request.terms.job.seq < model.spec.context:
        notes.append(f"sequences of {request.terms.job.seq:,} tokens, the model's context is {model.spec.context:,}")
    if left_out:
        notes.append(f"{left_out} prices are over {request.price_days:.0f} days older than the newest and left out")
    if request.compute_optimal:
        notes.append(
            f"{count(request.tokens)} tokens are compute-optimal for {count(model.parameters)} parameters "
            "(Chinchilla: about 20 per parameter); models that will serve long are trained on more"
        )
    if "spot" in request.price_terms and request.terms.policy.node_preempted_every is None:
        notes.append(
            "spot machines are taken away more often than the failure rate says, and no provider states how often: "
            "not in it; --preempted-every 10d counts one loss of each node in ten days"
        )
    return notes
