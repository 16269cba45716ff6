"""``distsim plan``: which clusters to try, at which prices, and what comes out of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.engine.campaigns.batch import StepBatch
from distsim.engine.campaigns.prices import high_rents
from distsim.engine.counted import Pool, Show
from distsim.engine.jobs.flops import active_parameters
from distsim.engine.jobs.framework_notes import beyond_default
from distsim.engine.jobs.models import USUAL_SEQUENCE, LoadedModel, load_model
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.plans import choice
from distsim.engine.plans import plan as plans
from distsim.engine.plans.again import searched_again, usual_layouts
from distsim.engine.plans.besides import Besides, besides
from distsim.engine.plans.candidates import candidate_setup
from distsim.engine.plans.larger import up_to_cheapest, up_to_deadline, up_to_memory
from distsim.engine.plans.no_option import nothing_found, without_option
from distsim.engine.plans.offers import Offers, offers
from distsim.engine.plans.on_time import spread
from distsim.engine.plans.optimum import Optimum, optimum
from distsim.engine.plans.owned import owned_hour
from distsim.engine.plans.ownership import Ownership, ownership, system_for
from distsim.engine.plans.parts import partial_rents
from distsim.engine.plans.plan import Option
from distsim.engine.plans.request import Request
from distsim.engine.plans.rival import rival
from distsim.engine.plans.scope import Scope, usual_notes
from distsim.engine.plans.settings import Saving, saving_of
from distsim.engine.plans.smaller import down_to_budget
from distsim.engine.plans.sold import alike, chip_of, sold_whole
from distsim.engine.plans.tried import Tried
from distsim.engine.plans.unread import unread_notes
from distsim.errors import DistsimError
from distsim.formulas import scaling
from distsim.specs.job import Job
from distsim.specs.written import stated_of
from distsim.units import DAY, YEAR

if TYPE_CHECKING:
    from distsim.engine.plans.campaign import Campaigns

MANY_FAILURES, FEW_CAMPAIGNS = 2_000, 500
"""Campaigns of very many failures are alike: fewer of them are simulated."""


@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """Options, cheapest first, and those that answer the wish."""

    request: Request
    model: LoadedModel
    options: tuple[Option, ...]
    notes: tuple[str, ...] = field(default=())
    sizes: tuple[int, ...] = ()
    """Numbers of accelerators that were tried."""
    infeasible: DistsimError | None = None
    """Why there are no options at all, though the question is right."""
    since: float = -math.inf
    """Ordinal of the day from which on prices of systems are reckoned with."""

    def __repr__(self) -> str:
        return f"Plan({self.model.name}, {self.request.tokens:g} tokens: {len(self.options)} options, {self.cheapest})"

    @property
    def pareto(self) -> list[int]:
        """Indices of options that none beats in days and what has to be paid."""
        return choice.pareto(self.options)

    @property
    def cheapest(self) -> Option | None:
        """Cheapest within the limits."""
        return choice.cheapest(self.options, self.request.wish)

    @property
    def fastest(self) -> Option | None:
        """Fastest within the limits."""
        return choice.fastest(self.options, self.request.wish)

    @property
    def surer(self) -> Option | None:
        """The next cheapest option that is sure to be in time, where the cheapest is not; None where there is none."""
        return None if self.cheapest is None else choice.surer(self.options, self.request.wish, self.cheapest)

    @property
    def rival(self) -> Option | None:
        """The cheapest on another accelerator that cannot be told from the cheapest; None where there is none."""
        return rival(self.options, self.request.wish, self.cheapest)

    @property
    def nearest(self) -> list[Option]:
        """The options that miss the limits by least."""
        return choice.nearest(self.options, self.request.wish)

    @property
    def chosen(self) -> Option | None:
        """The cheapest within the limits, or else the one that misses them by least."""
        return self.cheapest or (self.nearest[0] if self.nearest else None)

    def campaigns(self, seed: int = 0) -> dict[str, Any] | None:
        """When the chosen option ends, in simulated campaigns, and the share of them that keeps to the deadline; None
        where there is none."""
        if self.chosen is None:
            return None
        dates, days = finish_dates(self.chosen, seed), self.request.wish.days
        return {**dates.to_dict(), "within_deadline": None if days is None else dates.share_within(days * DAY)}

    def setup(self, option: Option) -> Setup:
        """The job of an option in its layout, nothing open."""
        one = option.candidate
        return candidate_setup(self.request.terms, self.model, one.cluster, one.gpus, one.layout)

    def buying(self, option: Option) -> Ownership | None:
        """Buying the machines of an option instead, or as the option says; None where no system price or no power is
        known."""
        one = option.candidate
        system = system_for(one.gpu, self.request.providers, self.since)
        if system is not None and option.quote.owned:
            chip, cluster = chip_of(one.cluster), catalog.load("clusters", one.cluster)
            return owned_hour(chip, cluster, system, self.request.facility, self.request.terms.job.gpu_power)
        if system is None or option.watts is None:
            return None
        draw = option.candidate.draw
        rated = None if draw is None else draw.rated or None
        reserved = option.terms is not None
        return ownership(system, option.quote.usd_per_gpu_hour, option.watts, self.request.facility, rated, reserved)

    def besides(self, option: Option) -> Besides:
        """Storage and egress of an option."""
        return besides(option, self.model.spec, self.request.kept, self.request.providers)

    def saving(self, option: Option) -> Saving | None:
        """What settings that change no layout would save of an option; None where none does."""
        return saving_of(option, self.setup(option), self.request.terms.margin)

    def optimum(self, option: Option) -> Optimum | None:
        """The compute-optimal dense model for the budget, or for what an option costs; its FLOPs are counted as that
        rule counts them: without those of attention."""
        sparse = self.model.spec.experts is not None
        used = active_parameters(resolve(Job(model=self.model.spec))) if sparse else self.model.parameters
        flops = float(scaling.training_flops(used, self.request.tokens))
        life_days = self.request.facility.lifetime_years * YEAR / DAY
        return optimum(self.options, option, self.request.wish, flops, self.besides, life_days)

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract, and more."""
        index = {id(option): position for position, option in enumerate(self.options)}
        wish = self.request.wish
        pick = {"cheapest": self.cheapest, "fastest": self.fastest, "surer": self.surer, "rival": self.rival}
        chosen = self.chosen
        buying = None if chosen is None else self.buying(chosen)
        return {
            "schema": "distsim.plan/1", "model": self.model.name, "tokens": self.request.tokens,
            "job": stated_of(self.request.terms.job),
            "global_batch": None if chosen is None else chosen.candidate.global_batch,
            "options": [{**option.to_dict(), "on_time": wish.on_time(option)} for option in self.options],
            "pareto": self.pareto,
            **{name: None if one is None else index[id(one)] for name, one in pick.items()},
            "met": self.cheapest is not None, "limits": self.request.wish.to_dict(),
            "nearest": [{"option": index[id(one)], "lacks": self.request.wish.lacks(one)} for one in self.nearest],
            "buying": None if buying is None else buying.to_dict(),
            "besides": None if chosen is None else self.besides(chosen).to_dict(),
            "sizes": list(self.sizes), "facility": self.request.facility.name,
            "failures": self.request.terms.failures.name,
            "storage": self.request.terms.storage.name, "notes": list(self.notes),
            "reason": None if self.infeasible is None else self.infeasible.problem,
        }  # fmt: skip


def tokens_for(stated: float | None, compute_optimal: bool, model: LoadedModel) -> float:
    """Tokens as stated, or Chinchilla's for the model."""
    if stated is not None and compute_optimal:
        raise DistsimError("--tokens and --compute-optimal are both given", "keep one of them")
    if compute_optimal:
        return float(scaling.optimal_tokens(model.parameters))
    if stated is None:
        raise DistsimError(
            "no tokens given", "e.g.: --tokens 2T", "or: --compute-optimal, for as many as Chinchilla's rule gives"
        )
    if not 0 < stated <= plans.MOST_TOKENS:
        raise DistsimError(f"--tokens {stated:g} is out of range", "valid: more than 0, at most 1e18; e.g. --tokens 2T")
    return stated


def sequence_of(model: LoadedModel) -> int:
    """Tokens per sequence of most of a run: the model's context where that is not a long one."""
    return min(model.spec.context, USUAL_SEQUENCE)


def step_batch(stated: int | None, job: Job, model: LoadedModel, tokens: float) -> StepBatch:
    """Sequences per optimizer step: as stated, or growing with the cluster up to what is good for the run."""
    active = active_parameters(resolve(Job(model=model.spec)))
    most = scaling.good_batch_tokens(scaling.training_flops(active, tokens))
    seq = job.seq if job.seq is not None else sequence_of(model)
    return StepBatch(seq, stated, float(most), model.spec.experts is not None, bool(job.lora_rank))


def finish_dates(option: Option, seed: int = 0) -> Campaigns:
    """Simulated campaigns of an option; the step time varies as its interval says."""
    from distsim.engine.plans.campaign import CAMPAIGNS, simulate

    one = option.candidate
    work = one.work_seconds(option.tokens)
    failures = one.goodput.interruptions(work)
    campaigns = CAMPAIGNS if failures <= MANY_FAILURES else FEW_CAMPAIGNS
    return simulate(one.goodput, work, campaigns, seed, spread(one))


@catalog.settled()  # every offer names its accelerator, and every layout its hardware
def make_plan(request: Request, watch: Show | None = None, pool: Pool | None = None) -> Plan:
    """Time the clusters that are worth it and price them; in a pool's processes if one is given, with the same
    answer."""
    model = load_model(request.terms.job.model)
    prices = offers(request)
    scope = _scope(request, model, prices)
    places = scope.places()
    _check_tokens(request, model)
    tried = Tried(request, model, prices.known, watch, pool)
    found = tried.options(places)
    if not request.sizes:
        found = plans.cheapest_first([*found, *up_to_memory(places, tried.full, tried.more)])
    fitted = list(tried.places)
    if not request.sizes:
        found = plans.cheapest_first([*found, *up_to_cheapest(found, request.wish, tried.more)])
        found = plans.cheapest_first([*found, *up_to_deadline(found, request.wish, tried.more)])
    lacking = None if found else nothing_found(request, model.name, tried.places, tried.made, tried.quotes)
    if scope.open_sizes and request.wish.dollars is not None:
        found = plans.cheapest_first([*found, *down_to_budget(found, request.wish, tried.more)])
    found = searched_again(found, request.wish, tried.again)
    usual = usual_notes(request, model, prices.left_out, found) if found else []
    usual += without_option(request, model.name, tried.places, tried.quotes, found, tried.refused) if found else []
    unread = unread_notes(request.terms, model, tried.places, tried.made, found)
    of_chips = (note for option in found for note in option.candidate.notes)
    rents = ((one.quote.whose, one.quote.usd_per_gpu_hour) for one in found if not one.quote.owned)
    usual += [*usual_layouts(found), *partial_rents(prices.known, found)]
    notes = tuple(dict.fromkeys((*usual, *high_rents(rents), *scope.notes(fitted, tried.places), *unread, *of_chips)))
    made = Plan(request, model, tuple(found), notes, tuple(tried.sizes), lacking, prices.since)
    return replace(made, notes=tuple(dict.fromkeys((*notes, *_beyond_default(made)))))


def _beyond_default(made: Plan) -> list[str]:
    """What of the recommended options the default framework would refuse if somebody named it: the user's own bounds
    let it through."""
    picked = [one for one in (made.chosen, made.fastest) if one is not None]
    return [note for one in picked for note in beyond_default(made.setup(one))]


def _scope(request: Request, model: LoadedModel, prices: Offers) -> Scope:
    """What to try. Raises where nobody offers what is asked for, or only at prices that are too old."""
    try:
        return Scope(request, model, prices.known)
    except DistsimError as refused:
        try:
            Scope(request, model, prices.every)
        except DistsimError:
            raise refused from None  # older prices would not do either
        raise prices.too_old(request, alike(request, sold_whole(prices.known, request.sizes))) from None


def _check_tokens(request: Request, model: LoadedModel) -> None:
    per_step = request.terms.batch.sequences(1) * (request.terms.job.seq or model.spec.context)
    if request.tokens < per_step:
        raise DistsimError(
            f"{request.tokens:,.0f} tokens are fewer than one step of {per_step:,} tokens",
            "give more --tokens, or a smaller --global-batch",
        )
