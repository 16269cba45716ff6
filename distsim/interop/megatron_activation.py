"""The activation of an MLP as Megatron's arguments and the YAML of NeMo and Megatron-Bridge state it. Names are those
of NVIDIA/Megatron-LM megatron/training/arguments.py and core/transformer/transformer_config.py, and of NVIDIA/NeMo
megatron_gpt_config.yaml (recalled); activation_func with its _target_ as in run_config.yaml that Megatron-Bridge
writes beside its checkpoints (looked up 2026-12)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.interop.megatron_network import Sizes

GATED = {"swiglu": "silu", "fast-swiglu": "silu", "geglu": "gelu", "fast-geglu": "gelu", "reglu": "relu",
         "quick-geglu": "gelu"}  # fmt: skip
PLAIN = {"gelu": "gelu", "squared-relu": "relu2", "relu": "relu", "openai-gelu": "gelu"}
FUNCTION = "activation_func"
"""Key of an activation's function, by its name or its place in Python."""
_FUNCTIONS = {**PLAIN, "silu": "silu", "swish": "silu", "quick-gelu": "gelu", "fast-gelu": "gelu"}


def activation_of(sizes: Sizes) -> tuple[bool, str]:
    """Whether the MLP has a gate, and its activation function."""
    named = sizes.get("activation") or _function(sizes)
    word = f"{named or ''}".lower().replace("_", "-")
    word = "swiglu" if sizes.on("swiglu") else "squared-relu" if sizes.on("squared_relu") else word
    word = "quick-geglu" if sizes.on("quick_geglu") else word
    gated = sizes.on("gated_linear_unit")
    if word in GATED:
        return True, GATED[word]
    if word and word not in _FUNCTIONS:
        known = ", ".join(dict.fromkeys([*GATED, *_FUNCTIONS]))
        raise DistsimError(f"activation {named!r} is unknown", f"it is one of {known}", where=sizes.where)
    if not word:
        switch = sizes.typed("swiglu" if sizes.arguments else FUNCTION if gated else "activation")
        sizes.assume(f"gelu {'with' if gated else 'without'} a gate (no {switch})")
    return gated, _FUNCTIONS.get(word, "gelu")


def _function(sizes: Sizes) -> str:
    """The last part of a function's name: ``silu`` of ``torch.nn.functional.silu`` and of ``${act:silu}``."""
    return re.split(r"[.:]", f"{sizes.get(FUNCTION) or ''}".rstrip("}"))[-1]
