"""Layouts as rows of a table that is as narrow as the terminal: columns go, and words get shorter, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.engine.layouts.alike import AS_GOOD, Alike
from distsim.engine.layouts.choice import Choice
from distsim.engine.layouts.recomputed import selective_word
from distsim.engine.layouts.report import SearchReport
from distsim.report import terminal
from distsim.report.memory import number
from distsim.report.prose import folded
from distsim.report.prose import number as amount
from distsim.report.step import HOST_SHARE, percent
from distsim.report.style import VERMILLION, Style, bare, columns
from distsim.units import DAY, duration
from distsim.units import dollars as money

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "zero_group", "micro_batch")
HEADINGS = {"zero_group": "group", "micro_batch": "micro", "limits": "limited by", "alike": "similar"}
USUALLY_ONE = ("vpp", "cp", "ep", "etp")
COST, LIMITED = "$/M tokens", "limited by"
BRIEFER = {LIMITED: "limits", "limits": "limit"}
"""The same in fewer words, and in one."""
WORDS = ("layout", "precision", "offload", "recompute", "schedule", LIMITED, *BRIEFER.values())
SPARE = (
    "seq.par.",
    "schedule",
    "tokens/s/GPU",
    "zero_group",
    LIMITED,
    "factor",
    "tokens/s",
    "per GPU",
    "alike",
    "limits",
)
COLUMN = {"sequence_parallel": "seq.par."}
OF_LAYOUT = (*DEGREES, "seq.par.", "schedule")
"""Columns that are a layout's own."""
LAST = ("limit", "vpp", "cp", "etp")
"""Columns that a narrow terminal loses, in this order; the JSON and the command have them all. What limits a layout is
first said in fewer words."""
FULL = 0.97
"""Share of the memory above which it limits what else could be done."""
LEAST_SHARE, LEAST_OTHER = 0.02, 0.1
"""Parts of a step below this are not named as limits; ``other`` is what every layout waits for (the slowest GPU, what a
step costs whatever its size)."""
BRIEF = {"tensor_parallel": "tp", "data_parallel": "dp", "pipeline_bubble": "bubble", "pipeline_transfer": "pp",
         "expert_parallel": "ep", "context_parallel": "cp", "kernel_launches": "launches"}  # fmt: skip
Row = dict[str, str]


def table(report: SearchReport, choices: Sequence[Choice], term: Style, over: bool = False) -> list[str]:
    """One row per layout: time, memory, degrees, and what limits it."""
    families = [None if over else report.alike(one) for one in choices]
    crowded = any(family is not None and family.near for family in families)
    rows = []
    for index, (one, family) in enumerate(zip(choices, families, strict=True), 1):
        row = {"#": str(index)}
        if len(report.request.gpus) > 1:
            row["GPUs"] = f"{one.report.setup.layout.gpus:,}"
        row |= varied(report, one)
        row |= figures(report, one)
        if over:
            row["over by"] = term.ink(number(one.report.memory.peak - report.limit), VERMILLION)
        row |= degrees(one)
        if crowded:
            row["alike"] = f"+{family.near}" if family is not None and family.near else ""
        rows.append(row if over else row | limit_cells(one, report.limit))
    asked = [name for name, bound in report.request.bounds.given.items() if len(bound.words) > 1 or bound.ranges]
    return [*fitted(rows, [COLUMN.get(name, name) for name in asked]), *_legend(families)]


def varied(report: SearchReport, one: Choice) -> Row:
    """What was tried beside the layout, where there was more than one choice."""
    setup, request, row = one.report.setup, report.request, {}
    if len(report.batches) > 1:
        row["batch"] = f"{setup.job.global_batch:,}"
    if len(request.precisions) > 1:
        row["precision"] = setup.precision.name
    if len(request.offloads) > 1:
        part = setup.job.offload_fraction
        row["offload"] = "+".join(setup.offload) + (f" {part:.0%}" if part else "") if setup.offload else "none"
    return row


def figures(report: SearchReport, one: Choice) -> Row:
    """Time, cost where prices are known, and memory."""
    step, dollars = one.report, report.usd_per_million_tokens(one)
    cost = {} if dollars is None else {COST: f"{dollars:,.3f}"}
    training, total = report.training_seconds(one), report.usd(one)
    if training is not None:
        cost["days"] = amount(training / DAY)
    if total is not None:
        cost["dollars"] = money(total)
    if (owed := report.committed_usd(one)) is not None:
        cost["owed"] = money(owed)
    rate = f"{step.tokens_per_second / step.setup.layout.gpus:,.0f}"
    return {"step": duration(step.seconds), **cost, "tokens/s/GPU": rate, "MFU": percent(step.mfu),
            "GiB": number(step.memory.peak)}  # fmt: skip


def degrees(one: Choice) -> Row:
    """The layout itself."""
    layout, experts = one.report.setup.layout, one.report.setup.model.experts is not None
    shown = [name for name in DEGREES if experts or name not in ("ep", "etp")]
    return {
        **{name: str(getattr(layout, name)) for name in shown}, "recompute": recompute_word(one),
        "seq.par.": "on" if layout.sequence_parallel else "off", "schedule": layout.schedule if layout.pp > 1 else "-",
    }  # fmt: skip


def limit_cells(one: Choice, limit_bytes: float) -> Row:
    """What limits a layout, in words, in few, and in one."""
    full = one.report.memory.peak > FULL * limit_bytes
    return {
        LIMITED: limits(one, full, 3, {}), "limits": limits(one, full, 2, BRIEF), "limit": limits(one, full, 1, BRIEF),
    }  # fmt: skip


def _legend(families: Sequence[Alike | None]) -> list[str]:
    known = [family for family in families if family is not None and family.near]
    if not known:
        return []
    varies = ", ".join(dict.fromkeys(name for family in known for name in family.varies))
    most = max(family.near for family in known)
    told = f"Not shown: up to {most} similar per row within {AS_GOOD:.0%} ({varies}); see --all-ranks"
    return folded([told], indent=4)


def fitted(rows: Sequence[Row], asked: Sequence[str] = ()) -> list[str]:
    """The table without what a narrow terminal has no room for: first the columns that are 1 in all rows, late those
    of which the user asked for several values."""
    if not rows:
        return []
    width, names = terminal.width(), [name for name in rows[0] if name not in BRIEFER.values()]
    ones = [name for name in USUALLY_ONE if all(row.get(name) == "1" for row in rows)]
    known = ("MFU",) if COST in names or "layout" in names else ()  # other columns say how quick it is
    known = (COST, *known) if "dollars" in names else known
    early = [name for name in SPARE if name not in asked]
    late = [name for name in SPARE if name in asked]
    apart = telling_apart(rows)
    order = ("", *ones, *early, *known, *LAST[:1], *late, *LAST[1:], "MFU", "over by")
    for drop in (*(name for name in order if name not in apart), *apart):
        names = [
            BRIEFER[name] if name == drop and name in BRIEFER else name
            for name in names
            if name != drop or name in BRIEFER
        ]
        cells = [[row.get(name, "") for name in names] for row in rows]
        left = tuple(i for i, name in enumerate(names) if name in WORDS)
        made = columns([HEADINGS.get(name, name) for name in names], cells, left=left)
        if width is None or max(len(bare(line)) for line in made) <= width:
            break
    return made


def telling_apart(rows: Sequence[Row]) -> list[str]:
    """Columns that a narrow terminal could lose and without which two layouts would look the same."""
    kept = [name for name in (*DEGREES, "recompute") if name not in (*SPARE, *USUALLY_ONE, *LAST)]
    needed: list[str] = []
    for name in (*USUALLY_ONE, *SPARE):
        seen = {tuple(row.get(one, "") for one in (*kept, *needed)) for row in rows}
        more = {tuple(row.get(one, "") for one in (*kept, *needed, name)) for row in rows}
        if name in OF_LAYOUT and len(more) > len(seen):
            needed.append(name)
    return needed


def recompute_word(one: Choice) -> str:
    """``none``, ``selective``, ``modules``, ``full`` or ``full 3`` (layers per stage)."""
    setup = one.report.setup
    counted = setup.layout.recompute_layers
    return f"full {counted}" if counted > 0 else selective_word(setup) if setup.layout.selective else setup.recompute


def limits(one: Choice, full: bool, most: int, brief: dict[str, str]) -> str:
    """What keeps a layout from being faster: the largest parts of its step beside computation, waiting for the host in
    it, and full memory."""
    report = one.report
    shares = {name: seconds / report.seconds for name, seconds in report.breakdown.items() if name != "compute"}
    if (waits := report.host_wait_seconds / report.seconds) >= HOST_SHARE:
        shares["kernel_launches"] = waits
    parts = sorted((share, name) for name, share in shares.items()
                   if share >= (LEAST_OTHER if name == "other" else LEAST_SHARE))  # fmt: skip
    told = [f"{brief.get(name, name.replace('_', ' '))} {share:.0%}" for share, name in reversed(parts)]
    memory = ["memory" if brief else "memory full"] if full else []
    return ", ".join(told[: most - len(memory)] + memory) or "compute"
