"""``distsim.search``: a search from its options as somebody states them, as keywords of a program or command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distsim.engine.jobs.drives import goes_to
from distsim.engine.layouts import variants
from distsim.engine.layouts.bounds import doubling, parse_bounds
from distsim.engine.layouts.money import Wish, wish_for
from distsim.engine.layouts.report import Request, SearchReport
from distsim.engine.layouts.search import search as run
from distsim.engine.layouts.searchable import BOUNDED, FIXED, VARIED
from distsim.errors import DistsimError
from distsim.keywords import as_text, refuse_unknown, switch, whole, word
from distsim.specs.flags import flag
from distsim.specs.job import Job
from distsim.specs.modules import IMPLIED
from distsim.specs.named import Named, job_of
from distsim.units import HOUR, YEAR, parse, parse_share, parse_time

MOST_RANKED = 1000
"""Layouts that may be asked for by rank: each is computed again by itself, in some milliseconds."""
KEYWORDS = ("objective", "within", "tokens", "deadline", "margin", "exclude", "top", "all_ranks", "price", "provider")
"""A search's own options."""


def search(
    job: Job | Named | None = None, /, *, objective: str = "throughput", within: Any = None, tokens: Any = None,
    deadline: Any = None, margin: Any = None, exclude: str | Sequence[str] | None = None, top: int = 10,
    all_ranks: bool = False, price: Any = None, provider: Any = None, **options: Any,
) -> SearchReport:  # fmt: skip
    """The best layouts of a model on a number of GPUs, as ``distsim search`` finds them (docs/search.md).

    ``job`` is a model with job options as keywords, or a whole Job, whose degrees then are the only ones that are
    tried. What bounds the search takes one value, several or a range: ``tp=8``, ``tp=[1, 2, 4]``, ``tp="1..8"``.
    Numbers are SI (seconds, tokens, a share for ``margin``), texts have units: ``within="20s"``, ``deadline="30d"``; a
    bare ``deadline=30`` would be 30 seconds and is refused.
    Raises DistsimError for what does not exist, contradicts itself or allows no layout at all; that none fits is an
    answer (``best`` is empty, ``nearest`` is not).
    """
    refuse_unknown("a search", options, {*Job.model_fields, *KEYWORDS})
    options = {name: value for name, value in options.items() if value is not None}
    limits = {name: as_text(name, options.pop(name)) for name in BOUNDED if name in options}
    stated = job if isinstance(job, Job) and not options else job_of(job, options)
    if other := unsearched(stated):
        raise DistsimError(f"a search does not take {', '.join(other)}", "leave it out; distsim.step takes it")
    if (ranked := whole("top", top)) > MOST_RANKED:
        raise DistsimError(f"top {ranked} is out of range", f"valid: 1 to {MOST_RANKED}")
    several = isinstance(exclude, (list, tuple))
    left_out = [word("exclude", one) for one in (() if exclude is None else exclude if several else (exclude,))]
    request = request_of(stated, limits, objective=word("objective", objective), within=within, margin=margin,
                         exclude=left_out)  # fmt: skip
    wish = price_wish(*(None if one is None else as_text("price", one) for one in (price, provider)))
    request = replace(request, top=ranked, all_ranks=switch("all_ranks", all_ranks), price=wish)
    return run(training(request, tokens, deadline))


def unsearched(job: Job) -> list[str]:
    """Options that a job states and a search does not have."""
    named = sorted(job.model_fields_set - {"model", *FIXED, *BOUNDED})
    return [name for name in named if getattr(job, name) is not None]


def request_of(
    job: Job, limits: Mapping[str, str | None], *, objective: str = "throughput", within: Any = None,
    margin: Any = None, exclude: Sequence[str] = (),
) -> Request:  # fmt: skip
    """The request for a job, with ``limits`` on its bounded options as texts; what it states itself bounds them
    too."""
    bounds = {name: limits.get(name) for name in BOUNDED}
    for name in BOUNDED:
        value = getattr(job, name)
        if bounds[name] is None and value is not None:
            # what a job moves together; a comma here means either
            bounds[name] = value.replace(",", "+") if name == "offload" else as_text(name, value)
    _refuse_other_recomputation(job, bounds["recompute"])
    gpus = bounds.pop("gpus")
    job, tried = _tried(job, {name: bounds.pop(name) for name in VARIED})
    _refuse_other_offloading(job, tried.get("offloads", ()))
    parsed = parse_bounds(bounds, list(exclude))
    plain = Request(job, _gpus(gpus, job), parsed, objective, parse_share(margin, "margin", "of the memory"),
                    _longest_step(within))  # fmt: skip
    return replace(plain, **tried)


def _refuse_other_recomputation(job: Job, kinds: str | None) -> None:
    """Raise where a search is to try layouts without the recomputation that its job names by modules or a policy."""
    for option in ("recompute_modules", "remat_policy"):
        named = getattr(job, option)
        if named and kinds not in (None, IMPLIED[option][1]):
            raise DistsimError(
                f"{flag(option)} {named} is for selective recomputation, but --recompute is {kinds}",
                f"leave one out, or search twice: with {flag(option)}, and with --recompute {kinds}",
            )


def _refuse_other_offloading(job: Job, kinds: Sequence[str]) -> None:
    """Raise where no layout of a search offloads activations, of which its job names the modules."""
    needed = IMPLIED["offload_modules"][1]
    if job.offload_modules and not any(needed in kind.split(",") for kind in kinds):
        raise DistsimError(
            f"--offload-modules {job.offload_modules} has no effect: --offload has no {needed}",
            f"leave it out, or let --offload move {needed} too, e.g. none,{needed}",
        )


def _longest_step(within: Any) -> float:
    """Seconds that a step may take."""
    if within is None:
        return float("inf")
    seconds = parse_time(within, "--within", ("s", "ms"))
    if seconds <= 0:
        raise DistsimError(f"--within {within} leaves no time", "write e.g. --within 20s")
    if seconds > YEAR:
        raise DistsimError(f"--within {within} is more than a year for one step", "write e.g. --within 20s")
    return seconds


def _tried(job: Job, texts: Mapping[str, str | None]) -> tuple[Job, dict[str, Any]]:
    """Batches, recipes and kinds of offloading to try, and the job with the first of each."""
    first: dict[str, Any] = dict.fromkeys(VARIED)
    tried: dict[str, Any] = {}
    for name, text in texts.items():
        if text is not None:
            found = variants.PARSERS[name](text, job)
            first[name], tried[VARIED[name]] = found[0], found
    if job.offload_to:  # one that goes there, if any does
        there = (one for one in tried.get("offloads", ()) if goes_to(one, job.offload_to))
        first["offload"] = next(there, first["offload"])
    if job.offload_fraction:
        parted = (one for one in tried.get("offloads", ()) if "optimizer" in one)
        first["offload"] = next(parted, first["offload"])
    return job.model_copy(update=first), tried


def _gpus(text: str | None, job: Job) -> tuple[int, ...]:
    """Numbers of GPUs as asked for, or those of one node."""
    if text is None:
        return (int(variants.base_setup(job, 1).cluster.gpus_per_node),)
    return tuple(sorted(doubling("gpus", text)))


def price_wish(price: str | None, provider: str | None) -> Wish | None:
    """Whose prices are asked for; None where none are."""
    if price is not None and not price.strip():
        raise DistsimError("--price is empty", "name a term such as on-demand, or USD per GPU-hour")
    names = [name.strip() for name in (provider or "").split(",") if name.strip()]
    if provider is not None and not names:
        raise DistsimError(f"--provider {provider!r} names no price list", "see: distsim show prices")
    return None if price is None and provider is None else wish_for(price, names)


def training(request: Request, tokens: Any, deadline: Any) -> Request:
    """How much is to be trained, and in which time."""
    if tokens is None:
        if deadline is not None:
            raise DistsimError(f"--deadline {deadline} needs a number of tokens", "add e.g. --tokens 300B")
        return request
    made = {"tokens": parse(tokens, "tokens", "--tokens")}
    if deadline is not None:
        made["deadline"] = parse_time(deadline, "--deadline", usual=HOUR)
    for name, value in made.items():
        if value <= 0:
            raise DistsimError(f"--{name} must be more than 0", "write e.g. --tokens 300B --deadline 30d")
    return replace(request, tokens=made["tokens"], deadline=made.get("deadline", request.deadline))
