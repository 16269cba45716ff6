"""What the notes of a measured run say of how tokens get to its experts: where to, by what, and how many fit."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed, told_of
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_BALANCED = re.compile(
    affirmed(
        r"forced?[-_ ](?:(?:load|expert)[-_ ])?balanc(?:ed?|ing)(?:[-_ ]rout\w*)?|load balancing forced|"
        r"balanced by force|fake balanced|"
        r"(?:moe[-_])?(?:router[-_])?force[-_ ]load[-_ ]balanc\w*|balanced[-_ ](?:gat|rout)\w*|even(?:ly)? rout\w*|"
        r"(?:random|uniform)(?:ly)?[-_ ](?:expert[-_ ])?(?:rout(?:ing|ed)|assign\w*)"
    ),
    re.IGNORECASE,
)
_NATURAL = re.compile(r"\bnatural(?:ly)? rout|\bnot (?:forced to |force[- ])balance", re.IGNORECASE)
_IN_TURN = re.compile(r"\bround[- ]robin\b", re.IGNORECASE)
_SENT_ONCE = "(?:(?:moe[-_])?enable[-_])?(?:deep|hybrid)[- ]?ep"
_GATHERED = "all[- ]?gather dispatcher|(?:moe[-_]token[-_])?dispatcher(?:[-_]type)?[ =:]+all[- ]?gather"
_SENT_EACH = (
    "(?:nccl )?all[- ]?to[- ]?all dispatcher|(?:moe[-_]token[-_])?dispatcher(?:[-_]type)?[ =:]+all[- ]?to[- ]?all|"
    r"dispatcher(?: [\w']+){0,3} NCCL|" + _GATHERED
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


def gathers_all(run: Run) -> bool:
    """Whether notes name Megatron's dispatcher that gathers all tokens of ranks with parts of the same experts."""
    return told_of(_GATHERED, run.notes) and not sends_once(run)


def sends_each(run: Run) -> bool:
    """Whether notes name Megatron's dispatchers of plain collectives, which send a token to each of its experts, and
    no library that sends it once."""
    return told_of(_SENT_EACH, run.notes) and not sends_once(run)
