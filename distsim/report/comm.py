"""The answer of ``distsim comm`` as lines of text: collectives, links, hierarchy, ZeRO stages."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.engine.traffic import HOST_OPS, Row, TrafficReport
from distsim.engine.traffic_compare import SyncCost, ZeroTraffic
from distsim.report import terminal
from distsim.report.hierarchy import picture
from distsim.report.layout_words import layout_words
from distsim.report.memory import flowed, tuning_lines
from distsim.report.style import Style, bare, columns
from distsim.units import decimal_bytes, duration

# Columns that may go, first to last, where the terminal is narrow; purpose, op, sent and time always stay.
_SPARE = ("dtype", "exposed", "algorithm", "phase", "link", "per call", "calls")


def lines(report: TrafficReport, zero: Sequence[ZeroTraffic], sync: SyncCost | None, term: Style) -> list[str]:
    """Everything that ``distsim comm MODEL`` prints."""
    made = [
        *head_lines(report, term),
        "",
        *row_lines(report, term),
        "",
        *link_lines(report),
        "",
        *picture(report, term),
    ]
    if zero:
        made += ["", *zero_lines(zero, report.setup.layout.zero, term)]
    if sync is not None:
        made += ["", *sync_lines(sync, report)]
    return [term.plain(line) for line in made]


def head_lines(report: TrafficReport, term: Style) -> list[str]:
    """What was computed."""
    setup = report.setup
    y = setup.layout
    first = f"{term.bold(setup.model.name)} on {y.gpus} x {setup.accelerator.name} ({setup.cluster.name})"
    second = [
        ", ".join(layout_words(y)),
        f"{y.micro_batches} x {y.micro_batch} x {y.seq:,} tokens per rank and step",
        f"{setup.precision.name}, {setup.framework.name}",
    ]
    return [first, *flowed(second, "; ", term.width), *tuning_lines(setup)]


def row_lines(report: TrafficReport, term: Style) -> list[str]:
    """The collectives of the stage that sends most, by purpose."""
    rows = report.collectives
    if not rows:
        return ["Nothing crosses a link: every group has one rank."]
    header = ["purpose", "op", "group", "phase", "dtype", "calls", "per call", "sent per rank", "link", "algorithm",
              "time", "exposed"]  # fmt: skip
    cells = [_cells(row) for row in rows]
    total = ["total", *[""] * 6, decimal_bytes(report.wire_bytes_per_rank), "", "", duration(report.seconds),
             duration(report.exposed_seconds)]  # fmt: skip
    where = f" of stage {report.stage}, which sends most" if len(report.stages) > 1 else ""
    title = f"Collectives of one rank{where} in one optimizer step:"
    return [title, *_fitted(header, [*cells, total], terminal.width())]


def _cells(row: Row) -> list[str]:
    calls = f"{row.calls:,.0f}" if row.every_steps == 1 else f"1 in {row.every_steps}"
    return [
        row.purpose, row.op, f"{row.group} {row.group_size:.0f}", row.phase, row.dtype, calls,
        decimal_bytes(row.bytes_per_call), decimal_bytes(row.wire_bytes_per_rank), str(row.link), str(row.algorithm),
        duration(row.seconds), duration(row.exposed_seconds),
    ]  # fmt: skip


def _fitted(header: list[str], rows: list[list[str]], width: int | None) -> list[str]:
    """The table without as many spare columns as it takes to fit; all of them where nothing limits the line."""
    words = ("purpose", "op", "group", "phase", "dtype", "link", "algorithm")
    for dropped in range(len(_SPARE) + 1):
        keep = [i for i, name in enumerate(header) if name not in _SPARE[:dropped]]
        left = tuple(place for place, i in enumerate(keep) if header[i] in words)
        made = columns([header[i] for i in keep], [[row[i] for i in keep] for row in rows], left)
        if width is None or max(len(bare(line)) for line in made) <= width:
            break
    return made


def link_lines(report: TrafficReport) -> list[str]:
    """Bytes, time and how busy each link is while it is used."""
    totals: dict[str, list[float]] = {}
    for row in report.collectives:
        found = totals.setdefault(str(row.link), [0.0, 0.0])
        across = str(row.link) == report.network.inter and row.op not in HOST_OPS
        found[0] += row.level_bytes[0] if across else row.wire_bytes_per_rank
        found[1] += row.seconds
    rows = []
    for link, (sent, seconds) in totals.items():
        rate = link_rate(report, link)
        busy = f"{sent / seconds / rate:.0%}" if seconds and rate else "-"
        rows.append([link, decimal_bytes(sent), duration(seconds), decimal_bytes(rate, "B/s") if rate else "-", busy])
    header = ["link", "sent per rank", "time", "rate per GPU", "utilisation"]
    return ["Links, each by the collectives whose slowest link it is:", *columns(header, rows)] if rows else []


def link_rate(report: TrafficReport, link: str) -> float:
    """Bytes per second that one GPU can send over a link."""
    network, host = report.network, report.setup.accelerator.host
    if link == network.inter:
        return float(network.nic_rate)
    if link == network.intra:
        return float(network.intra_rate)
    if link == "slow link":
        return report.exchange.sync_bytes_per_second
    return float(host.measured or host.rate or 0) if host is not None else 0.0


def zero_lines(found: Sequence[ZeroTraffic], current: int, term: Style) -> list[str]:
    """ZeRO 0 to 3 side by side: the published law, and this job."""
    header = ["ZeRO", "gathered", "reduced", "paper", "this job", "sent per rank", "time"]
    words = (("nothing", "all-reduced"), ("after the step", "to owners"), ("after the step", "to owners"),
             ("twice, by layer", "to owners"))  # fmt: skip
    base = next((one for one in found if not one.problem and one.elements), None)
    rows = []
    for one in found:
        name = f"{one.zero} *" if one.zero == current else str(one.zero)
        law = f"{one.law / found[0].law:.1f}x"
        if one.problem or base is None:
            rows.append([name, *words[one.zero], law, "-", "-", one.problem or "-"])
            continue
        rows.append([name, *words[one.zero], law, f"{one.elements / base.elements:.2f}x",
                     decimal_bytes(one.wire_bytes), duration(one.seconds)])  # fmt: skip
    title = "Data parallel traffic at each ZeRO stage, elements over ZeRO 0's (* this job):"
    return [title, *columns(header, rows, (0, 1, 2))]


def sync_lines(sync: SyncCost, report: TrafficReport) -> list[str]:
    """What putting gradients off saves, or would save."""
    steps = report.setup.layout.micro_batches
    more = f"{decimal_bytes(sync.each_bytes - sync.once_bytes)} and {duration(sync.each_seconds - sync.once_seconds)}"
    if sync.each_bytes == sync.once_bytes:
        return []
    if report.exchange.no_sync:
        return [f"Forgetting no_sync would reduce gradients after each of {steps} micro-batches: {more} more a step."]
    return [f"Gradients are reduced after each of {steps} micro-batches: with --no-sync {more} less a step."]
