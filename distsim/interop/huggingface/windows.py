"""Sliding attention windows: how wide, and which layers have one."""

from __future__ import annotations

from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface.aliases import NAMES
from distsim.interop.huggingface.families import Family
from distsim.interop.huggingface.fields import Fields

LOCAL = {"sliding_attention", "chunked_attention", "local", "local_attention", "sliding", "sliding_window"}
BLOCKS = "minimax_m3_sparse"
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
"""Kinds of DeepSeek-V4's layers beside those with a window alone."""
GLOBAL = {"full_attention", "global", "attention", "global_attention", "full", "indexed_attention", BLOCKS, *COMPRESSED,
          "reference_sliding_attention"}  # fmt: skip
"""The last sees a window and all that comes before the answer (Unlimited-OCR): the whole prompt."""


def read_window(fields: Fields, family: Family, layers: int) -> dict[str, Any]:
    """``window`` and ``window_pattern`` of the model."""
    pattern = None if family.recurrent else _stated_pattern(fields, layers)
    every = (*family.names.get("window_every", ()), *NAMES["window_every"])
    fields.settled(*every, "max_window_layers")
    window = fields.whole(*family.names.get("window", ()), *NAMES["window"], least=0)
    if fields.flag("use_sliding_window", default=True) is False or not window:
        return {}
    if pattern is None:
        pattern = _periodic_pattern(fields, layers, every)
    if not any(pattern):
        return {}
    return {"window": window, "window_pattern": () if all(pattern) else pattern}


def _stated_pattern(fields: Fields, layers: int) -> tuple[bool, ...] | None:
    """One kind of attention per layer; a kind that is not attention makes the model a hybrid."""
    kinds = fields.row(*NAMES["layer_types"], length=layers)
    if kinds is None:
        return None
    for layer, kind in enumerate(kinds):
        if kind not in LOCAL | GLOBAL if isinstance(kind, str) else True:
            raise DistsimError(
                f"layer {layer} is {str(kind)[:40]!r}, which is not attention",
                "only attention layers are read here; hybrids with other layers are not supported",
                where=fields.where,
            )
    return tuple(kind in LOCAL for kind in kinds)


def sliding(fields: Fields, kinds: list[Any]) -> dict[str, Any]:
    """``window`` and ``window_pattern`` of a hybrid, some of whose layers attend within a window."""
    width, pattern = fields.whole("sliding_window", least=0), tuple(kind == "sliding_attention" for kind in kinds)
    return {"window": width, "window_pattern": pattern} if width and any(pattern) else {}


def _periodic_pattern(fields: Fields, layers: int, names: tuple[str, ...]) -> tuple[bool, ...]:
    """Every n-th layer full, the others local; or full up to ``max_window_layers``; else all local."""
    name, every = fields.find(*names)
    if isinstance(every, str) and every and set(every) <= {"L", "G"}:  # EXAONE 4 writes LLLG
        return tuple(every[layer % len(every)] == "L" for layer in range(layers))
    if every is not None:
        period = fields.as_whole(name, every)
        return tuple((layer + 1) % period != 0 for layer in range(layers))
    first = fields.whole("max_window_layers", least=0) or 0
    return tuple(layer >= first for layer in range(layers))
