"""``distsim plan``: what to rent or buy for a training run, for how long, at what price, with failures counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from distsim.cli.options import MODEL_HELP
from distsim.cli.plan_request import complete, request_of, with_layouts
from distsim.cli.signatures import option
from distsim.cli.workers import UsualJobs, processes
from distsim.errors import DistsimError
from distsim.report import talk
from distsim.report.style import style

if TYPE_CHECKING:
    from distsim.engine.plans.planner import Plan
    from distsim.engine.plans.request import Request

NO_ARGS_IS_HELP = True
Text = str | None
ENOUGH_CLUSTERS = 12
"""Clusters from which on several processes are quicker than one: a cluster takes about 0.1 s, a process half a second
to start. Measured."""


def _flag(flag: str, text: str) -> Any:
    return typer.Option(flag, help=text)


Failures = Annotated[
    str, option("--failures", "failure rates (distsim show failures) [default: the preset named default]")
]
Storage = Annotated[
    str, option("--storage", "where checkpoints go (distsim show storage) [default: the preset named default]")
]
Facility = Annotated[
    str, option("--facility", "PUE, power price, grid (distsim show facilities) [default: the preset named default]")
]

Tokens = Annotated[Text, option("--tokens", "tokens to train on, e.g. 2T or 300B")]
Deadline = Annotated[Text, option("--deadline", "longest time the run may take, e.g. 30d")]
Budget = Annotated[Text, option("--budget", "most it may cost in US dollars, e.g. 5M; reservations count in full")]
Gpu = Annotated[Text, option("--gpu", "accelerators to try, e.g. h100-sxm,h200-sxm [default: all GPUs]")]
Gpus = Annotated[
    Text, option("--gpus", "how many: 512,1024; 64..512 doubles up to its end [default: sized for the deadline]")
]
Cluster = Annotated[Text, option("--cluster", "clusters to try, instead of --gpu")]
Provider = Annotated[Text, option("--provider", "price lists to use: names or TOML files [default: all]")]
PriceAge = Annotated[
    Text, option("--price-age", "how much older than the newest price others may be [default: 1y, for rents only]")
]
Batch = Annotated[int | None, option("--global-batch", "sequences per step [default: grows with the cluster]")]
Seed = Annotated[int, _flag("--seed", "seed of the simulated campaigns")]
Top = Annotated[int, _flag("--top", "how many options to list")]
Report = Annotated[Text, option("--report", "also write the plan as one HTML page to this file")]
Json = Annotated[bool, _flag("--json", "print JSON instead of tables")]
Csv = Annotated[bool, _flag("--csv", "print the options as CSV instead of tables")]
Model = Annotated[Text, typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=False)]
Price = Annotated[
    str,
    _flag(
        "--price",
        "on-demand, spot, reserved-1y, reserved-3y, reserved, owned; several with commas, or all; or your own USD per "
        "GPU-hour for what --gpu or --cluster names",
    ),
]
Optimal = Annotated[bool, _flag("--compute-optimal", "as many tokens as Chinchilla's rule gives, instead of --tokens")]
Confidence = Annotated[
    Text, option("--confidence", "share of an option's runs that must keep to --deadline, e.g. 80% [default: 50%]")
]
Explain = Annotated[
    bool, _flag("--explain", "also print the terms of goodput, energy and ownership with their sources")
]
Blocking = Annotated[bool, _flag("--blocking-checkpoints", "training waits while a checkpoint is written")]


@with_layouts
def plan(
    stated: dict[str, Any], model: Model = None, tokens: Tokens = None, compute_optimal: Optimal = False,
    deadline: Deadline = None, confidence: Confidence = None, budget: Budget = None, gpu: Gpu = None,
    gpus: Gpus = None, cluster: Cluster = None, provider: Provider = None, price: Price = "on-demand",
    price_age: PriceAge = None, global_batch: Batch = None, failures: Failures = "default",
    storage: Storage = "default", facility: Facility = "default", blocking_checkpoints: Blocking = False,
    seed: Seed = 0, jobs: UsualJobs = None, top: Top = 12, explain: Explain = False, report: Report = None,
    json: Json = False, csv: Csv = False,
) -> None:  # fmt: skip
    """Show which GPUs to rent or buy for a training run, from whom, for how long, and what they cost and consume.

    Exit code 0: an option meets deadline and budget; 1: none does (the nearest are shown); 2: wrong input.

    Example: distsim plan llama-2-70b --tokens 2T --deadline 30d --gpu h100-sxm
    """
    given = {**locals(), **stated}
    from distsim.cli import plan_report

    _check(json and csv, top, seed)
    file = plan_report.check(report)
    given = complete(given)
    made = _made(request_of(given), jobs)
    if file is not None and made.options:
        plan_report.write(file, made, plan, given)
    if json:
        _print_json(made, seed)
    elif csv:
        _print_csv(made)
    elif made.options:
        _print(made, seed, top, explain)
    if made.cheapest is None:
        raise typer.Exit(1)


def _made(request: Request, jobs: int | None) -> Plan:
    """The plan, its notes told; that there is none at all is an answer, not a mistake."""
    from distsim.cli.progress import Progress
    from distsim.engine.plans.planner import make_plan

    progress = Progress("clusters")
    try:
        with processes(jobs, ENOUGH_CLUSTERS) as workers:
            made = make_plan(request, progress.show, workers)
    finally:
        progress.clear()
    for note in made.notes:
        talk.note(note)
    if made.infeasible is not None:
        talk.error(made.infeasible.text())
    return made


def _check(both: bool, top: int, seed: int) -> None:
    if both:
        raise DistsimError("--json and --csv are both given", "keep one of them")
    if not 1 <= top <= 10_000:
        raise DistsimError(f"--top {top} is out of range", "valid: 1 to 10,000")
    if seed < 0:
        raise DistsimError(f"--seed {seed} is negative", "give 0 or more")


def _print_json(made: Plan, seed: int) -> None:
    import json

    answer, campaigns = made.to_dict(), made.campaigns(seed)
    if made.chosen is not None and campaigns is not None:
        saving = made.saving(made.chosen)
        answer |= {"campaigns": campaigns, "saving": None if saving is None else saving.to_dict()}
    typer.echo(json.dumps(answer, indent=1))


def _print_csv(made: Plan) -> None:
    from distsim.report.plan import csv_lines

    for line in csv_lines(made):
        typer.echo(line)


def _print(made: Plan, seed: int, top: int, explain: bool) -> None:
    import datetime

    from distsim.report.plan import explained, lines

    term = style()
    told = lines(made, seed, top, datetime.date.today(), term)
    if explain:
        told += ["", *explained(made, term)]
    for line in told:
        typer.echo(line, color=True)
