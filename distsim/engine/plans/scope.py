"""What a plan tries: clusters that somebody rents out, sizes around what the deadline needs; and its notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from distsim import catalog
from distsim.arrays import round_up
from distsim.engine.campaigns.pace import campaign_pace
from distsim.engine.campaigns.prices import RESERVED_YEARS, STALE_DAYS, Quote, cluster_file
from distsim.engine.jobs.drives import lowest_stage, node_rates
from distsim.engine.jobs.flops import active_parameters, model_flops
from distsim.engine.jobs.framework_notes import narrow_by_default
from distsim.engine.jobs.graphs import OPEN
from distsim.engine.jobs.hardware import limited
from distsim.engine.jobs.lacking import other_software, unit_refusal, unnamed_software, wide_units
from distsim.engine.jobs.models import USUAL_SEQUENCE, LoadedModel, length_notes, without_effect
from distsim.engine.jobs.profile import usual_sixteen
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.software import framework_of
from distsim.engine.jobs.tuning import tuning_notes
from distsim.engine.plans.energy import USUAL_UTILISATION
from distsim.engine.plans.repairs import repair_note
from distsim.engine.plans.sold import asked_for, chip_of, similar, sold_whole, unmatched
from distsim.errors import DistsimError
from distsim.formulas import scaling
from distsim.specs.cluster import Cluster
from distsim.specs.job import Job
from distsim.specs.limits import LARGEST_CLUSTER
from distsim.specs.price import OWNED, Term
from distsim.units import DAY, GIGA, count, least_to_most

if TYPE_CHECKING:
    from distsim.engine.plans.plan import Option
    from distsim.engine.plans.request import Request

USUAL_DAYS = 30.0
"""How long a run may take where no deadline is stated; sizes from half to four times of what that asks for are
tried, and smaller ones where a budget rules these out."""
NAMED = 3
"""More clusters than that are told by their number. Assumed."""
SIZES = (0.5, 1, 2, 4)
"""Cluster sizes that are tried, as multiples of what the deadline asks for at the usual utilisation."""


class Scope:
    """Clusters with the sizes to try on each."""

    def __init__(self, request: Request, model: LoadedModel, offered: Sequence[Quote]) -> None:
        """Raises DistsimError where nobody rents out what is asked for."""
        self.request = request
        self.sold = sold_whole(offered, request.sizes)
        self.clusters, self.elsewhere = _running(asked_for(request, self.sold), request.terms.job)
        self.terms = {quote.term for quote in offered if quote.cluster in self.clusters}
        self._units = {name: min(_unit(one) for one in offered if one.cluster == name) for name in self.clusters}
        first = {"cluster": self.clusters[0], "model": model.spec, "gpu_power": None}
        lowest = lowest_stage(request.terms.job, framework_of(request.terms.job.model_copy(update=first)).supports)
        job = request.terms.job.model_copy(update={**first, "zero": lowest or None, **OPEN})
        setup = resolve(job)
        self.flops_per_token = float(model_flops(setup))
        self._math = setup.precision.math
        self._idle = without_effect(setup.model, job, setup.kernels)
        self._lengths = [*length_notes(setup.model, setup.layout), *narrow_by_default(setup)]
        self._tuning = tuning_notes(setup.tuning, setup.model, setup.kernels, setup.framework, setup.precision, job)

    def places(self) -> list[tuple[str, int]]:
        """Each cluster with each size that it has; where none has any, as asked, which is refused as for a step."""
        found = [(name, size) for name in self.clusters for size in self._sizes(name)]
        return found or [(name, size) for name in self.clusters for size in self.request.sizes]

    @property
    def open_sizes(self) -> bool:
        """Whether nothing that was asked says how many accelerators to try."""
        return not self.request.sizes and self.request.wish.days is None

    def notes(self, fitted: Sequence[tuple[str, int]], tried: Sequence[tuple[str, int]]) -> list[str]:
        """What has no adapter, what was asked for and has no price, and the sizes that were ``tried``; ``fitted`` those
        of them that were tried so that some layout fits."""
        told = [*dict.fromkeys((*self._idle, *self._lengths, *self._tuning)), *self._limits(), *self._software()]
        terms = " or ".join(self.request.price_terms)
        wanted = {catalog.load("gpus", name).name for name in self.request.gpus}
        told += unmatched(self.request)
        sold = set(map(cluster_file, self.sold))
        named = {name for name in self.request.clusters if cluster_file(name) not in sold}
        missing = sorted((wanted - set(self.sold.values())) | named)
        new = "" if self.request.price_days is None else "recent enough "
        if missing:
            others = "".join(f"; {words}" for one in sorted(named) if (words := similar(one, self.sold)))
            told.append(f"no {new}{terms} price is known for whole nodes of {', '.join(missing)}: left out{others}")
        if lacking := [term for term in self.request.price_terms if term not in self.terms]:
            told.append(f"no {new}{' or '.join(lacking)} price is known for what you asked for: no option uses one")
        told += self._beyond()
        larger = self._larger(fitted)
        if self.open_sizes:
            sizes = sorted({gpus for _, gpus in tried})
            reasons = ["no layout fits so few"] if larger else []
            if sizes[-1] > max(gpus for _, gpus in fitted):
                reasons.append("that costs less")
            told.append(_sizes_words(sizes, self.request.wish.dollars is not None, reasons))
        elif larger:
            whose = ", ".join(larger) if len(larger) <= NAMED else f"{len(larger)} clusters"
            told.append(
                f"no layout fits as few accelerators as the deadline asks for on {whose}: tried up to "
                f"{max(larger.values()):,}"
            )
        if not self.request.sizes and any(max(self._needed(name)) > LARGEST_CLUSTER for name in self.clusters):
            told.append(f"only sizes up to {LARGEST_CLUSTER:,} accelerators are tried; --gpus tries others")
        return told

    def _larger(self, tried: Sequence[tuple[str, int]]) -> dict[str, int]:
        """The largest size that was tried of each cluster, if it is beyond its own sizes, as no layout fits these."""
        most = {cluster: max(self._sizes(cluster), default=math.inf) for cluster in self.clusters}
        return {cluster: gpus for cluster, gpus in sorted(tried) if gpus > most[cluster]}

    def _limits(self) -> list[str]:
        """Accelerators that a stated power limit does not limit, or that it rules out."""
        told: dict[str, None] = {}
        for cluster in self.clusters:
            spec = catalog.load("clusters", cluster)
            try:
                found = limited(catalog.load("gpus", spec.gpu), spec, self.request.terms.job.gpu_power)[1]
            except DistsimError as error:
                found = [f"left out: {error.problem}"]
            told |= dict.fromkeys(found)
        return list(told)

    def _software(self) -> list[str]:
        """Accelerators that have another framework than the rest, and those that the stated one does not run on."""
        job, chips = self.request.terms.job, {self.sold[one]: chip_of(one) for one in self.clusters}
        told = [unnamed_software(chip, job) for chip in chips.values()]
        return [*self.elsewhere, *filter(None, told)]

    def _sizes(self, cluster: str) -> list[int]:
        """Accelerators to try: as asked, or powers of two around what the deadline needs; where these are paid for by
        racks, also those that fill them."""
        spec: Cluster = catalog.load("clusters", cluster)
        if self.request.sizes:
            return [size for size in self.request.sizes if size <= spec.most_gpus]
        needed, unit = self._needed(cluster), self._units[cluster]
        if unit > spec.gpus_per_node and not spec.sliced:
            needed |= {int(round_up(size, unit)) for size in needed}
        most = int(min(LARGEST_CLUSTER, spec.most_gpus))
        return sorted({min(max(size, spec.gpus_per_node), most) for size in needed})

    def _beyond(self) -> list[str]:
        """Clusters that have fewer accelerators than are asked for, or than the deadline asks for."""
        small = {}
        for name in self.clusters:
            most = catalog.load("clusters", name).most_gpus
            if max(self.request.sizes or self._needed(name)) > most:
                small[name] = f"{name} has {most:,}"
        return [f"more accelerators than work together are not tried: {', '.join(small.values())}"] if small else []

    def _needed(self, cluster: str) -> set[int]:
        """Powers of two around what keeps to the deadline at the usual utilisation."""
        chip = chip_of(cluster)
        math = self._math if self.request.terms.job.precision else usual_sixteen(chip, self._math)
        units = wide_units(chip.peak, math)
        seconds = (self.request.wish.days or USUAL_DAYS) * DAY
        peak = getattr(chip.peak, units) if units else GIGA
        need = self.flops_per_token * self.request.tokens / (seconds * USUAL_UTILISATION * peak)
        return {2 ** max(round(need * factor - 1).bit_length(), 0) for factor in SIZES}


def _unit(quote: Quote) -> int:
    """Accelerators that are rented out, or sold, together."""
    return quote.bought_together if quote.owned else quote.gpus_per_instance


def _sizes_words(sizes: Sequence[int], bound: bool, reasons: Sequence[str]) -> str:
    """Which sizes are tried where neither they nor a deadline are given; ``bound`` by a budget, larger ones for
    ``reasons``."""
    up = f", and more where {' or '.join(reasons)}" if reasons else ""
    down = ", and fewer where those exceed the budget and fewer may not" if bound else ""
    return (
        f"no deadline given: trying {least_to_most(sizes)} accelerators, sized for about {USUAL_DAYS:g} days"
        f"{up}{down}; --deadline or --gpus tries others"
    )


def _running(clusters: Sequence[str], job: Job) -> tuple[list[str], list[str]]:
    """Clusters that the stated framework runs on and whose nodes have what the job needs, and why the others do not."""
    if job.offload_to == "nvme":
        clusters, told = _with_drives(clusters)
        able, left_out = _running(clusters, job.model_copy(update={"offload_to": None}))
        return able, [*told, *left_out]
    if not job.names_framework:
        return list(clusters), []
    framework = framework_of(job)
    recipe = job.precision and catalog.load("precisions", job.precision)
    reasons = {}
    for one in clusters:
        chip = chip_of(one)
        reasons[one] = other_software(chip, framework) or (recipe and unit_refusal(chip, recipe, framework))
    able = [one for one in clusters if not reasons[one]]
    told = list(dict.fromkeys(reason for reason in reasons.values() if reason))
    if not able:
        raise DistsimError(told[0], "without --framework each accelerator is timed with software that runs on it")
    return able, [f"left out: {reason}" for reason in told]


def _with_drives(clusters: Sequence[str]) -> tuple[list[str], list[str]]:
    """Clusters that say what their drives do, and a note on the others; where none does, all of them."""
    able = [one for one in clusters if None not in node_rates(catalog.load("clusters", one))]
    silent = [one for one in clusters if one not in able]
    if not able or not silent:
        return list(clusters), []
    return able, [f"left out: {', '.join(silent)}, whose NVMe drive rates are unknown"]


def paid_for(terms: Sequence[Term]) -> str:
    """What the dollars of a plan are paid for, at its price terms."""
    hours = "the cost of hours on owned accelerators"
    if OWNED not in terms:
        return "accelerator rent"
    return hours if len(terms) == 1 else f"accelerator rent, or {hours}"


def usual_notes(request: Request, model: LoadedModel, left_out: int, found: Sequence[Option]) -> list[str]:
    """What every reader of a plan has to know of what was ``found``; ``left_out`` prices were too old."""
    notes = [
        f"dollars are {paid_for(request.price_terms)}: storage and egress are listed separately where "
        "a price is known, support and taxes are not included; whether so many are available was not checked",
    ]
    if (pace := campaign_pace()) == request.terms.policy.pace:
        notes.append(f"steps take {pace:g} times as long as in benchmarks, as in published campaigns; --pace sets it")
    notes += repair_note(request.terms.failures)
    if request.terms.batch.stated is None:
        notes.append(request.terms.batch.words(one.candidate.global_batch or 0 for one in found))
    if (seq := request.terms.job.seq) is not None and seq < (whole := model.spec.context):
        usual = f", which the other commands take without --seq; as in most training, a plan takes {seq:,}"
        notes.append(
            f"sequences have {seq:,} tokens; the model's context is {whole:,}{usual if seq == USUAL_SEQUENCE else ''}"
        )
    notes += _age_notes(request, left_out)
    if request.compute_optimal:
        notes += _optimum_notes(request, model)
    bound = [term for term in dict.fromkeys(one.quote.term for one in found) if term in RESERVED_YEARS]
    if request.wish.dollars is not None and bound:
        notes.append(
            f"the budget is compared with what must be paid: full terms for {' and '.join(bound)}, the run's rent for "
            "machines paid by the hour; options are ranked by the run's rent"
        )
    if OWNED in request.price_terms:
        house = request.facility
        notes.append(
            f"owned: an hour in use costs its share of price, upkeep{', interest' if house.interest else ''} and hall, "
            f"plus electricity; machines are in use {house.utilisation:.0%} of {house.lifetime_years:g} years "
            f"(facility {house.name}); a budget is compared with the purchase price of whole systems"
        )
    if "spot" in request.price_terms and request.terms.policy.node_preempted_every is None:
        notes.append(
            "spot preemptions, which come on top of failures, are not counted: price lists do not state how often they "
            "happen; --preempted-every 180d is what AWS reported for its H100 nodes in 2025"
        )
    return notes


def _age_notes(request: Request, left_out: int) -> list[str]:
    """How many prices were too old, and that those of purchases are used whatever their age."""
    notes = list[str]()
    if left_out and request.price_days is None:
        rents = "1 rent" if left_out == 1 else f"{left_out} rents"
        notes.append(f"{rents} left out: more than {STALE_DAYS} days older than the newest")
    elif left_out:
        prices = "1 price" if left_out == 1 else f"{left_out} prices"
        notes.append(f"{prices} left out: more than {request.price_days:g} days older than the newest")
    if OWNED in request.price_terms and request.price_days is None:
        notes.append("purchase prices are few and used whatever their age; --price-age sets a limit for them too")
    return notes


def _optimum_notes(request: Request, model: LoadedModel) -> list[str]:
    """What the compute-optimal number of tokens rests on."""
    notes = [
        f"{count(request.tokens)} tokens are compute-optimal for {count(model.parameters)} parameters "
        "(Chinchilla: about 20 per parameter); models that will be served for long are trained on more"
    ]
    if model.spec.experts is not None:
        active = active_parameters(resolve(Job(model=model.spec)))
        notes.append(
            f"that rule was measured on dense models: by the {count(active)} parameters that a token passes it "
            f"would be {count(scaling.optimal_tokens(active))} tokens"
        )
    if request.terms.job.lora_rank:
        notes.append("that rule was measured on training all weights, not adapters")
    return notes
