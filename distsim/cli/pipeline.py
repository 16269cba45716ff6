"""``distsim pipeline``: draws a pipeline schedule and tells its bubble, memory and makespan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distsim.errors import DistsimError

NO_ARGS_IS_HELP = True


def pipeline(
    stages: Annotated[int | None, typer.Option(help="stages (devices in a row)")] = None,
    micro: Annotated[int | None, typer.Option(help="micro-batches, of both directions together")] = None,
    schedule: Annotated[str | None, typer.Option(help="schedule's name, see --list [default: 1f1b]")] = None,
    chunks: Annotated[int | None, typer.Option(help="model chunks per stage")] = None,
    forward: Annotated[str | None, typer.Option(help="time of a forward: one number, or per stage or chunk: 1,1,2")] = None,
    backward: Annotated[str | None, typer.Option(help="time of a full backward [default: sum of its halves]")] = None,
    input_gradient: Annotated[str | None, typer.Option(help="time of a backward's first half [default: 1]")] = None,
    weight_gradient: Annotated[str | None, typer.Option(help="time of a backward's second half [default: 1]")] = None,
    hop: Annotated[str | None, typer.Option(help="delay of a transfer, one number or per link [default: 0]")] = None,
    p2p: Annotated[str, typer.Option(help="async: pure delay; rendezvous: both ends must have posted")] = "async",
    blocking: Annotated[bool, typer.Option("--blocking", help="a sender computes nothing while it sends")] = False,
    contention: Annotated[bool, typer.Option("--contention", help="a link carries one transfer per direction")] = False,
    order: Annotated[Path | None, typer.Option(help="file with a line of actions per stage, not a schedule")] = None,
    placement: Annotated[str | None, typer.Option(help="with --order: the stage of each chunk, e.g. 0,1,1,0")] = None,
    chains: Annotated[str | None, typer.Option(help="with --order: chains of chunks, e.g. 0,1,2,3;4,5,6,7")] = None,
    fused: Annotated[str | None, typer.Option(help="fused pairs give results at their end (atomic) or singly (split)")] = None,
    fused_time: Annotated[str | None, typer.Option(help="time of a fused pair [default: forward + backward]")] = None,
    memory_limit: Annotated[int | None, typer.Option(help="with zb-auto: micro-batches a stage may hold")] = None,
    group: Annotated[int | None, typer.Option(help="with interleaved-1f1b-megatron: micro-batches per group")] = None,
    balance: Annotated[str | None, typer.Option(help="layer times to split over the stages, e.g. 0.5,1*32,2")] = None,
    loss: Annotated[float, typer.Option(help="time of the loss, on the last chunk")] = 0.0,
    optimizer: Annotated[float | None, typer.Option(help="time of the optimizer step at the end")] = None,
    sync: Annotated[bool, typer.Option("--sync/--no-sync", help="stages step together, or each when done")] = True,
    model: Annotated[str | None, typer.Option(help="model preset whose times are used")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="all schedules side by side, best first")] = False,
    list_: Annotated[bool, typer.Option("--list", help="name the schedules and their papers")] = False,
    svg: Annotated[Path | None, typer.Option(help="write the chart as SVG to this file")] = None,
    trace: Annotated[Path | None, typer.Option(help="write a trace for Perfetto or Chrome to this file")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON instead")] = False,
) -> None:  # fmt: skip
    """Draw a pipeline schedule: who computes what and when, the bubble, and the activations in flight.

    Times are of one micro-batch through one whole stage, in any unit (seconds in the trace).

    Example: distsim pipeline --stages 4 --micro 8 --schedule zb-v
    """
    from distsim.cli import pipeline_options as options

    if model is not None:
        raise DistsimError(
            f"--model {model}: times of a model are not taken yet", "give times with --forward, --backward and --hop"
        )
    if list_:
        return _list(json)
    given: dict[str, Any] = {
        "stages": stages, "micro": micro, "chunks": chunks, "p2p": p2p, "overlap": not blocking,
        "contention": contention, "loss": loss, "optimizer": optimizer, "optimizer_sync": 0.0 if sync else None,
        "forward": options.times(forward, "--forward"), "backward": options.times(backward, "--backward"),
        "input_gradient": options.times(input_gradient, "--input-gradient"),
        "weight_gradient": options.times(weight_gradient, "--weight-gradient"),
        "hop": 0.0 if hop is None else options.times(hop, "--hop"),
    }  # fmt: skip
    if not sync and optimizer is None:
        raise DistsimError("--no-sync has no effect without an optimizer step", "give its time, e.g. --optimizer 0.5")
    single = {
        "schedule": schedule, "fused": fused, "fused_time": options.times(fused_time, "--fused-time"),
        "memory_limit": memory_limit, "group": group, "order": options.order(order),
        "placement": options.integers(placement, "--placement"), "chains": options.chains(chains),
    }  # fmt: skip
    if compare:
        options.refuse_with_compare({**single, "balance": balance, "svg": svg, "trace": trace})
        return _compare(given, json)
    return _one({**given, **single}, balance, svg, trace, json)


def _one(given: dict[str, Any], balance: str | None, svg: Path | None, trace: Path | None, json: bool) -> None:
    from distsim.cli import pipeline_options as options
    from distsim.engine.pipeline import pipeline as simulate

    split = None
    if balance is not None:
        split = options.balanced(given, balance)
    report = simulate(**given)
    if svg is not None:
        from distsim.report import pipeline_svg

        options.write(svg, pipeline_svg.draw(report))
    if trace is not None:
        import json as jsonlib

        from distsim.report import trace as tracing

        options.write(trace, jsonlib.dumps(tracing.events(report)))
    if json:
        answer = report.to_dict()
        if split is not None:
            answer["layers"] = list(split.sizes)
        return _print_json(answer)
    from distsim.report import pipeline_text, printer, terminal

    lines = pipeline_text.page(report, terminal.width(), terminal.unicode())
    if split is not None:
        lines += pipeline_text.partition(split)
    return printer.show(lines)


def _compare(given: dict[str, Any], json: bool) -> None:
    from distsim.engine.pipeline_compare import compare

    reports, refused = compare(**given)
    if json:
        rows = [{key: value for key, value in one.to_dict(actions=False).items() if key != "schema"} for one in reports]
        return _print_json({
            "schema": "distsim.pipeline.compare/1", "schedules": rows,
            "refused": [{"schedule": name, "reason": why} for name, why in refused],
        })  # fmt: skip
    from distsim.report import pipeline_compare, printer, terminal

    lines = pipeline_compare.comparison(reports, refused, terminal.width(), terminal.unicode())
    return printer.show(lines)


def _list(json: bool) -> None:
    from distsim.schedules.registry import SCHEDULES

    if json:
        rows = [{"name": name, "title": kind.title, "source": kind.source} for name, kind in SCHEDULES.items()]
        return _print_json({"schema": "distsim.pipeline.list/1", "schedules": rows})
    names, titles = max(map(len, SCHEDULES)), max(len(kind.title) for kind in SCHEDULES.values())
    for name, kind in SCHEDULES.items():
        typer.echo(f"{name:<{names}}  {kind.title:<{titles}}  {kind.source}")
    return None


def _print_json(answer: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(answer))
