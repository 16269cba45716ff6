"""What ``distsim plan`` was asked, in words: the run, its limits, what it trains with, and what it is reckoned with."""

from __future__ import annotations

from distsim.engine.jobs.models import LoadedModel
from distsim.engine.jobs.resolve import Setup
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.report.job_words import image_words, kernel_words, offload_words, trained_words
from distsim.report.plan_words import within
from distsim.report.prose import either
from distsim.report.style import Style
from distsim.units import count, dollars, least_to_most


def question(made: Plan, term: Style) -> list[str]:
    """The run with its limits, and the presets that it is reckoned with."""
    wish, terms = made.request.wish, made.request.terms
    limits = [] if wish.days is None else [within(wish)]
    limits += [] if wish.dollars is None else [f"for at most {dollars(wish.dollars)}"]
    batches = _batches(made)
    setups = _setups(made)
    seen = LoadedModel(setups[0].model) if setups[0].model.shown_tower else made.model
    size, amount = count(seen.parameters), count(made.request.tokens)
    recipes = either([*dict.fromkeys(one.precision.name for one in setups)])
    words = [recipes, setups[0].optimizer.name, *kernel_words(setups[0]), *offload_words(setups[0])]
    return [
        f"{term.bold(made.model.name)}: {size} parameters, {amount} tokens, "
        f"{batches} sequence{'' if batches == '1' else 's'} of {setups[0].layout.seq:,} tokens"
        f"{image_words(setups[0])} per step, "
        f"{', '.join(words)}{', ' if limits else ''}{' and '.join(limits)}"
        f"{''.join(f'; {words}' for words in trained_words(setups[0]))}",
        f"{_prices(made)}; failures {terms.failures.name}; "
        f"checkpoints to storage {terms.storage.name}; "
        f"facility {made.request.facility.name} (PUE {made.request.facility.pue:g})"
        + ("" if terms.job.gpu_power is None else f"; accelerators limited to {terms.job.gpu_power:g} W"),
    ]


def _prices(made: Plan) -> str:
    """At which terms, or at which rate of one's own."""
    rate = made.request.own_rate
    return f"prices {', '.join(made.request.price_terms)}" if rate is None else f"price ${rate:,.2f} per GPU-hour"


def _setups(made: Plan) -> list[Setup]:
    """The job of an option of each software, whose recipes may differ."""
    by_software: dict[str, Option] = {}
    for option in made.options:
        by_software.setdefault(option.candidate.framework, option)
    return [made.setup(option) for option in by_software.values()]


def _batches(made: Plan) -> str:
    """Sequences per step; of options that differ in it, the least and the most."""
    return least_to_most([one.candidate.global_batch or 0 for one in made.options])


def software(made: Plan, option: Option) -> str:
    """Framework, recipe and optimizer of an option."""
    setup = made.setup(option)
    return ", ".join((setup.framework.name, setup.precision.name, setup.optimizer.name))
