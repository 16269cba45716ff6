"""The table of collectives: as many columns as the terminal holds, rows that then look the same are added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distsim.engine.exchanges.flows import RECOMPUTED
from distsim.engine.traffic import Row, TrafficReport
from distsim.report import terminal
from distsim.report.job_words import flowed
from distsim.report.style import bare, columns
from distsim.units import decimal_bytes, duration

EXPOSED = ("exposed: a rough figure, what all compute of the phase, at the chip's peak rate, cannot hide;",
           "distsim step has the time that a step loses, which may be twice that, or less")  # fmt: skip


WORTH_TELLING = 0.1
"""How much longer the exchanges of another stage take before that is told."""


def _purpose(row: Row) -> str:
    return row.purpose.removesuffix(RECOMPUTED)


def _phase(row: Row) -> str:
    return "recompute" if row.recomputed else row.phase


# What tells rows apart: heading and cell.
_LABELS: dict[str, Callable[[Row], str]] = {
    "purpose": _purpose, "op": lambda row: row.op, "group": lambda row: f"{'+'.join(row.groups)} {row.group_size:.0f}",
    "phase": _phase, "dtype": lambda row: row.dtype, "per call": lambda row: decimal_bytes(row.bytes_per_call),
    "link": lambda row: str(row.link), "algorithm": lambda row: str(row.algorithm),
}  # fmt: skip
# What adds up: heading and cell of rows together.
_SUMS: dict[str, Callable[[Sequence[Row]], str]] = {
    "calls": lambda rows: _calls(rows), "sent": lambda rows: decimal_bytes(sum(r.wire_bytes_per_rank for r in rows)),
    "time": lambda rows: duration(sum(r.seconds for r in rows)),
    "exposed": lambda rows: duration(sum(r.exposed_seconds for r in rows)),
}  # fmt: skip
_HEADER = ("purpose", "op", "group", "phase", "dtype", "calls", "per call", "sent", "link", "algorithm", "time",
           "exposed")  # fmt: skip
# Columns that may go, first to last, where the terminal is narrow; purpose, op, sent and time always stay.
_SPARE = ("dtype", "algorithm", "link", "exposed", "per call", "calls", "phase", "group")
_RIGHT = ("calls", "per call", "sent", "time", "exposed")


def row_lines(report: TrafficReport) -> list[str]:
    """The collectives of the stage that sends most, by purpose."""
    rows = report.collectives
    if not rows:
        return ["Nothing crosses a link: every group has one rank."]
    where = f" of stage {report.stage} (which sends the most)" if len(report.stages) > 1 else ""
    header: Sequence[str] = _HEADER
    made, width = _table(rows, header), terminal.width()
    for dropped in range(1, len(_SPARE) + 1):
        if width is None or max(len(bare(line)) for line in made) <= width:
            break
        header = [name for name in _HEADER if name not in _SPARE[:dropped]]
        made = _table(rows, header)
    wide = width or terminal.NATURAL_WIDTH
    meant = flowed([*EXPOSED], " ", wide) if "exposed" in header else []
    return [f"Collectives of one rank{where} in one optimizer step:", *made, *meant, *_slower(report, wide)]


def _slower(report: TrafficReport, width: int) -> list[str]:
    """Which stage's exchanges take longer than those shown, as one whose messages leave the node does."""
    seconds = report.stage_seconds
    if max(seconds) < (1 + WORTH_TELLING) * report.seconds:
        return []
    stage = seconds.index(max(seconds))
    return flowed([f"Exchanges of stage {stage} take longer: {duration(max(seconds))};", "--json has all stages"],
                  " ", width)  # fmt: skip


def _table(rows: Sequence[Row], header: Sequence[str]) -> list[str]:
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(_LABELS[name](row) for name in header if name in _LABELS), []).append(row)
    made = []
    for labels, members in alike.items():
        words = iter(labels)
        made.append([next(words) if name in _LABELS else _SUMS[name](members) for name in header])
    total = {"purpose": "total", **{name: tell(rows) for name, tell in _SUMS.items() if name != "calls"}}
    made.append([total.get(name, "") for name in header])
    left = tuple(place for place, name in enumerate(header) if name not in _RIGHT)
    return columns(list(header), made, left)


def _calls(rows: Sequence[Row]) -> str:
    rare = max(row.every_steps for row in rows)
    return f"{sum(row.calls for row in rows):,.0f}" if rare == 1 else f"1 in {rare}"
