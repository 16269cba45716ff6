"""Where each figure of ``distsim comm --explain`` comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim.engine.exchanges.flows import SLOW_LINK
from distsim.engine.figures import Figure
from distsim.engine.networks.pricing import WIRE
from distsim.engine.traffic import Row, TrafficReport
from distsim.formula import REGISTRY
from distsim.report.explain import figure_lines
from distsim.report.job_words import job_lines
from distsim.report.style import Style
from distsim.units import decimal_bytes

# purpose (its beginning) -> what the bytes of a call are, and who says so
_ORIGINS = (
    ("tensor parallel loss", "largest logit, sum of exponentials, target logit of each token (Shoeybi et al. 2019)"),
    ("tensor parallel", "activations at the edge of a tensor parallel region: s b h (Korthikanti et al. 2022)"),
    ("context parallel", "keys and values of one rank's tokens (Liu et al. 2023; Jacobs et al. 2023)"),
    ("expert token counts", "how many tokens each expert gets, int64 (torchtitan, expert_parallel.py)"),
    ("expert", "token copies that one rank sends to experts on other ranks: s b h top_k (Fedus et al. 2022)"),
    ("pipeline", "activations at a stage boundary: s b h (Narayanan et al. 2021)"),
    ("tied embedding", "the shared matrix's gradient, on first and last stage (Narayanan et al. 2021)"),
    ("parameters", "parameters of the ledger by unit or bucket, padded as the framework does"),
    ("gradient", "gradients of the ledger's parameters by unit or bucket, in the dtype of the reduction"),
    ("replicas", "parameters of the ledger, averaged every so many steps (Douillard et al. 2023)"),
    ("buffers", "buffers of all modules, of one dtype (torch DistributedDataParallel broadcast_buffers)"),
)  # fmt: skip

_PASSED_ON = "inside the node, once to each rank with an expert of the token (node_copies_passed_on, docs/formulas.md)"


def figures(report: TrafficReport) -> Iterator[Figure]:
    """Bytes per call, bytes on the wire and time of every row."""
    for row in report.collectives:
        label = f"{row.purpose}, {row.op} in {row.phase}"
        yield Figure(f"{label}: bytes per call", row.bytes_per_call, "B", "", {}, _origin(row))
        wire = REGISTRY.get(WIRE[_pattern(row)].__name__) if _pattern(row) else None
        if wire is not None:
            numbers = {"size_bytes": row.bytes_per_call, "ranks": row.group_size}
            value = (row.wire_bytes_per_rank - row.passed_on) / row.calls * row.every_steps
            yield Figure(f"{label}: sent per call", value, "B", wire.name, numbers, wire.source)
        if row.passed_on:
            yield Figure(f"{label}: passed on per call", row.passed_on / row.calls, "B", "", {}, _PASSED_ON)
        often = f" in {row.every_steps} steps" if row.every_steps > 1 else ""
        times = f"{row.calls:,.0f} call{'' if round(row.calls) == 1 else 's'}{often}"
        yield Figure(
            f"{label}: time", row.seconds, "s", "", {}, f"{times}, {row.algorithm} over {row.link}; docs/collectives.md"
        )


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
    return [figure._asdict() for figure in figures(report)]
