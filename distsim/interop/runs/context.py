"""How context parallel ranks of a measured run exchange what they must, where its words say so."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_MODES = tuple(
    (re.compile(words, re.IGNORECASE), mode) for words, mode in (
        (r"ulysses|all.?to.?all|a2a|\bisp\b", "all_to_all"), (r"all.?gather", "all_gather"), (r"\bring|p2p", "ring"),
    )
)  # fmt: skip
"""DeepSpeed's and Megatron's words (--cp-comm-type p2p, all_gather, a2a) for what goes between the ranks; InternEvo's
isp trades heads for tokens as DeepSpeed-Ulysses does."""
_IN_NOTES = (
    re.compile(affirmed(r"ulysses|ring.?(?:flash.?)?attention"), re.IGNORECASE),
    re.compile(affirmed(r"(?:ring|p2p|all.?gather|a2a|all.?to.?all)[-\s](?:context.?parallel\w*|cp)"), re.IGNORECASE),
    re.compile(
        r"\b(?:context.parallel\w*|cp)(?:[\s=:_(-]+(?:ranks?|comm|type|mode|by|via|with|as))*[\s=:_(-]+"
        r"(?:all.?to.?all|a2a|all.?gather|p2p|ring)\b",
        re.IGNORECASE,
    ),
)
"""Notes speak of many exchanges: only those that name the attention, or stand beside context parallelism, count."""


def context_mode(run: Run) -> str | None:
    """``ring``, ``all_to_all`` or ``all_gather``; None where nothing or more than one is named."""
    if column := run.text("cp_mode"):
        return _only(column)
    notes = run.notes
    named = (pattern for pattern in _IN_NOTES if hit(pattern, notes))
    said = "; ".join(found[0] for pattern in named for found in pattern.finditer(notes))
    return next(filter(None, map(_only, (run.text("cp"), run.text("attention"), run.text("framework"), said))), None)


def _only(words: str | None) -> str | None:
    named = [mode for pattern, mode in _MODES if pattern.search(words or "")]
    return named[0] if len(named) == 1 else None


def assumed_context(run: Run, cp: int, mode: str) -> str:
    """A cell that names no way of exchange, and one that heads rule out."""
    column, named = run.text("cp_mode"), context_mode(run)
    if cp == 1 or named == mode or not (column or named):
        return ""
    if named is None:
        return f"cp_mode {(column or '')[:40]!r} is not one of ring, all_to_all, all_gather: assumed {mode}"
    return f"{named} over {cp} ranks does not divide the heads: assumed {mode}"
