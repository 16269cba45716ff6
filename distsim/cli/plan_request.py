"""What ``distsim plan`` was asked, from options as typed; and the options of layouts, which bound its search."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distsim.cli.job_options import JOB_OPTIONS
from distsim.cli.options import JOB_FILE, as_typed, refuse_others, unnamed, with_places
from distsim.cli.pinned import tell_pinned
from distsim.cli.signatures import splitting
from distsim.engine.plans.options import JOB as OF_JOB
from distsim.errors import DistsimError
from distsim.specs.flags import flag, switch

if TYPE_CHECKING:
    from distsim.engine.plans.request import Request

MEMORY = {"margin": (str, "share of memory to keep free, 0.05 or 5% [default: none]")}
STORED = {"keep": (int, "checkpoints kept in storage [default: 10]")}
BOUNDED = {
    "tp": "tensor parallel degrees to try: 8, 1..8 or 1,2,4 [default: 1..8]",
    "pp": "pipeline stages to try [default: 1..16]",
    "vpp": "model chunks per stage to try [default: 1,2,4,8]",
    "cp": "context parallel degrees to try [default: 1, or 1..16 beyond 8,192 tokens]",
    "ep": "expert parallel degrees to try",
    "etp": "expert tensor parallel degrees to try",
    "zero": "ZeRO stages to try [default: the framework's usual one]",
    "zero_group": "sharding group sizes to try",
    "micro_batch": "micro-batches to try [default: 1,2,4,8,16; larger ones for short sequences]",
    "recompute": "recomputation to try: none,selective,modules (cheap ones of experts),full",
    "recompute_layers": "numbers of layers per stage to try under full recomputation",
    "schedule": "pipeline schedules to try, or all [default: 1f1b, interleaved-1f1b]",
    "sequence_parallel": "sequence parallelism to try: on,off [default: as the framework does]",
}
UNLIKE = {"seq": (int, "tokens per sequence [default: the model's context, at most 8192]")}
"""Job options that a plan fills otherwise than one job does."""
JOB = {name: UNLIKE.get(name, JOB_OPTIONS[name]) for name in OF_JOB}


LOSSES = {
    "checkpoint_every": (str, "time between checkpoints, e.g. 30min [default: Daly's optimum]"),
    "spares": (int, "spare nodes, not billed [default: enough that they hardly ever run out]"),
    "stragglers": (
        str,
        "spread of GPU speeds, e.g. 2%, on top of the usual one in step times: the slowest GPU sets the pace",
    ),
    "pace": (float, "step time of the campaign over that of a benchmark [default: as in published campaigns]"),
    "preempted_every": (str, "mean time until a spot node is taken away, e.g. 10d"),
    "maintenance_every": (str, "time from one planned pause to the next, e.g. 7d [default: from the failures preset]"),
}


def _parameter(name: str, kind: Any, text: str) -> inspect.Parameter:
    option = typer.Option(switch(name) if kind is bool else flag(name), help=text, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def with_layouts(function: Callable[..., None]) -> Callable[..., None]:
    """Give ``function(stated, **own)`` the options of losses, job and layout too; ``stated`` holds theirs."""
    options = {**LOSSES, **JOB, **MEMORY, **STORED}
    job = [_parameter(name, kind, text) for name, (kind, text) in options.items()]
    bounds = [_parameter(name, str, text) for name, text in BOUNDED.items()]
    return splitting(function, "stated", lambda own: [*own, *job, *bounds, JOB_FILE])


TAKEN = {name: kind for name, (kind, _) in JOB.items()} | dict.fromkeys(BOUNDED, str) | {
    "gpu": str, "gpus": str, "cluster": str, "global_batch": int,
}  # fmt: skip
"""Job options that a plan takes, as it reads them."""


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """Options as typed, and under them those that stay, of which a plan takes what it can."""
    from distsim.keywords import as_text
    from distsim.specs.job import Job

    typed = {name: given[name] for name in ("model", *TAKEN)}
    merged, origins = with_places(typed, given["job"])
    if "model" not in merged:
        raise unnamed()
    under = {name: value for name, value in merged.items() if typed.get(name) is None}
    Job.read({"model": merged["model"], **under})
    tell_pinned(origins, BOUNDED)
    refuse_others({name: origins[name] for name in sorted(under.keys() - typed.keys())}, "plan")
    under = {name: value for name, value in under.items() if name in TAKEN}
    plain = (int, bool)
    under = {name: value if TAKEN[name] in plain else as_text(name, value) for name, value in under.items()}
    return given | under | {"model": merged["model"], "job": None}


def request_of(given: dict[str, Any]) -> Request:
    """The request from options as typed."""
    from distsim.engine.planner import request_of as made

    try:
        return made(given)
    except DistsimError as error:
        raise as_typed(error, given) from None
