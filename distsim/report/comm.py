"""The answer of ``distsim comm`` as lines of text: collectives, links, hierarchy, ZeRO stages."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.engine.traffic import HOST_OPS, TrafficReport
from distsim.engine.traffic_compare import SyncCost, ZeroTraffic
from distsim.report.comm_rows import row_lines
from distsim.report.hierarchy import carried, line_rate, picture
from distsim.report.job_words import flowed, job_lines
from distsim.report.prose import folded
from distsim.report.style import Style, columns
from distsim.units import decimal_bytes, duration

MORE = 1 + 1e-9
"""How many times another's bytes count as more: sums are rounded."""


def lines(report: TrafficReport, zero: Sequence[ZeroTraffic], sync: SyncCost | None, term: Style) -> list[str]:
    """Everything that ``distsim comm MODEL`` prints."""
    parts = [job_lines(report.setup, term, cluster=True), row_lines(report)]
    if report.collectives:
        parts += [link_lines(report), picture(report, term)]
    if zero:
        rules, setup = report.setup.framework.traffic, report.setup
        stays = setup.layout.pp > 1 and rules.gathered_in_pipeline == "step"
        parts.append(zero_lines(zero, setup.layout.zero, rules.zero2 == "forward", stays))
    if sync is not None:
        parts.append(sync_lines(sync, report, term))
    made = [line for part in parts if part for line in ("", *part)]
    return [term.plain(line) for line in made[1:]]


def link_lines(report: TrafficReport) -> list[str]:
    """Bytes, time and how busy each link is while it is used; by itself at each rate that a GPU has, which is more
    where few of a node's send at once."""
    totals: dict[tuple[str, float], list[float]] = {}
    for row in report.collectives:
        across = str(row.link) == report.network.inter and row.op not in HOST_OPS
        sent, link, rate = row.level_bytes[0] if across else carried(row), str(row.link), line_rate(report, row.link)
        if row.served:  # its time is that of the server's link, if that carries more than a rank pushes or pulls
            sent = max(sent, row.served)
            link = f"{row.link} of a server" if row.served > MORE * row.bytes_per_call * row.calls else link
        found = totals.setdefault((link, rate / row.sharing if across else rate), [0.0, 0.0])
        found[0] += sent
        found[1] += row.seconds
    rows = []
    for (link, rate), (sent, seconds) in totals.items():
        busy = f"{sent / seconds / rate:.0%}" if seconds and rate else "-"
        rows.append([link, decimal_bytes(sent), duration(seconds), decimal_bytes(rate, "B/s") if rate else "-", busy])
    header = ["link", "carried", "time", "rate per GPU", "utilisation"]
    title = "Links (each collective counts on its slowest link), and what crosses them:"
    return [title, *columns(header, rows)] if rows else []


MANY_TIMES = 100
"""From so many times on hundredths say nothing: weights gathered beside adapters' gradients."""


def zero_lines(found: Sequence[ZeroTraffic], current: int, forward: bool, stays: bool) -> list[str]:
    """ZeRO 0 to 3 side by side: the published law, and this job. ``forward`` tells that ZeRO 2 gathers parameters in
    each forward pass, and keeps them (FSDP); ``stays`` that ZeRO 3 does so too (torch's pipelines)."""
    header = ["ZeRO", "gathered", "reduced", "paper", "this job", "sent", "time"]
    second = "once, by layer" if forward else "after the step"
    words = (("nothing", "all-reduced"), ("after the step", "to owners"), (second, "to owners"),
             ("once, by layer" if stays else "twice, by layer", "to owners"))  # fmt: skip
    base = next((one for one in found if not one.problem and one.elements), None)
    whole = found[0].elements or found[0].unsharded
    rows, invalid = [], []
    for one in found:
        name = f"{one.zero} *" if one.zero == current else str(one.zero)
        law, reduced = f"{one.law / found[0].law:.1f}x", "all-reduced" if one.all_reduced else words[one.zero][1]
        if one.problem or base is None:
            rows.append([name, *words[one.zero], law, "-", "not valid" if one.problem else "-", "-"])
            invalid += [f"ZeRO {one.zero}: {one.problem}"] if one.problem else []
            continue
        times = one.elements / (whole or base.elements)
        rows.append([name, words[one.zero][0], reduced, law, f"{times:,.{2 if times < MANY_TIMES else 0}f}x",
                     decimal_bytes(one.wire_bytes), duration(one.seconds)])  # fmt: skip
        invalid += [f"ZeRO {one.zero}: {one.beyond}"] if one.beyond else []
    against = "ZeRO 0" if base is None or whole else f"ZeRO {base.zero}"
    title = f"Data parallel traffic by ZeRO stage, elements relative to {against} (* this job):"
    return [title, *columns(header, rows, (0, 1, 2)), *_left_out(found), *folded(invalid, 2)]


def _left_out(found: Sequence[ZeroTraffic]) -> list[str]:
    """Which options of the job stages go without, as they do not hold there."""
    stages: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        if one.without:
            stages.setdefault(one.without, []).append(str(one.zero))
    return [f"ZeRO {', '.join(zero)}: without {' and '.join(options)}" for options, zero in stages.items()]


def sync_lines(sync: SyncCost, report: TrafficReport, term: Style) -> list[str]:
    """What reducing gradients only once saves, or would save."""
    steps = report.setup.layout.micro_batches
    more = f"{decimal_bytes(sync.each_bytes - sync.once_bytes)} and {duration(sync.each_seconds - sync.once_seconds)}"
    if sync.each_bytes == sync.once_bytes:
        return []
    if report.exchange.no_sync:
        told = ["Without no_sync:", f"{steps:,} gradient reductions instead of one,", f"{more} more per step"]
    else:
        whole = ", but keeps them unsharded until the last micro-batch" if report.setup.layout.zero >= 2 else ""
        told = [f"Gradients are reduced {steps:,} times per step;", f"--no-sync saves {more}{whole}"]
    return flowed(told, " ", term.width)
