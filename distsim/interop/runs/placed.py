"""Megatron's layout strings in the notes of measured runs: which chunk of a pipeline holds which layers."""

from __future__ import annotations

import re
from typing import Any

from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run
from distsim.specs.stage_layers import parse, predictions

_STRING = re.compile(r"\blayout[ =:]+['\"]?(E[EtmL|()*\d ]*L)(?![\w|(])")


def placed_by_notes(run: Run, pp: int, layers: int) -> dict[str, Any]:
    """Options of a placement that notes tell: layers of chunks, chunks of a stage, layers of multi-token prediction;
    nothing where it is not one of so many ``layers`` on ``pp`` stages."""
    found = hit(_STRING, run.notes) if pp > 1 else None
    if found is None:
        return {}
    try:
        chunks = parse(found[1])
    except ValueError:
        return {}
    if sum(chunks) != layers or len(chunks) % pp:
        return {}
    return {"stage_layers": chunks, "vpp": len(chunks) // pp, "mtp": predictions(found[1]) or None}
