"""A plan from its options as somebody states them: on the command line, or as keywords of a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim import catalog
from distsim.engine.jobs.models import load_model
from distsim.engine.layouts.bounds import as_text, gpu_counts, parse_bounds
from distsim.engine.planner import Plan, Request, make_plan, sequence_of, step_batch, tokens_for
from distsim.engine.plans.besides import USUAL_KEPT
from distsim.engine.plans.candidates import Terms
from distsim.engine.plans.goodput import Policy
from distsim.engine.plans.options import BOUNDED, DEFAULTS, JOB, NUMBERS
from distsim.engine.plans.pace import campaign_pace
from distsim.engine.plans.plan import Wish
from distsim.engine.plans.prices import STALE_DAYS, terms_of
from distsim.errors import DistsimError, did_you_mean
from distsim.specs.job import Job
from distsim.specs.model import Model
from distsim.units import DAY, HOUR, MINUTE, parse, parse_share, parse_time

MOST_KEPT = 1_000_000


def plan(model: str | Model, tokens: Any = None, **options: Any) -> Plan:
    """What to rent or buy to train ``model`` on ``tokens``, as ``distsim plan`` finds it; ``options`` are that
    command's, with underscores.

    What takes several values takes a list or the command line's text: ``gpu=["h100-sxm", "h200-sxm"]``,
    ``gpus="64..512"``. Numbers are SI (seconds, tokens, dollars), texts have units: ``deadline="30d"``,
    ``budget="5M"``. Raises DistsimError for what does not exist or contradicts itself; that no option keeps to the
    limits is an answer (``cheapest`` is None, ``nearest`` has those that miss by least).
    """
    unknown = sorted(options.keys() - DEFAULTS.keys())
    if unknown:
        raise DistsimError(f"a plan has no option {unknown[0]}", did_you_mean(unknown[0], DEFAULTS))
    for name, kinds in NUMBERS.items():
        value = options.get(name)
        if value is not None and (not isinstance(value, kinds) or value < 0):
            whole = "whole " * (kinds is int)
            raise DistsimError(f"{name} {value!r} is no {whole}number", "give 0 or more, or leave it out")
    return make_plan(request_of({**DEFAULTS, **options, "model": model, "tokens": tokens}))


def request_of(given: Mapping[str, Any]) -> Request:
    """The request from all options of a plan."""
    stated = {name: given[name] for name in JOB if given[name] is not None}
    job = Job.read({"model": given["model"], **stated})
    model = load_model(job.model)
    if job.seq is None:
        job = job.model_copy(update={"seq": sequence_of(model)})
    days, dollars = _quantity(given, "deadline", "s"), _quantity(given, "budget", "USD")
    age = _quantity(given, "price_age", "s")
    if age is not None and age <= 0:
        raise DistsimError(f"--price-age {given['price_age']} leaves no price", "give more than 0, e.g. 6months")
    tokens = tokens_for(_quantity(given, "tokens", "tokens"), given["compute_optimal"], model)
    rates = catalog.load("failures", given["failures"])
    planned = rates.planned / (rates.window / DAY) if rates.planned and rates.window else 0.0
    return Request(
        Terms(
            job, step_batch(given["global_batch"], job, model, tokens), rates,
            catalog.load("storage", given["storage"]), _policy(given, planned),
            parse_bounds({name: as_text(given[name]) for name in BOUNDED}, []),
            parse_share(given["margin"], "margin", "of the memory"), tokens,
        ),
        tokens, Wish(None if days is None else days / DAY, dollars),
        catalog.load("facilities", given["facility"]), terms_of(given["price"]), _words(given["gpu"]),
        _words(given["cluster"]), _sizes(given["gpus"]), _words(given["provider"]), given["compute_optimal"],
        _kept(given["keep"]), STALE_DAYS if age is None else age / DAY,
    )  # fmt: skip


def _kept(stated: int | None) -> int:
    if stated is not None and not 0 <= stated <= MOST_KEPT:
        raise DistsimError(f"--keep {stated} is out of range", f"valid: 0 to {MOST_KEPT:,}")
    return USUAL_KEPT if stated is None else stated


def _quantity(given: Mapping[str, Any], name: str, unit: str) -> float | None:
    text, option = given[name], f"--{name.replace('_', '-')}"
    if text is None:
        return None
    return parse_time(text, option) if unit == "s" else parse(text, unit, option)


def _policy(given: Mapping[str, Any], pauses_per_day: float) -> Policy:
    """How the campaign guards itself, and what else slows it."""
    every = _quantity(given, "preempted_every", "s")
    if every is not None and "spot" not in terms_of(given["price"]):
        raise DistsimError("--preempted-every is about spot machines", "add --price spot, or leave it out")
    if every is not None and every < MINUTE:
        raise DistsimError(f"--preempted-every {given['preempted_every']} leaves no time to train", "e.g. 10d")
    pause = _quantity(given, "maintenance_every", "s")
    if pause is not None and pause < HOUR:
        problem = f"--maintenance-every {given['maintenance_every']}: planned pauses are at least an hour apart"
        raise DistsimError(problem, "write e.g. 7d")
    if pause is not None:
        pauses_per_day = DAY / pause
    spread = parse_share(given["stragglers"], "stragglers", "of the mean speed")
    return Policy(
        asynchronous=not given["blocking_checkpoints"], interval_seconds=_quantity(given, "checkpoint_every", "s"),
        spares=given["spares"], pauses_per_day=pauses_per_day, straggler_spread=spread,
        node_preempted_every=every, pace=campaign_pace() if given["pace"] is None else given["pace"],
    )  # fmt: skip


def _words(names: Any) -> tuple[str, ...]:
    return tuple(word.strip() for word in (as_text(names) or "").split(",") if word.strip())


def _sizes(numbers: Any) -> tuple[int, ...]:
    text = as_text(numbers)
    return gpu_counts(text) if text is not None else ()
