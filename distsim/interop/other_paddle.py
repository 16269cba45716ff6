"""What PaddleNLP's Trainer states in words of its own. Keys and words as in its training arguments (recalled)."""

from __future__ import annotations

import re

from distsim.interop.other_stated import Stated

_ON = (True, 1, "1", "true", "True")
"""How a switch is turned on that may be a number."""


def paddle(told: dict[str, str], stated: Stated) -> None:
    """Stages of sharding by name, with states offloaded or not (``stage2 offload``), chunks, switches that are numbers,
    and the one beside the extent of recomputation."""
    sharding = f"{stated.of('sharding')}"
    if stage := re.search(r"stage([123])", sharding):
        told["zero"] = stage[1]
    if "offload" in sharding:
        told["offload"] = "optimizer"
    if (chunks_each := stated.number("virtual_pp_degree")) > 1:
        told["vpp"] = f"{chunks_each}"
    if stated.of("sequence_parallel") in _ON:
        told["sequence_parallel"] = ""
    if stated.of("recompute") not in _ON:
        told.pop("recompute", None)
    elif stated.of("recompute_granularity") in ("full_attn", "core_attn"):
        told["recompute"] = "selective"
