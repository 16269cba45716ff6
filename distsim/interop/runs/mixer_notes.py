"""What the notes of a measured run say of what mixes tokens or residual streams beside attention."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_STREAMS_COMPILED = re.compile(
    affirmed(r"(?:hyper[- ]connections|mhc) (?:are )?(?:compiled|fused)|fused (?:hyper[- ]connections?|mhc)"),
    re.IGNORECASE,
)


def compiles_streams(run: Run) -> bool:
    """Whether notes say that a compiler made kernels of what mixes residual streams."""
    return hit(_STREAMS_COMPILED, run.notes) is not None


_DELTA_IN_TORCH = re.compile(
    r"\btorch_chunk_gated_delta_rule\b|\b(?:no|without) (?:fla|flash[- ]linear[- ]attention)\b|"
    r"\b(?:fla|flash[- ]linear[- ]attention) (?:is |was )?not installed\b",
    re.IGNORECASE,
)


def computes_delta_in_torch(run: Run) -> bool:
    """Whether notes say that plain torch computes the gated delta rule, or that its kernels' package is missing."""
    return hit(_DELTA_IN_TORCH, run.notes) is not None
