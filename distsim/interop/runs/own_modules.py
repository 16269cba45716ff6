"""Modules that a network's author wrote of elementary operations, as notes tell of them."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_BEFORE = r"(?:own|hand-?written|composed) "
_AFTER = r"(?: (?:are|is))? (?:written (?:out|by hand)|composed)"
_NORMS, _RMS, _GELU, _SILU = r"layer[- _]?norms?", r"rms[- _]?norms?", r"gelus?", r"(?:silus?|swiglus?)"
_SOFTMAX, _UPDATE = r"softmax(?:es)?", r"adamw"
_ANY = rf"(?:{_NORMS}|{_RMS}|{_GELU}|{_SILU}|{_SOFTMAX}|{_UPDATE})"


def _said(words: str) -> re.Pattern[str]:
    """One of several modules that a list calls an author's own."""
    before, after = (
        rf"{_BEFORE}(?:{_ANY}(?:,| and| or|, and) )*{words}\b",
        rf"{words}(?:(?:,| and| or|, and) {_ANY})*{_AFTER}",
    )
    return re.compile(affirmed(f"{before}|{after}"), re.IGNORECASE)


_OWN_NORM, _OWN_RMS, _OWN_GELU, _OWN_SILU = _said(_NORMS), _said(_RMS), _said(_GELU), _said(_SILU)
_OWN_SOFTMAX, _OWN_UPDATE = _said(_SOFTMAX), _said(_UPDATE)


_COURSE = re.compile(affirmed(r"BasicsTransformerLM|cs336(?:[-_ ]basics)?"), re.IGNORECASE)
"""The network of a course (stanford-cs336/assignment2-systems, cs336-basics), whose products are einsum and whose
norms, softmax, rotation and SiLU are of elementary operations; its AdamW is, too, but who times it may take torch's."""
_EINSUM = re.compile(
    affirmed(r"einsum (?:linears?|linear layers|products|projections)|(?:linears?|linear layers|products) by einsum"),
    re.IGNORECASE,
)
_PAIRS = re.compile(affirmed(r"(?:rotation|rotary embeddings?|rope) (?:of|by) pairs"), re.IGNORECASE)


def writes_norms(run: Run) -> bool:
    """Whether notes tell of layer norms of elementary operations: ``own LayerNorm``, ``LayerNorm written out``."""
    return hit(_OWN_NORM, run.notes) is not None


def writes_rms_norms(run: Run) -> bool:
    """Whether notes tell of an RMSNorm of elementary operations in fp32: ``own RMSNorm``."""
    return hit(_OWN_RMS, run.notes) is not None or _course(run)


def writes_silu(run: Run) -> bool:
    """Whether notes tell of a SiLU of a sigmoid and a product: ``own SwiGLU``."""
    return hit(_OWN_SILU, run.notes) is not None or _course(run)


def writes_gelu(run: Run) -> bool:
    """Whether notes tell of a GELU of elementary operations."""
    return hit(_OWN_GELU, run.notes) is not None


def writes_softmax(run: Run) -> bool:
    """Whether notes tell of a softmax of elementary operations."""
    return hit(_OWN_SOFTMAX, run.notes) is not None or _course(run)


def writes_update(run: Run) -> bool:
    """Whether notes tell of an AdamW of elementary operations out of place: ``own AdamW``, ``AdamW written out``."""
    return hit(_OWN_UPDATE, run.notes) is not None


def multiplies_by_einsum(run: Run) -> bool:
    """Whether notes tell of ``einsum linears`` in the place of torch's modules."""
    return hit(_EINSUM, run.notes) is not None or _course(run)


def rotates_pairs(run: Run) -> bool:
    """Whether notes tell of a ``rotation of pairs``: channels with a stride of two by their cosines and sines."""
    return hit(_PAIRS, run.notes) is not None or _course(run)


def _course(run: Run) -> bool:
    return hit(_COURSE, f"{run.text('source') or ''}; {run.notes}") is not None
