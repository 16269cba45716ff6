"""What a search may vary beside the layout: the precision recipe, what is offloaded, the sequences of a step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from distsim import catalog
from distsim.engine.jobs.drives import goes_to, lowest_stage
from distsim.engine.jobs.graphs import OPEN, asked_kernels
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.software import framework_of
from distsim.engine.layouts.bounds import Bounds, doubling
from distsim.engine.layouts.recomputed import lists_of_modules
from distsim.errors import DistsimError
from distsim.other_choices import choice_meant
from distsim.specs.accelerator import Accelerator
from distsim.specs.flags import typed
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.layout import OFFLOADS
from distsim.specs.offloads import leaves

ALL = "all"
SEVERAL = 2
"""GPUs of a search that does not say how many."""
FIXED = ("tp", "pp", "cp", "ep", "etp", "dp", "vpp", "schedule", "zero", "zero_group", "sequence_parallel",
         "micro_batch", "recompute", "recompute_layers", "stage_layers")  # fmt: skip
"""Options of a job that a layout decides."""


READ_BEYOND_ONE = {"expert_imbalance": "ep", "expert_dispatcher": "ep", "cp_mode": "cp"}
"""Options of a job, and the degree that is one where nothing reads them."""


def unread(layout: Mapping[str, Any]) -> dict[str, None]:
    """Options of a job that a layout has no use for, open. Experts that are cut over tensor parallel ranks gather or
    exchange their tokens without expert parallelism, too."""
    alone = {option: None for option, degree in READ_BEYOND_ONE.items() if layout[degree] == 1}
    if (layout.get("etp") or 1) > 1:
        alone.pop("expert_dispatcher", None)
    return alone


def base_setup(job: Job, gpus: int, overrides: Mapping[str, Any] | None = None) -> Setup:
    """The setup whose layout is open: all on one rank, so that presets and options are checked."""
    framework: Framework = (overrides or {}).get("framework") or framework_of(job)
    lowest = lowest_stage(job, framework.supports)
    again = "full" if framework.supports.offload_layers == "checkpoints" else "none"  # as its default offloads them
    one = {
        **dict.fromkeys(FIXED), "tp": 1, "pp": 1, "cp": 1, "ep": 1, "vpp": 1, "zero": lowest,
        "micro_batch": 1, "recompute": again, "gpus": gpus, "global_batch": None,
    }  # fmt: skip
    base = resolve(job.model_copy(update={**one, **OPEN}), overrides)
    if job.expert_overlap is None:
        return base
    own = asked_kernels(job, base.framework, base.model, base.accelerator, base.precision)
    stated = base.job.model_copy(update={name: getattr(job, name) for name in OPEN})
    return replace(base, job=stated, kernels=base.kernels.model_copy(update=own))


def variants(
    job: Job, gpus: int, precisions: tuple[str, ...], offloads: tuple[str, ...], overrides: Mapping[str, Any],
    bounds: Bounds, refused: dict[str, list[str]] | None = None,
) -> Iterator[Setup]:  # fmt: skip
    """Open setups for each recipe, each kind of offloading and each list of modules that are computed again; the job's
    own where none are named. Of several those are left out that the rest of the job does not run with, ``refused`` by
    the reason; where it runs with none of them that is raised."""
    asked = list(itertools.product(precisions or (job.precision,), offloads or (job.offload,)))
    first: DistsimError | None = None
    opened = 0
    for precision, offload in asked:
        place = job.offload_to if not offloads or goes_to(offload, job.offload_to) else None
        part = job.offload_fraction if not offloads or "optimizer" in (offload or "") else None
        update = {"precision": precision, "offload": offload, "offload_to": place, "offload_fraction": part}
        try:
            found = list(_with_modules(job.model_copy(update=update), gpus, overrides, bounds))
        except DistsimError as error:
            if len(asked) == 1:
                raise
            first = first or error
            named = {"precision": precisions and precision, "offload": offloads and offload}
            if refused is not None:
                refused.setdefault(error.problem, []).append(typed({k: v for k, v in named.items() if v}))
            continue
        opened += len(found)
        yield from found
    if first is not None and not opened:
        raise first


def _with_modules(job: Job, gpus: int, overrides: Mapping[str, Any], bounds: Bounds) -> Iterator[Setup]:
    """Open setups of a job for each list of modules that are computed again."""
    base = base_setup(job, gpus, overrides)
    for modules in lists_of_modules(base, bounds):
        own = modules == job.recompute_modules
        yield base if own else base_setup(job.model_copy(update={"recompute_modules": modules}), gpus, overrides)


def with_batch(base: Setup, batch: int) -> Setup:
    """The setup with ``batch`` sequences per step."""
    return replace(base, job=base.job.model_copy(update={"global_batch": batch}))


def parse_precisions(text: str, job: Job) -> tuple[str, ...]:
    """``bf16,fp8``, or ``all`` that the accelerator has units for and that are not other software's own."""
    names = _words("precision", text, "bf16,fp8")
    if names == [ALL]:
        base = base_setup(job.model_copy(update={"precision": None}), 1)
        others = _of_others(base.framework)
        return tuple(
            name for name in catalog.names("precisions") if name not in others and runs_on(name, base.accelerator)
        )
    return tuple(dict.fromkeys(catalog.load("precisions", name).name for name in names))


def _of_others(framework: Framework) -> set[str]:
    """Recipes that only software of other families says it runs, such as fsdp-pure or jax-int8. What is based on other
    software of the family speaks for itself alone."""
    own: set[str] = set()
    others: set[str] = set()
    for name in catalog.names("frameworks"):
        one: Framework = catalog.load("frameworks", name)
        listed = [value for recipe in one.recipes for value in (*recipe.precisions, *recipe.replayed.values())]
        said = {*filter(lambda value: isinstance(value, str), one.usual.values()), *listed, *one.usual_whole.values()}
        if one.family != framework.family:
            others.update(said)
        elif not one.based_on or one.name == framework.name:
            own.update(said)
    return {name for name in others - own if "-" in name}  # plain formats are anybody's


def runs_on(precision: str, chip: Accelerator) -> bool:
    """Whether a datasheet states the rates that a recipe's products need."""
    recipe = catalog.load("precisions", precision)
    wide = "fp32" if recipe.activation_bytes > 2 else "fp16" if recipe.math == "fp16" else "bf16"
    return all(getattr(chip.peak, name, None) for name in {recipe.math, wide, recipe.needs or wide})


def parse_offloads(text: str, job: Job) -> tuple[str, ...]:
    """``none,optimizer,optimizer+activations`` (a plus joins what leaves the GPU together), or ``all``."""
    words = _words("offload", text, "none,optimizer,optimizer+activations")
    if words == [ALL]:
        able = framework_of(job).supports
        some = [kinds for count in range(1, len(OFFLOADS) + 1) for kinds in itertools.combinations(OFFLOADS, count)]
        return ("none", *(",".join(kinds) for kinds in some if leaves(able, kinds, job.gpus or SEVERAL)))
    found = []
    for word in words:
        parts = [part.strip() for part in word.split("+")]
        unknown = [part for part in parts if part not in (*OFFLOADS, "none")]
        if unknown or ("none" in parts and len(parts) > 1):
            wrong = unknown[0] if unknown else word
            raise DistsimError(
                f"--offload {text}: {wrong!r} is not a valid choice", choice_meant(wrong, (*OFFLOADS, "none", ALL)),
                f"choices: none, {', '.join(OFFLOADS)}, all; + joins what is offloaded together",
            )  # fmt: skip
        found.append(",".join(name for name in (*OFFLOADS, "none") if name in parts))
    return tuple(dict.fromkeys(found))


def parse_batches(text: str, job: Job) -> tuple[int, ...]:
    """``512``, ``256,384``, or a range that doubles, its end included: ``512..2048``."""
    return tuple(sorted(doubling("global_batch", text)))


PARSERS: dict[str, Callable[[str, Job], tuple[Any, ...]]] = {
    "global_batch": parse_batches, "precision": parse_precisions, "offload": parse_offloads,
}  # fmt: skip


def _words(name: str, text: str, example: str) -> list[str]:
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words:
        raise DistsimError(f"--{name} {text!r} names no value", f"write e.g. --{name} {example}")
    return list(dict.fromkeys(words))
