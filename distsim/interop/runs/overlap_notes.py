"""Which exchanges the notes of a measured run say are beside computation, and which apart from it."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import NO_OVERLAPS, SWITCHED_OFF, affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_TP_OVERLAPPED = re.compile(
    affirmed(r"async(?:hronous)?[- ]?(?:tp|tensor[- ]parallel\w*)|(?:enable_)?async_tensor_parallel"), re.IGNORECASE
)
_EXCHANGES_APART = re.compile(
    r"overlap_comm (?:is )?(?:false|off)|overlap_comm *[=:] *false|\bno overlap[-_]grad[-_]reduce|\bno overlap flags|"
    r"\bno overlap of (?:gradients?|gather)\b|ZeRO-?[123] without overlap|"
    rf"\boverlap[-_]grad[-_]reduce{SWITCHED_OFF}|\boverlap of (?:the )?gradient(?: reduction|s)?{SWITCHED_OFF}|"
    rf"\bgradient (?:reduction|all-?reduce) not overlapped\b|{NO_OVERLAPS}",
    re.IGNORECASE,
)
_GATHERS_APART = re.compile(
    rf"\bno overlap[-_]param[-_]gather\b|\boverlap[-_]param[-_]gather{SWITCHED_OFF}|"
    rf"\boverlap of (?:the )?param(?:eter)? gather{SWITCHED_OFF}|\bparam(?:eter)? gather not overlapped\b",
    re.IGNORECASE,
)


def exchanges_apart(run: Run) -> bool:
    """Whether notes deny that gradients are reduced, and parameters gathered, beside computation."""
    return hit(_EXCHANGES_APART, run.notes) is not None


def gathers_apart(run: Run) -> bool:
    """Whether notes deny that parameters are gathered beside computation, of whatever gradients do."""
    return hit(_GATHERS_APART, run.notes) is not None


def overlaps_tensor_parallel(run: Run) -> bool:
    """Whether tensor parallel exchanges run in pieces beside products (torch's asynchronous tensor parallelism)."""
    return hit(_TP_OVERLAPPED, run.notes) is not None


_EXCHANGE = r"(?:A2A|(?:expert |EP )?all[- ]to[- ]alls?|expert communication|EP(?: communication)?)"
_BESIDE = rf"{_EXCHANGE}[- _]overlap(?:ped)?\b|overlap(?:s|ped)? (?:of )?(?:the )?(?:expert )?{_EXCHANGE}|1F1B overlap"
_EXPERTS_OVERLAPPED = re.compile(
    affirmed(_BESIDE) + r"|overlap[-_]moe[-_]expert[-_]parallel[-_]comm(?![= ]*(?:0|false))|A2A_OVERLAP=1",
    re.IGNORECASE,
)
_EXPERTS_APART = re.compile(
    rf"\b(?:no|without) (?:{_BESIDE})|(?:{_BESIDE})(?:{SWITCHED_OFF}|[ =:]+no\b(?! \w))|A2A_OVERLAP=0|{NO_OVERLAPS}",
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


def overlaps_experts(run: Run) -> bool | None:
    """Whether the notes say that exchanges of experts run beside another micro-batch's computation, or that they do
    not; where they speak of both, the first."""
    notes = run.notes
    beside, apart = hit(_EXPERTS_OVERLAPPED, notes), hit(_EXPERTS_APART, notes)
    if beside and apart:
        return beside.start() < apart.start()
    return True if beside else False if apart else None


def tensor_parallel_apart(run: Run) -> bool:
    """Whether the notes say that tensor parallel exchanges do not run in tiles beside products."""
    return hit(_TP_APART, run.notes) is not None


def leaves_tensor_parallel_out(run: Run) -> bool:
    """Whether the notes list what overlaps, and tensor parallel exchanges are not among it."""
    return _LISTED.match(run.notes or "") is not None
