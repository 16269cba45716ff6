"""``distsim pipeline``: draws a pipeline schedule and reports its bubble, memory and makespan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from distsim.cli import pipeline_flags as flag
from distsim.cli.signatures import gathering

NO_ARGS_IS_HELP = True


@gathering("job", flag.of_model())
def pipeline(
    *,
    stages: flag.Stages = None, micro: flag.Micro = None, schedule: flag.Schedule = None, chunks: flag.Chunks = None,
    forward: flag.Forward = None, backward: flag.Backward = None, input_gradient: flag.InputGradient = None,
    weight_gradient: flag.WeightGradient = None, hop: flag.Hop = None, p2p: flag.P2p = "async",
    blocking: flag.Blocking = False, contention: flag.Contention = False, order: flag.Order = None,
    placement: flag.Placement = None, chains: flag.Chains = None, fused: flag.Fused = None,
    fused_time: flag.FusedTime = None, memory_limit: flag.MemoryLimit = None, weight_memory: flag.WeightMemory = None,
    group: flag.Group = None, balance: flag.Balance = None, loss: flag.Loss = 0.0, optimizer: flag.Optimizer = None,
    sync: flag.Sync = None, model: flag.Model = None, job: dict[str, Any], compare: flag.Compare = False,
    list_: flag.List = False, svg: flag.Svg = None, trace: flag.Trace = None, json: flag.Json = False,
) -> None:  # fmt: skip
    """Draw a pipeline schedule: what each stage computes when, the bubble, and the activations in flight.

    Times are for one micro-batch through one whole stage, in any unit (seconds in the trace, and with --model).

    Example: distsim pipeline --stages 4 --micro 8 --schedule zb-v

    Example: distsim pipeline --stages 4 --micro 16 --model llama-70b --gpu h100-sxm --tp 8
    """
    from distsim.cli import pipeline_options as options

    if list_:
        return _list(json)
    options.refuse_idle(sync, optimizer, p2p, blocking, contention, hop is not None or model is not None)
    given: dict[str, Any] = {
        "stages": stages, "micro": micro, "chunks": chunks, "loss": loss, "p2p": p2p, "overlap": not blocking,
        "contention": contention, "optimizer": optimizer, "optimizer_sync": None if sync is False else 0.0,
        **options.all_times(forward, backward, input_gradient, weight_gradient, hop),
    }  # fmt: skip
    single = {
        "schedule": schedule, "fused": fused, "fused_time": options.times(fused_time, "--fused-time"),
        "memory_limit": memory_limit, "weight_memory": weight_memory, "group": group, "chains": options.chains(chains),
        "order": options.order(order), "placement": options.integers(placement, "--placement"),
        "balance": options.layer_times(balance),
    }  # fmt: skip
    job = options.complete(model, job)
    if compare:
        options.refuse_with_compare({**single, "svg": svg, "trace": trace})
        return _compare(given, model, job, json)
    return _one({**given, **single}, model, job, svg, trace, json)


def _one(
    given: dict[str, Any], model: str | None, job: dict[str, Any], svg: Path | None, trace: Path | None, json: bool
) -> None:
    """Draw one schedule or order; ``job`` are options of the model."""
    from distsim.cli import pipeline_options as options
    from distsim.engine.pipeline import pipeline as simulate
    from distsim.engine.timelines.input import stated_chunks
    from distsim.schedules.registry import usual

    options.check_svg(svg)
    each = stated_chunks(given["chunks"], given["placement"], given["stages"])
    named = None if given["order"] is not None else given["schedule"] or usual(each)
    given, setup = options.times_of_model(model, given, each, named, job)
    report = simulate(**given)
    _export(report, svg, trace)
    if json:
        return _print_json(_with_job(report.to_dict(), setup))
    from distsim.report import pipeline_text, printer, terminal

    about = [] if setup is None else pipeline_text.model_words(setup, given, report.stages, report.schedule)
    lines = pipeline_text.page(report, terminal.width(), terminal.unicode(), about)
    if report.split is not None:
        lines += pipeline_text.partition(report.split)
    return printer.show(lines)


def _export(report: Any, svg: Path | None, trace: Path | None) -> None:
    """Write the drawing and the trace that were asked for."""
    from distsim.cli import pipeline_options as options

    if svg is not None:
        from distsim.report import pipeline_svg

        options.write(svg, pipeline_svg.draw(report))
    if trace is not None:
        import json

        from distsim.report import trace as tracing

        options.write(trace, json.dumps(tracing.events(report)))


def _compare(given: dict[str, Any], model: str | None, job: dict[str, Any], json: bool) -> None:
    """List all schedules, best first; ``job`` are options of the model."""
    from distsim.cli import pipeline_options as options
    from distsim.engine.pipeline_compare import compare

    given, setup = options.times_of_model(model, given, None, None, job)
    reports, refused = compare(**given, times_of=options.times_by_schedule(model, given, job))
    if json:
        rows = [{key: value for key, value in one.to_dict(actions=False).items() if key != "schema"} for one in reports]
        return _print_json(_with_job({
            "schema": "distsim.pipeline.compare/1", "schedules": rows,
            "refused": [{"schedule": name, "reason": why} for name, why in refused],
        }, setup))  # fmt: skip
    from distsim.report import pipeline_compare, pipeline_text, printer, terminal

    about = [] if setup is None else pipeline_text.model_words(setup, given, reports[0].stages)
    lines = pipeline_compare.comparison(reports, refused, terminal.width(), terminal.unicode(), about)
    return printer.show(lines)


def _with_job(answer: dict[str, Any], setup: Any) -> dict[str, Any]:
    """An answer with the job whose times it has, where a model gives them."""
    if setup is None:
        return answer
    from distsim.engine.steps.pass_times import job_written

    return {"schema": answer["schema"], "job": job_written(setup, answer.get("schedule")), **answer}


def _list(json: bool) -> None:
    from distsim.schedules.registry import SCHEDULES

    if json:
        listed = [{"name": name, "title": kind.title, "source": kind.source} for name, kind in SCHEDULES.items()]
        return _print_json({"schema": "distsim.pipeline.list/1", "schedules": listed})
    from distsim.report import terminal

    names, titles = max(map(len, SCHEDULES)), max(len(kind.title) for kind in SCHEDULES.values())
    rows = [f"{name:<{names}}  {kind.title:<{titles}}  {kind.source}" for name, kind in SCHEDULES.items()]
    if max(map(len, rows)) > (terminal.width() or len(max(rows, key=len))):  # the papers go below
        rows = [f"{name:<{names}}  {kind.title}\n{'':<{names}}  {kind.source}" for name, kind in SCHEDULES.items()]
    return typer.echo("\n".join(rows))


def _print_json(answer: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(answer))
