"""What notes of runs say of CUDA graphs, kernels of experts and output layers, and of exchanges beside products."""

from __future__ import annotations

import re
from typing import Any

from distsim.interop.runs.denials import BEFORE, NO_OVERLAPS, SWITCHED_OFF, UNTOLD, affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_WHOLE = r"(?:full|whole|entire)[- _](?:iteration|step|program)"
_SWITCH = r"(?:enable|external|mcore|layer)_cuda_graphs?"
"""Settings of Megatron core and of MLPerf's configurations of it."""
_GRAPHS = (
    ("none", rf"(?:\b(?:no|without|neither|not using) (?:{_WHOLE} )?CUDA[- ]graphs?\b|"
             r"\bCUDA[- ]graphs?(?: did not take effect|(?:(?: is| are| was| were)? |[=:] ?)(?:none|false|never|"
             r"(?:turned |switched )?off|disabled|not (?:used|enabled|supported|available|possible|captured))\b))"
             r"(?! (?:for|in|during) (?:the )?(?:eval|validation|test|inference))|cuda[-_]graph[-_]impl[ =:]+none|"
             rf"\b{_SWITCH}[ =:]+(?:0|false|off)\b"),
    ("iteration", rf"\b(?={_WHOLE} CUDA){BEFORE}{_WHOLE} CUDA[- ]graphs?\b|"
                  r"cuda[-_]graph[-_](?:impl|scope)[= ]full_iteration|"
                  rf"\bCUDA[- ]graphs? (?:of|for) (?:the |a )?{_WHOLE.replace('[- _]', ' ')}"),
    ("modules", rf"\bCUDA[- ]graphs?\b(?!{UNTOLD})|\b(?={_SWITCH}){BEFORE}{_SWITCH}\b(?![ =:]+(?:0|false|off)\b)|"
                r"cuda[-_]graph[-_]impl[= ](?:transformer_engine|local)"),
)  # fmt: skip
"""What graphs hold, by the words for it; those for all of a step and for nothing say more than the bare name, which is
that of modules' graphs: MLPerf's, Megatron core's ``local`` and Transformer Engine's."""
_PATTERNS = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _GRAPHS)
_EXCHANGE = r"(?:A2A|(?:expert |EP )?all[- ]to[- ]alls?|expert communication|EP(?: communication)?)"
_BESIDE = rf"{_EXCHANGE}[- _]overlap(?:ped)?\b|overlap(?:s|ped)? (?:of )?(?:the )?(?:expert )?{_EXCHANGE}|1F1B overlap"
_OVERLAPPED = re.compile(
    affirmed(_BESIDE) + r"|overlap[-_]moe[-_]expert[-_]parallel[-_]comm(?![= ]*(?:0|false))|A2A_OVERLAP=1",
    re.IGNORECASE,
)
_APART = re.compile(
    rf"\b(?:no|without) (?:{_BESIDE})|(?:{_BESIDE})(?:{SWITCHED_OFF}|[ =:]+no\b(?! \w))|A2A_OVERLAP=0|{NO_OVERLAPS}",
    re.IGNORECASE,
)
_FUSED = re.compile(affirmed("CuTeDSL|fused grouped MLP"), re.IGNORECASE)
_DIST_MOE = re.compile(affirmed("dist-?moe"), re.IGNORECASE)
_LIBRARY = re.compile(affirmed("sonic_cute|QuACK"), re.IGNORECASE)
"""Names of CUTLASS kernels for experts that software of other grouped products can call."""
_ORDERING = re.compile(r"\bolmo[-_ ]?core", re.IGNORECASE)
"""Software that puts tokens in their experts' order by kernels written for it: Transformer Engine's moe_permute, or
MegaBlocks' before (allenai/OLMo-core nn/moe/v2/no_ep.py and nn/moe/ops.py)."""
_NARROW_HEAD = re.compile(
    affirmed(r"(?:mx)?fp8 (?:lm[- ]?head|output (?:projection|layer|head))")
    + r"|\bfp8_output_proj\b(?![ =:]*(?:0|false))",
    re.IGNORECASE,
)
_TP_APART = re.compile(
    r"\b(?:tp|tensor[- ]parallel)[-_ ](?:comm(?:unication)?[-_ ])?overlap(?:[ =:]+| is | was )"
    r"(?:off|no|none|false|disabled|0)\b|"
    r"\b(?:no|without) (?:tp|tensor[- ]parallel) (?:comm(?:unication)? )?overlap\b|"
    rf"\boverlap of (?:the )?(?:tp|tensor[- ]parallel)(?: comm(?:unication)?s?| exchanges?)?{SWITCHED_OFF}|"
    + NO_OVERLAPS,
    re.IGNORECASE,
)
_TP = r"(?:tp|tensor[- ]parallel)[-_ ](?:comm(?:unication)?[-_ ])?overlap|user[- ]?buffers"
_STATES = r"(?:gradient|parameter)s?"
_DATA = (
    rf"overlap[-_ ](?:of )?(?:the )?(?:grad|param)\w*|{_STATES}(?: and {_STATES})? overlap|"
    r"(?:optimizer|reduction|gather) with overlap"
)
_LISTED = re.compile(rf"(?s)(?=.*?(?:{affirmed(_DATA)}))(?!.*?(?:{affirmed(_TP)}))", re.IGNORECASE)
"""Notes that name the overlap of gradients or parameters, and none of tensor parallel ranks."""
_STASHED = re.compile(affirmed("paged stash(?:ing)?"), re.IGNORECASE)


def graphs_of(run: Run) -> str | None:
    """Which parts of a step the notes say that CUDA graphs hold; where they speak of another run too, the first."""
    notes = run.notes
    found = [(one.start(), place, kind) for place, (kind, words) in enumerate(_PATTERNS) if (one := hit(words, notes))]
    return min(found)[2] if found else None


def overlaps_experts(run: Run) -> bool | None:
    """Whether the notes say that exchanges of experts run beside another micro-batch's computation, or that they do
    not; where they speak of both, the first."""
    notes = run.notes
    beside, apart = hit(_OVERLAPPED, notes), hit(_APART, notes)
    if beside and apart:
        return beside.start() < apart.start()
    return True if beside else False if apart else None


def fused_experts(run: Run) -> bool:
    """Whether the notes say that experts are multiplied in one fused kernel."""
    return hit(_FUSED, run.notes) is not None


def narrow_head(run: Run) -> bool:
    """Whether the notes say that output layers multiply in the recipe's 8 bits, too."""
    return hit(_NARROW_HEAD, run.notes) is not None


def tensor_parallel_apart(run: Run) -> bool:
    """Whether the notes say that tensor parallel exchanges do not run in tiles beside products."""
    return hit(_TP_APART, run.notes) is not None


def leaves_tensor_parallel_out(run: Run) -> bool:
    """Whether the notes list what overlaps, and tensor parallel exchanges are not among it."""
    return _LISTED.match(run.notes or "") is not None


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


def ordering_kernels(run: Run) -> dict[str, Any]:
    """Kernels that order tokens, where software without a profile has them."""
    return {"expert_index": "fused"} if hit(_ORDERING, run.text("framework") or "") else {}
