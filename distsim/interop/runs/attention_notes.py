"""What notes of measured runs say of attention that is composed of products and a softmax, and of who has kernels for
either."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_EXTENSION = re.compile(r"\bipex\b|intel[-_ ]extension", re.IGNORECASE)
"""Intel's extension of torch, which brings kernels of its own (recalled: XeTLA's)."""
_MEGATRON = re.compile(r"megatron(?:[-_ ]?lm)?", re.IGNORECASE)
_UNFUSED = re.compile(
    r"\bplain xla\b|(?<!takes )(?<!has )\b(?:no|without) flash[- ]?attention\b(?! flag)"
    r"(?![^;.,]{0,40}\b(?:took|takes|gave|gives|would|needs?|ran|runs|reached)\b)",
    re.IGNORECASE,
)
"""What notes call attention that is composed of products and a softmax, where they do not tell of another run."""
_OWN_SOFTMAX = re.compile(affirmed("transformer engine|deepspeed transformer kernel"), re.IGNORECASE)
"""Who brings a kernel for the softmax between those products, in 16 bits, where frameworks have none (the former's JAX
layers, transformer_engine/jax/flax/transformer.py, _UnfusedDotProductAttention; the latter's
csrc/transformer/softmax_kernels.cu)."""
_LEVANTERS = re.compile(r"\b(?:jax_flash|vanilla)\b", re.IGNORECASE)
"""Levanter's backends that compose attention (layers/attention.py, AttentionBackend): softmax in the format of queries
unless upcast_attn is set, in one kernel where XLA fuses what is along a row (its Triton softmax on GPUs). Its mixtures
of experts (Grug) have attention of their own."""


def composes_attention(run: Run) -> bool:
    """Whether notes tell that attention was composed."""
    return hit(_UNFUSED, run.notes) is not None


def has_torch_extension(run: Run) -> bool:
    """Whether notes name Intel's extension of torch."""
    return hit(_EXTENSION, run.notes) is not None


def is_megatron(run: Run) -> bool:
    """Whether the cell names Megatron-LM itself, not one of its relatives."""
    return _MEGATRON.fullmatch(run.text("framework") or "") is not None


def has_own_softmax(run: Run) -> bool:
    """Whether notes name software with a kernel for a softmax by itself."""
    return hit(_OWN_SOFTMAX, run.notes) is not None


def names_levanters(run: Run) -> bool:
    """Whether cell or notes name a backend of Levanter's that composes attention."""
    return hit(_LEVANTERS, f"{run.text('attention')}; {run.notes}") is not None
