"""What the notes of a measured run say of its experts: where tokens are sent, what carries them, how many fit."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import SWITCHED_OFF, affirmed, told_of
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_BALANCED = re.compile(
    affirmed(
        r"forced?[-_ ](?:(?:load|expert)[-_ ])?balanc(?:ed?|ing)(?:[-_ ]rout\w*)?|load balancing forced|"
        r"balanced by force|fake balanced|"
        r"(?:moe[-_])?(?:router[-_])?force[-_ ]load[-_ ]balanc\w*|balanced[-_ ](?:gat|rout)\w*|even(?:ly)? rout\w*"
    ),
    re.IGNORECASE,
)
_NATURAL = re.compile(r"\bnatural(?:ly)? rout|\bnot (?:forced to |force[- ])balance", re.IGNORECASE)
_IN_TURN = re.compile(r"\bround[- ]robin\b", re.IGNORECASE)
_SENT_ONCE = "(?:(?:moe[-_])?enable[-_])?(?:deep|hybrid)[- ]?ep"
_SENT_EACH = (
    "(?:nccl )?all[- ]?to[- ]?all dispatcher|all[- ]?gather dispatcher|"
    "(?:moe[-_]token[-_])?dispatcher(?:[-_]type)?[ =:]+all[- ]?(?:to[- ]?all|gather)"
)
_ROUTER_FUSED = "(?:permute and )?router fusion|moe[-_]router[-_]fusion"
_ROUTER_COMPOSED = re.compile(
    rf"\b(?:no|without) (?:{_ROUTER_FUSED})\b|\b(?:{_ROUTER_FUSED}){SWITCHED_OFF}|\brouter not fused\b", re.IGNORECASE
)
_GROUPED = re.compile(
    affirmed(r"(?:torch\._?)?grouped[-_ ]?(?:mm|gemm)s?|_grouped_mm|megablocks|scatter[-_ ]?moe"), re.IGNORECASE
)
_OF_TORCH = re.compile(affirmed(r"(?:torch\._?)?grouped[-_ ]mm|_grouped_mm"), re.IGNORECASE)
_TURBO = re.compile(affirmed(r"(?:use[-_ ])?turbo[-_ ](?:grouped[-_ ](?:gemm|mlp)|gg)"), re.IGNORECASE)
_SYNC_FREE = re.compile(affirmed(r"(?:turbo[-_ ])?sync[-_ ]free(?:[-_ ]moe)?"), re.IGNORECASE)
_LOOPED = re.compile(
    r"\bloop (?:over|of) (?:the |all |\d+ )*experts\b|\bfor-loop over experts\b|"
    r"\bexperts (?:are |as )?a (?:ModuleList|python loop)\b|"
    r"\bno grouped[-_ ]?gemm\b",
    re.IGNORECASE,
)
_CAPACITY = re.compile(
    r"(?<!not with )(?<!eval[ _-])(?:(?<![a-z0-9])capacity[ _-]factor(?: of)?|(?<![a-z])cf)[ =:]{0,3}"
    r"(\d{1,2}(?:\.\d+)?)(?![.\d]*\d)\b(?! in eval)", re.IGNORECASE)  # fmt: skip


def capacity_factor(run: Run) -> float | None:
    """Slots of each expert over the mean of its tokens, where a capacity drops what is beyond and pads what is below;
    in notes or in what the source calls the run. MaxText has none below 0 (base.yml)."""
    told = run.number("capacity_factor")
    found = next(filter(None, (hit(_CAPACITY, run.text(name) or "") for name in ("notes", "source"))), None)
    factor = told if told is not None or found is None else float(found[1])
    return factor if factor and factor > 0 else None


def forced_router(run: Run, usual: str) -> str | None:
    """How the benchmark sends each expert as many tokens, where it does: in turn if notes say so, else as usual."""
    notes = run.notes
    if hit(_IN_TURN, notes):
        return "round-robin"
    balanced, natural = hit(_BALANCED, notes), hit(_NATURAL, notes)
    if balanced is None or (natural is not None and natural.start() < balanced.start()):  # speaks of another run
        return None
    return usual


def sends_once(run: Run) -> bool:
    """Whether notes name a library that sends a token once to each node or rank, however many experts it has there."""
    return told_of(_SENT_ONCE, run.notes)


def sends_each(run: Run) -> bool:
    """Whether notes name Megatron's dispatchers of plain collectives, which send a token to each of its experts, and
    no library that sends it once."""
    return told_of(_SENT_EACH, run.notes) and not sends_once(run)


def fuses_routers(run: Run) -> bool:
    """Whether notes say that a kernel chooses the experts."""
    return told_of(_ROUTER_FUSED, run.notes)


def composes_routers(run: Run) -> bool:
    """Whether notes deny such a kernel, and name it nowhere else."""
    return hit(_ROUTER_COMPOSED, run.notes) is not None and not fuses_routers(run)


def groups_experts(run: Run) -> bool:
    """Whether notes name kernels that multiply the tokens of all experts at once."""
    return hit(_GROUPED, run.notes) is not None


def groups_by_torch(run: Run) -> bool:
    """Whether those kernels are torch's own, between which plain torch puts tokens in order."""
    return hit(_OF_TORCH, run.notes) is not None


def groups_by_turbo(run: Run) -> bool:
    """Whether notes name Primus-Turbo's grouped products, which take all experts of a rank in one kernel."""
    return hit(_TURBO, run.notes) is not None


def counts_on_gpu(run: Run) -> bool:
    """Whether notes say that the host does not wait for how many tokens each expert got."""
    return hit(_SYNC_FREE, run.notes) is not None


def loops_experts(run: Run) -> bool:
    """Whether notes say that code takes one expert after the other."""
    return hit(_LOOPED, run.notes) is not None


_TILES = re.compile(r"\btiles? (?:of )?(\d{2,5})\s*[/x,]\s*(\d{2,5})\s*[/x,]\s*(\d{2,5})\b", re.IGNORECASE)
_USUAL_TILES = ("512", "1024", "1024")
_TOKAMAX = re.compile(
    affirmed(r"tokamax(?:'s)? (?:gmm|grouped|ragged)\w*|use_tokamax_gmm['\"]?[ =:]+true"), re.IGNORECASE
)
_MEGABLOX = re.compile(affirmed(r"megablox"), re.IGNORECASE)


def fits_tiles(run: Run) -> bool:
    """Whether notes tell of tiles of experts' products on TPUs that are not the defaults, or of Tokamax's kernel, which
    recipes give tiles."""
    if found := hit(_TILES, run.notes):
        return found.groups() != _USUAL_TILES
    return hit(_TOKAMAX, run.notes) is not None


def leaves_tiles(run: Run) -> bool:
    """Whether they tell of the defaults, or of the kernel that has them without a word of tiles."""
    return not fits_tiles(run) and (hit(_TILES, run.notes) or hit(_MEGABLOX, run.notes)) is not None
