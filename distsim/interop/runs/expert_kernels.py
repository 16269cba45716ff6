"""By which kernels the notes of a measured run say that its experts were chosen, ordered and multiplied."""

from __future__ import annotations

import re
from typing import Any

from distsim.interop.runs.denials import SWITCHED_OFF, affirmed, told_of
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_MLP_FUSED = re.compile(affirmed("CuTeDSL|fused grouped MLP"), re.IGNORECASE)
_DIST_MOE = re.compile(affirmed("dist-?moe"), re.IGNORECASE)
_LIBRARY = re.compile(affirmed("sonic_cute|QuACK"), re.IGNORECASE)
"""Names of CUTLASS kernels for experts that software of other grouped products can call."""
_STASHED = re.compile(affirmed("paged stash(?:ing)?"), re.IGNORECASE)


def fused_experts(run: Run) -> bool:
    """Whether the notes say that experts are multiplied in one fused kernel."""
    return hit(_MLP_FUSED, run.notes) is not None


def stashed(run: Run) -> bool:
    """Whether the notes say that what experts keep lies in pages that the GPU counts, without the host."""
    return hit(_STASHED, run.notes) is not None


def torchtitan_experts(run: Run) -> dict[str, Any]:
    """Kernels that torchtitan's DistMoE puts in the place of its own: dispatch, experts and combination are one, which
    sends tokens while it multiplies others."""
    if not hit(_DIST_MOE, run.notes):
        return {}
    return {"expert_kernel": "library", "expert_index": "fused", "expert_overlap": True}


def library_experts(run: Run) -> dict[str, Any]:
    """Grouped products of a library in the place of the framework's own, where the notes name one."""
    return {"expert_kernel": "library"} if hit(_LIBRARY, run.notes) else {}


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
    rf"\b(?:no|without) grouped[-_ ]?gemms?\b|\bmoe[-_]grouped[-_]gemm{SWITCHED_OFF}|{affirmed('SequentialMLP')}",
    re.IGNORECASE,
)


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


_SLICED = re.compile(
    affirmed(
        r"F\.linear of each slice|loops? over slices|slices of (?:one|a) (?:fused )?(?:tensor|parameter)|"
        r"experts_implementation['\"]?[ =:]+['\"]?eager"
    ),
    re.IGNORECASE,
)


def slices_experts(run: Run) -> bool:
    """Whether notes say that a loop takes each expert's matrix as a slice of a tensor of all."""
    return hit(_SLICED, run.notes) is not None


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
