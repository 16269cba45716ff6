"""What of a measured run was in host memory or on drives, as cells and notes say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.remat import offloads_tensors
from distsim.interop.runs.sharding import by_torch
from distsim.interop.runs.software_notes import zero_stage
from distsim.interop.runs.table import MissingCell, Run
from distsim.specs.layout import OFFLOADS, SHARDS_ALL
from distsim.specs.modules import OFFLOADABLE

_FULL = re.compile(r"\bfull offload\b", re.IGNORECASE)
"""Optimizer states and parameters in host memory (DeepSpeed's ZeRO-Infinity, without NVMe)."""
_TOLD = re.compile(
    affirmed(r"optimizer(?: states?)? (?:is |are |was |were )?offload(?:ed|ing)? to (?:the )?(?:cpu|host)"),
    re.IGNORECASE,
)
_NOTHING = ("none", "no", "0", "false", "off", "n", "disabled", "-", "n/a", "na")
_OPEN = re.compile(r"not (?:stated|itemised|said)")
_SHARDS = (
    "cpu", "cpu offload", "cpuoffload", "offload", "1", "true", "yes", "on", "nvme", "nvme offload", "all", "offloaded",
)  # fmt: skip
"""Cells that name all that FSDP or ZeRO shards."""
_AROUND = re.compile(r"\([^)]*\)|\bfsdp[12]?\b|\bdeepspeed\b|\bzero(?:[-_ ]?[0-3])?\b|\btorch\b")
"""Words beside them for who shards."""
_OFFLOADERS = (
    (re.compile(r"zero[-_ ]?infinity"), ("optimizer", "parameters")),
    (re.compile(r"zero[-_ ]?offload|cpu[-_ ]?adam"), ("optimizer",)),
)
"""DeepSpeed's names for what leaves the GPU (deepspeed.ai, ZeRO-Offload and ZeRO-Infinity)."""
_FINE = re.compile(r"fine[-_ ]?grained")
_MODULE = re.compile(rf"\b(?:{'|'.join(OFFLOADABLE)})\b")
"""Megatron's modules whose tensors alone leave (fine_grained_activation_offloading)."""
_LAYERS = re.compile(
    r"\bcpu[-_ ]offloading[-_ ]num[-_ ]layers[ =:]*(?P<count>\d{1,4})\b|"
    r"\bactivations? (?:of|in) (?P<told>\d{1,4}) layers\b",
    re.IGNORECASE,
)
"""Megatron's layers whose activations Transformer Engine copies to the host, of those of a stage."""
_PART = re.compile(r"(?<![\d.])(?P<percent>\d{1,3}(?:\.\d+)?) ?%|(?<![\d.\w])(?P<part>0?\.\d{1,4})(?!\d)")
_NOTED_SHARE = re.compile(
    r"\boffload(?:ing|ed)?[-_ ](?:activations?[-_ ])?(?:ratio|share|fraction)[ =:]*"
    r"(?P<part>0?\.\d{1,4}|[01](?:\.0+)?)\b|"
    r"\b(?P<percent>\d{1,3}(?:\.\d+)?) ?% of (?:the |its )?activations (?:is |are |were |go(?:es)? )?(?:offloaded|to)",
    re.IGNORECASE,
)
_RETURNED = re.compile(r"\boffload[-_]optimizer[-_]states\b", re.IGNORECASE)
_ALL_OF_IT = 1.0


def _cell(run: Run) -> str:
    """The cell, or the words of one that says so of what shards."""
    if own := run.text("offload"):
        return own.lower()
    kind = (run.text("fsdp_kind") or "").lower()
    return "cpu" if "offload" in kind and not re.search(r"\b(?:no|without)\b[^;,]*offload", kind) else ""


def offloaded(run: Run) -> str | None:
    """What the cell says was in host memory, or notes where it is blank; raises MissingCell when the cell only says
    that something was."""
    noted = "optimizer, parameters" if hit(_FULL, run.notes) else "optimizer" if hit(_TOLD, run.notes) else "none"
    cell = _cell(run) or noted
    if cell in _NOTHING or "not stated" in cell:
        return None
    kinds = _kinds_in(run, cell)
    if not kinds:
        raise MissingCell(f"offload {cell!r} does not say what is offloaded")
    if "parameters" in kinds and by_torch(run):  # CPUOffload: the optimizer works where shards are
        kinds = [kind for kind in OFFLOADS if kind in {*kinds, "optimizer"}]
    return ",".join(kinds)


def _kinds_in(run: Run, cell: str) -> Sequence[str]:
    """What a cell says by naming it, by DeepSpeed's name for who moves it, by a word for all that shards, or by layers,
    modules or tensors whose activations leave; nothing where it says none of these."""
    if named := [kind for kind in OFFLOADS if kind[:5] in cell]:
        return named
    if moved := next((kinds for words, kinds in _OFFLOADERS if hit(words, cell)), ()):
        return moved
    words = cell if _OPEN.search(cell) else _AROUND.sub("", cell)
    if " ".join(re.sub(r"[_\s-]+", " ", words).split()) in _SHARDS:
        return ("optimizer", "parameters") if zero_stage(run) == SHARDS_ALL else ("optimizer",)
    inside = hit(_LAYERS, cell) or modules_offloaded(run) or offloads_tensors(run)
    return ("activations",) if inside else ()


def modules_offloaded(run: Run) -> str | None:
    """Modules whose activations alone leave, as the cell names them; all where it only says that they are single."""
    cell = (run.text("offload") or "").lower()
    named = dict.fromkeys(_MODULE.findall(cell)) or (OFFLOADABLE if _FINE.search(cell) else ())
    return ",".join(named) or None


def offloaded_share(run: Run) -> float | None:
    """The share that the cell gives of what leaves; None where it gives none."""
    found = _PART.search(_cell(run))
    share = _share_in(found) if found else 0.0
    return share if 0 < share <= _ALL_OF_IT else None


def noted_share(run: Run) -> float | None:
    """The share of activations that notes say leaves; None where they tell none."""
    found = hit(_NOTED_SHARE, run.notes)
    return _share_in(found) if found else None


def _share_in(found: re.Match[str]) -> float:
    return float(found["part"]) if found["part"] else float(found["percent"]) / 100


def layers_offloaded(run: Run) -> int | None:
    """Layers of a stage whose activations leave, as cell or notes tell them; None where they do not."""
    found = hit(_LAYERS, f"{run.text('offload') or ''}; {run.notes}")
    return int(found["count"] or found["told"]) if found else None


def states_return(run: Run) -> bool:
    """Whether states that live in host memory come back to be updated, by the name of Megatron's option."""
    return hit(_RETURNED, f"{run.text('offload') or ''}; {run.notes}") is not None


def on_drives(run: Run) -> bool:
    """Whether the cell says that what leaves the GPU goes on to NVMe drives."""
    return "nvme" in (run.text("offload") or "").lower()


def assumed_offload(run: Run, drives: bool) -> str:
    """What was taken to be in host memory: where the cell names DeepSpeed's way, which may write to NVMe too, or
    ``drives`` whose rates nobody knows."""
    cell = run.text("offload") or ""
    if modules_offloaded(run) and not _MODULE.search(cell.lower()):
        return f"offload {cell!r}: assumed to be of all modules"
    moved = " and ".join(_OFFLOADERS[0][1])
    if on_drives(run):
        return "" if drives else f"offload {cell!r}: assumed to go to host memory"
    if _OFFLOADERS[0][0].search(cell.lower()):
        return f"offload {cell!r}: {moved} assumed to go to host memory"
    return ""
