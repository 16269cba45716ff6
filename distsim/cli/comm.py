"""``distsim comm``: what crosses which link in one optimizer step, or the price of one collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from distsim.cli.options import job_command, with_places
from distsim.errors import DistsimError
from distsim.report import talk
from distsim.report.style import style
from distsim.specs.flags import flag

if TYPE_CHECKING:
    from distsim.engine.traffic import TrafficReport

NO_ARGS_IS_HELP = False


@job_command
def comm(
    job: Any,
    origins: dict[str, str],
    stated: dict[str, Any],
    collective: Annotated[
        str | None, typer.Option("--collective", help="price one collective instead of a model's step, e.g. all_reduce")
    ] = None,
    bytes: Annotated[
        str | None, typer.Option("--bytes", help="with --collective: largest message size, e.g. 1GB")
    ] = None,
    sweep_from: Annotated[
        str | None, typer.Option("--from", help="with --collective: first size of the sweep", show_default=False)
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", help="with --collective: GPUs per node")
    ] = None,
    gbps: Annotated[
        float | None, typer.Option("--internode-gbps-per-gpu", help="with --collective: network rate per GPU in Gb/s")
    ] = None,
    network: Annotated[str | None, typer.Option("--network", help="with --collective: link class, e.g. ib-ndr")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON (bytes and seconds) instead of tables")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="print every figure with its formula, numbers and source")
    ] = False,
) -> None:
    """Show what crosses which link in one optimizer step: every kind of collective with its bytes, link and time.

    With --collective and no MODEL, price that one collective over a range of sizes, as nccl-tests measures it.

    Example: distsim comm llama-7b --gpus 16 --zero 3

    Example: distsim comm --collective all_reduce --bytes 1GB --cluster dgx-h100 --gpus 16
    """
    single = {"bytes": bytes, "sweep_from": sweep_from, "gpus_per_node": gpus_per_node,
              "internode_gbps_per_gpu": gbps, "network": network}  # fmt: skip
    if collective is not None:
        return _one(collective, stated, single, json, explain)
    _refuse(single)
    return _step(job, origins, json, explain)


def _one(op: str, stated: dict[str, Any], single: dict[str, Any], json: bool, explain: bool) -> None:
    from distsim.cli.collective import price_collective

    place = {name: stated.pop(name, None) for name in ("gpu", "gpus", "cluster", "profile")}
    left = ["MODEL" if name == "model" else flag(name, value) for name, value in stated.items()
            if value is not None]  # fmt: skip
    if left:
        raise DistsimError(f"--collective prices one collective and takes no {', '.join(left)}", "leave them out")
    merged, _ = with_places(place)
    place = {name: merged.get(name) for name in place}
    size, sweep_from = single.pop("bytes"), single.pop("sweep_from")
    price_collective(op, size, sweep_from, json, explain, **place, **single)


def _refuse(single: dict[str, Any]) -> None:
    flags = {"sweep_from": "--from"}
    stated = [flags.get(name, flag(name)) for name, value in single.items() if value is not None]
    if stated:
        raise DistsimError(
            f"{', '.join(stated)}: only valid with --collective", "e.g. --collective all_reduce --bytes 1GB"
        )


def _step(job: Any, origins: dict[str, str], json: bool, explain: bool) -> None:
    from distsim.engine.jobs.resolve import resolve
    from distsim.engine.traffic import comm_of

    report = comm_of(resolve(job))
    for note in report.notes:
        talk.note(note)
    if json:
        _print_json(report, explain)
    elif explain:
        _print_explained(report, origins)
    else:
        _print_tables(report)


def _print_json(report: TrafficReport, explain: bool) -> None:
    import json

    answer = report.to_dict()
    if explain:
        from distsim.report.comm_explain import as_data

        answer["figures"] = as_data(report)
    typer.echo(json.dumps(answer, indent=1))


def _print_explained(report: TrafficReport, origins: dict[str, str]) -> None:
    from distsim.report.comm_explain import lines
    from distsim.report.explain import wrapped
    from distsim.report.options import option_lines

    term = style()
    for line in [*lines(report, term), "", *option_lines(report.setup, origins)]:
        for part in wrapped(term.plain(line)):
            typer.echo(part, color=True)


def _print_tables(report: TrafficReport) -> None:
    from distsim.engine.traffic_compare import sync_cost, zero_traffic
    from distsim.report.comm import lines

    layout = report.setup.layout
    zero = zero_traffic(report) if layout.dp * layout.cp > 1 else []
    for line in lines(report, zero, sync_cost(report), style()):
        typer.echo(line, color=True)
