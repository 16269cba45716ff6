"""What cells of measured runs call attention: which of them are flash, which are composed of products and a softmax."""

from __future__ import annotations

import math
import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

KERNELS = (
    (re.compile(r"flash[-_ ]?(?:attention|attn)?[-_ ]?v?1(?![\d.])|\bfa[-_ ]?1\b", re.IGNORECASE), "flash-1"),
    (re.compile(r"flash[-_ ]?(?:attention|attn)?[-_ ]?v?2|\bfa[-_ ]?2\b", re.IGNORECASE), "flash-2"),
    (re.compile(r"flash[-_ ]?(?:attention|attn)?[-_ ]?v?[34]|\bfa[-_ ]?[34]\b|cu-?dnn", re.IGNORECASE), "own"),
    (re.compile("flex", re.IGNORECASE), "flex"),
)
"""Words that name a kernel (own: written for Hopper or Blackwell)."""
_PACKAGE = re.compile(
    affirmed(
        r"flash[-_]attn(?: package)?[ =]+v?([12])\.[\d.]*\d(?![\d.]*\d)|"
        r"(?:picks|takes|runs) (?:the )?flash[- ]?attention-([12])"
    ),
    re.IGNORECASE,
)
"""Notes name the package with its version, of which the first generation is 0.x and 1.x, the second 2.x, or the
generation that torch picks."""
_EAGER = re.compile(
    r"(?:\bno|\bnon|\bnot|without|\bw/o)[-_\s]*(?:flash|fused|fa\d?\b)"
    r"|flash[-\w]*(?: attention)?[\s:=]+(?:is |was )?(?:disabled|off|false|0)\b|eager|unfused"
    r"|naive|\bmath\b|vanilla|composed|full.?softmax"
    r"|(?:^|[:=])\s*(?:none|no|off|false|0|local|plain|torch|dot[-_ ]product)$"
    r"|^(?!.*(?:flash|sdpa|scaled)).*\bstandard\b",
    re.IGNORECASE,
)
"""``local`` is Megatron's --transformer-impl and --attention-backend of composed attention, ``dot_product`` MaxText's
name of it (configs/base.yml)."""
_FLASH = re.compile(
    r"flash|flex|\bfa[-_]?\d?\b|cu-?dnn|sdpa|scaled.?dot|fused|xformers|memory.?efficient|mem.?eff|splash|pallas|cutlass"
    r"|triton|transformer.?engine|\bte\b|aiter|\bck\b|ulysses|\bring\b|^(?:true|yes|on|1)$",
    re.IGNORECASE,
)
_REJECTED = re.compile(r"(?:\b(?:no|non|not|without|w/o)|instead of)[-_\s]+(?:flash[-\w]*|fa[-_ ]?\d?|eager)\b", re.I)
_FIRST_PALLAS = re.compile(r"torch.?prime|torch.?xla", re.IGNORECASE)
"""Whose flash attention is JAX's first Pallas kernel for TPUs unless splash attention is asked for (torch_xla,
experimental/custom_kernel.py)."""
_SPLASH = re.compile(affirmed(r"splash\w*"), re.IGNORECASE)
_BLOCK = re.compile(
    r"\bsa_block_q['\"]?[ =:]+(\d+)|splash attention(?:, block[ _-]sizes?| (?:with|in) blocks of) ([\d,]+\d)",
    re.IGNORECASE,
)
_KEYS = re.compile(r"\bsa_block_kv['\"]?[ =:]+(\d+)", re.IGNORECASE)
_FUSED = re.compile(
    r"\bsa_use_fused_bwd_kernel['\"]?[ =:]+(?P<own>true|1|on|yes)?|"
    r"\b(?P<always>use_tokamax_splash)['\"]?[ =:]+(?:true|1|on|yes)\b|"
    r"(?<!no )(?<!not )(?<!without )\b(?P<kernel>tokamax(?:'s)? (?:splash|flash)(?: attention)?)\b",
    re.IGNORECASE,
)
"""MaxText's switches; Tokamax's backward is one kernel whatever the first says (a MaxText log of July 2026 on v6e:
equal to 0.01% with it on and off)."""
_NARROW = re.compile(
    r"(?<!but )(?<!except )"
    + affirmed(
        r"(?:mx)?fp8[-_ ](?:attention|dpa|dot[-_ ]product[-_ ]attention)|8[- ]bit attention|attention in (?:mx)?fp8"
    )
    + r"|\bfp8_(?:dpa|mha)[ =:]+(?:true|1)\b",
    re.IGNORECASE,
)
_BY_BLOCKS = re.compile(affirmed(r"jax[-_ ]flash"), re.IGNORECASE)
"""Levanter's backend JAX_FLASH is a loop over blocks of 1,024 tokens whose products and exponentials are operations of
their own, so that scores pass through memory (levanter models/flash_attention.py)."""
_SPARSE = re.compile(
    affirmed(
        r"(?:batched )?(?:sparse[- ]attention|dsa|flashmla)(?: \(?dsa\)?)? kernels?|sparse mla|tilelang|"
        r"(?:fused|cu-?dnn|batched) dsa|"
        r"flex[-_ ]?attention|flex masks?"
    ),
    re.IGNORECASE,
)
_USUAL = ("auto", "default", "usual", "unknown")


def attention_said(run: Run) -> str | None:
    """``flash`` or ``eager`` as the cell says; None where it is blank or of unknown words. Blocks that a program itself
    goes through are composed ones."""
    cell = run.text("attention") or ""
    if hit(_BY_BLOCKS, f"{cell}; {run.notes}"):
        return "eager"
    rest = _REJECTED.sub(" ", cell)
    if rest != cell and _FLASH.search(rest) and not _EAGER.search(rest):
        return "flash"  # FlashAttention-2 (no FA3)
    return "eager" if _EAGER.search(cell) else "flash" if _FLASH.search(cell) else None


def kernel_said(run: Run) -> str | None:
    """The kernel of flash attention that the cell names."""
    cell = run.text("attention") or ""
    older = _FIRST_PALLAS.search(run.text("framework") or "") and not _SPLASH.search(f"{cell} {run.notes}")
    package = hit(_PACKAGE, run.notes)
    noted = "pallas" if older else f"flash-{package[1] or package[2]}" if package and not _EAGER.search(cell) else None
    if hit(_FUSED, run.notes) and any(found["always"] or found["kernel"] for found in _FUSED.finditer(run.notes)):
        noted = "tokamax"
    return next((kernel for words, kernel in KERNELS if words.search(cell)), noted)


def block_said(run: Run) -> int | None:
    """Tokens along a block of splash attention, where notes tell them (MaxText's sa_block_q, and sa_block_kv where
    keys' are others: a square of as many tokens)."""
    found, keys = hit(_BLOCK, run.notes), hit(_KEYS, run.notes)
    if found is None:
        return None
    queries = int((found[1] or found[2]).replace(",", ""))
    return round(math.sqrt(queries * int(keys[1]))) if keys else queries


def fuses_backward(run: Run) -> bool | None:
    """Whether notes say that splash attention's backward is one kernel; None where they do not tell."""
    told = list(_FUSED.finditer(run.notes)) if hit(_FUSED, run.notes) else []
    return any(found["own"] or found["always"] or found["kernel"] for found in told) if told else None


def narrow_attention(run: Run, precision: str) -> str | None:
    """The format of attention in 8 bits where notes say that it ran so: blocks' where products have those (Transformer
    Engine takes the recipe of its linear layers)."""
    if hit(_NARROW, run.notes) is None:
        return None
    return "mxfp8" if precision.startswith("mxfp8") else "fp8"


def names_flash(run: Run) -> bool:
    """Whether the cell names FlashAttention itself, which takes a sliding window without a mask, and not torch's choice
    among kernels."""
    cell = run.text("attention") or ""
    return attention_said(run) == "flash" and ("flash" in cell.lower() or kernel_said(run) is not None)


def assumed_attention(run: Run) -> str:
    """What a cell was taken for whose words nobody knows."""
    cell = run.text("attention") or ""
    if not cell or attention_said(run) or cell.lower() in _USUAL:
        return ""
    return f"attention {cell[:40]!r} is not known: treated as blank"


def reads_chosen_keys(run: Run) -> bool:
    """Whether a cell or notes name kernels for sparse attention, or torch's FlexAttention, whose masks of blocks stand
    for them: neither has the scores of all keys in memory."""
    told = f"{run.text('attention') or ''}; {run.notes}"
    return kernel_said(run) == "flex" or hit(_SPARSE, told) is not None


_DENSE_MASK = re.compile(affirmed("dense (?:attention |causal )?mask"), re.IGNORECASE)


def masks_densely(run: Run) -> bool:
    """Whether notes tell that attention is given a mask of all queries and keys, as compiled models of transformers
    give it from 4.53 of June 2025 on, with torch before 2.14, and all of 4.53.1 to 4.57 without mask and cache of
    their own (its masking_utils.py, _ignore_causal_mask_sdpa and find_packed_sequence_indices)."""
    return hit(_DENSE_MASK, run.notes) is not None
