"""What the notes of a measured run say of MLPs that run on one tile of tokens after another."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_TILED = re.compile(
    affirmed(r"tiled[ _-]?mlps?(?:[ _-]comput(?:e|ation))?|mlps? (?:is |are )?(?:in tiles|tiled)"), re.IGNORECASE
)
_COUNT = re.compile(
    r"\bmlps? in (?P<count>\d{1,4}) tiles\b|"
    r"\btiled[ _-]?mlp[^;.]{0,20}?\bnum_shards[ =:]+(?P<shards>\d{1,4})\b",
    re.IGNORECASE,
)


def mlp_tiles(run: Run) -> int | str | None:
    """``auto``, or as many as notes tell; None where they tell of no tiles."""
    found = hit(_COUNT, run.notes)
    count = int(found["count"] or found["shards"]) if found else 0
    if count > 1:
        return count
    return "auto" if hit(_TILED, run.notes) else None
