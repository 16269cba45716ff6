"""Where each figure of ``distsim comm --explain`` comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim.engine.exchanges.flows import SLOW_LINK, Flow
from distsim.engine.figures import Figure, Figures
from distsim.engine.jobs.stages import build_stages
from distsim.engine.networks.crossing import WIRE
from distsim.engine.traffic import Row, TrafficReport, rows_of_flows
from distsim.formulas.collectives import all_calls_seconds
from distsim.formulas.traffic import left_seconds, passed_on_bytes
from distsim.report.comm_figures import call_figure, size_figure
from distsim.report.explain import figure_data, figure_lines
from distsim.report.job_words import job_lines
from distsim.report.style import Style
from distsim.units import decimal_bytes

# purpose (its beginning) -> what the bytes of a call are, and who says so
_ORIGINS = (
    ("tensor parallel loss", "largest logit, sum of exponentials, target logit of each token (Shoeybi et al. 2019)"),
    ("tensor parallel", "activations at the edge of a tensor parallel region (Korthikanti et al. 2022)"),
    ("context parallel", "keys and values of one rank's tokens (Liu et al. 2023; Jacobs et al. 2023)"),
    ("expert token counts", "how many tokens each expert gets, int64 (torchtitan, expert_parallel.py)"),
    ("expert", "token copies that one rank sends to experts on other ranks"),
    ("pipeline shapes", "the shape of the message that follows, int64 (Megatron-LM, p2p_communication.py)"),
    ("pipeline", "activations at a stage boundary"),
    ("tied embedding", "the shared matrix's gradient, on all stages that have it (Narayanan et al. 2021)"),
    ("parameters", "parameters of the ledger by unit or bucket, padded as the framework does"),
    ("gradient", "gradients of the ledger's parameters by unit or bucket, in the dtype of the reduction"),
    ("replicas", "parameters of the ledger, averaged every so many steps (Douillard et al. 2023)"),
    ("buffers", "buffers of all modules, of one dtype (torch DistributedDataParallel broadcast_buffers)"),
)  # fmt: skip

_PASSED_ON = "inside the node, once to each rank with an expert of the token (node_copies_passed_on, docs/formulas.md)"


def figures(report: TrafficReport) -> Iterator[Figure]:
    """Bytes per call, bytes on the wire and time of every row."""
    stage = build_stages(report.setup)[report.stage]
    for row, flow in rows_of_flows(report.setup, report.exchange, report.network, stage):
        yield from _of_row(report, row, flow)


def _of_row(report: TrafficReport, row: Row, flow: Flow) -> Figures:
    label, found = f"{row.purpose}, {row.op} in {row.phase}", Figures()
    size_figure(found, f"{label}: bytes per call", report.setup, flow, _origin(row))
    if pattern := _pattern(row):
        found.use(f"{label}: sent per call", WIRE[pattern], size_bytes=row.bytes_per_call, ranks=row.group_size)
    if row.passed_on:
        share = row.passed_on / row.calls / row.bytes_per_call
        found.use(
            f"{label}: passed on per call", passed_on_bytes, _PASSED_ON, call_bytes=row.bytes_per_call, share=share
        )
    each = row.seconds / row.calls * row.every_steps
    call_figure(found, f"{label}: time of one call", flow, report.network, each)
    found.use(f"{label}: time", all_calls_seconds, calls=row.calls, seconds_each=each, every_steps=row.every_steps)
    if row.exposed_seconds < row.seconds:
        hidden = 1 - row.exposed_seconds / row.seconds
        found.use(f"{label}: exposed time", left_seconds, seconds=row.seconds, hidden_share=hidden)
    return found


def _pattern(row: Row) -> str:
    """The operation whose wire formula holds; none for host transfers and servers."""
    if row.group == "cp" and row.wire_bytes_per_rank > row.bytes_per_call * row.calls * 0.999:
        return "send_recv"
    return row.op if row.op in WIRE and row.link != SLOW_LINK else ""


def _origin(row: Row) -> str:
    return next((told for start, told in _ORIGINS if row.purpose.startswith(start)), "ledger")


def lines(report: TrafficReport, term: Style) -> list[str]:
    """The job, and all figures of the stage that sends most as text."""
    where = f" of stage {report.stage}, which sends the most" if len(report.stages) > 1 else ""
    head = [*job_lines(report.setup, term, cluster=True), "", term.bold(f"Figures of one rank{where}")]
    return [*head, *(line for figure in figures(report) for line in figure_lines(figure, decimal_bytes))]


def as_data(report: TrafficReport) -> list[dict[str, Any]]:
    """All figures as plain data."""
    return [figure_data(figure) for figure in figures(report)]
