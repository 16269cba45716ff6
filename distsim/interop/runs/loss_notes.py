"""What the notes of a measured run say of its loss: which one, in how many chunks, over which positions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run
from distsim.interop.runs.whose_modules import writes_network

_LOSSES = (
    ("foak-liger", re.compile(affirmed("foak-fast-kernels-liger"), re.IGNORECASE)),
    ("foak", re.compile(affirmed("foak(?:-fast-kernels)?"), re.IGNORECASE)),
    ("liger", re.compile(affirmed("liger"), re.IGNORECASE)),
    ("cut", re.compile(affirmed("cut cross entropy"), re.IGNORECASE)),
    ("triton", re.compile(affirmed(r"(?:fused )?triton cross[- ]entropy"), re.IGNORECASE)),
)
WHOLE_LIGER = "liger-logits"
"""Its loss of whole logits, where that is what a framework switches on with it."""
_FUSED_LINEAR = re.compile(
    affirmed(
        r"fused[-_ ]?linear[-_ ]?(?:cross[-_ ]?entropy|ce)(?:loss)?|"
        r"linear[-_ ](?:cross[-_ ]?entropy|ce) fused with the (?:head|output layer)|"
        r"(?:lm_head|output layer) and cross[- ]entropy,? (?:their )?gradients? computed in the same pass"
    ),
    re.IGNORECASE,
)
"""A name that each library has for its own way to multiply and take the loss at once."""
_FUSED = re.compile(affirmed(r"fused[-_ ]?(?:cross[-_ ]?entropy|ce)"), re.IGNORECASE)
"""Where a library has a loss of the output layer's inputs and no other fused one, that is the fused one."""
_FUSED_OTHERS = {"liger", "fused-linear"}
"""Other fused ones, beside which no words say which is meant."""
_CHUNKED = re.compile(
    affirmed(
        r"chunked[-_ ](?:nll|loss|ce)|chunkedceloss|\w*loss in (?:\w+ )?chunks|loss chunks|"
        r"chunks (?:the |its )?logits|cross[- ]entropy (?:\w+ ){0,5}in (?:\w+ )?chunks"
    ),
    re.IGNORECASE,
)
_WHOLE_LOGITS = re.compile(affirmed("logits are made whole"), re.IGNORECASE)
_POLICY = re.compile(affirmed(r"RL trainer|policy loss"), re.IGNORECASE)
"""What trains on log-probabilities of the tokens alone (PrimeIntellect-ai/prime-rl's RL trainer)."""
_LOSS_CHUNKS = re.compile(
    affirmed(r"(\d{1,4}|two|four|eight|sixteen) loss chunks|\w*loss in (\d{1,4}|two|four|eight|sixteen) chunks"),
    re.IGNORECASE,
)
_CHUNK_TOKENS = re.compile(
    r"loss in chunks of (\d[\d,]*) tokens|cross[- ]entropy (?:\w+ ){0,5}in chunks of (\d[\d,]*)\b", re.IGNORECASE
)
_NUMBERS = {"two": 2, "four": 4, "eight": 8, "sixteen": 16}
_PICKED = re.compile(
    affirmed("dense_seq_output|(?:only|logits of) masked positions|masked positions (?:alone|only)"), re.IGNORECASE
)
_ALL_POSITIONS = re.compile(r"\bdense_seq_output ?[=:]+ ?(?:false|0|off|no)\b", re.IGNORECASE)
MASKED_SHARE = 0.15
"""Positions that BERT masks (Devlin et al. 2018, arXiv:1810.04805, section 3.1)."""


def predicted_share(run: Run) -> float | None:
    """The share of positions whose logits are computed, where notes tell: those that BERT masks where they are picked
    first (NVIDIA's dense_seq_output), or all, padding among them, as where whole iterations are graphs
    (config_DGXA100_512x8x3x1.sh of MLPerf v1.0)."""
    if hit(_PICKED, run.notes):
        return MASKED_SHARE
    return 1.0 if hit(_ALL_POSITIONS, run.notes) else None


def loss_of(run: Run, own: Sequence[str] = ()) -> str | None:
    """The loss that notes name in place of the framework's, by its preset; a chunked one, and one fused with the output
    layer, is that of its ``own`` where it has one."""
    notes = run.notes
    named = next((name for name, words in _LOSSES if hit(words, notes)), None)
    if hit(_WHOLE_LOGITS, notes):  # whatever other kernels of a library were put into the model
        return None
    if named == "liger" and writes_network(run) and hit(_FUSED_LINEAR, notes):  # whose patches are for other models
        return "fused-linear"
    if named:
        return WHOLE_LIGER if named == "liger" and WHOLE_LIGER in own else named
    if "cut" in own and not _FUSED_OTHERS.intersection(own) and (hit(_FUSED, notes) or hit(_FUSED_LINEAR, notes)):
        return "cut"
    if hit(_FUSED_LINEAR, notes):
        return "fused-linear"
    chunked = next((name for name in own if name.startswith("chunked")), None)
    of_tokens = chunked == "chunked-logprobs" and hit(_POLICY, notes)
    return chunked if of_tokens or hit(_CHUNKED, notes) else None


def loss_chunks(run: Run) -> int:
    """How many chunks the notes say that the loss is computed in; 0 where they do not."""
    found = hit(_LOSS_CHUNKS, run.notes)
    said = (found[1] or found[2]).lower() if found else "0"
    return _NUMBERS.get(said) or int(said)


def chunk_tokens(run: Run) -> int:
    """How many tokens the notes say that a chunk of the loss has; 0 where they do not."""
    found = hit(_CHUNK_TOKENS, run.notes)
    return int((found[1] or found[2]).replace(",", "")) if found else 0


_UNCOMPILED = re.compile(
    affirmed(
        r"(?:loss|cross[- ]entropy)(?: that)?(?: is)? (?:not compiled|left eager|outside (?:of )?(?:the compiled model|"
        r"torch\.?compile))"
    ),
    re.IGNORECASE,
)
_WIDENED = re.compile(r"logits\.float\(\)|\bfp32 logits\b", re.IGNORECASE)


def uncompiled_loss(run: Run) -> dict[str, Any]:
    """The kernels of a loss that stands outside of the model that torch.compile was given, as notes tell; of fp32
    copies of the logits where they tell of these, too."""
    if not hit(_UNCOMPILED, run.notes):
        return {}
    wide = bool(hit(_WIDENED, run.notes))
    return {"loss": "eager", "loss_kernel": None, "loss_upcast": wide, "loss_holds_logits": wide or "narrow"}


_MASKED = re.compile(affirmed("MaskedCrossEntropy"))
_NARROW = re.compile(r"fp32_upcast\W{0,3}(?:is )?(?:false|off)\b|\bbf16 logits\b", re.IGNORECASE)


def widens_masked(run: Run) -> bool:
    """Whether notes name NeMo Automodel's MaskedCrossEntropy, which makes logits fp32 unless told otherwise, as its
    benchmarks' configurations do (components/loss/masked_ce.py, fp32_upcast)."""
    return hit(_MASKED, run.notes) is not None and not hit(_NARROW, run.notes)


_READ = r"(?:loss|cross[- ]entropy) (?:of|over) (?:the )?"
_AS_THEY_ARE = re.compile(affirmed(_READ + r"(?:bf16|bfloat16|fp16|float16|16-bit) logits"), re.IGNORECASE)
_COPIED = re.compile(affirmed(_READ + r"(?:(?:fp32|float32) logits|logits\.float)"), re.IGNORECASE)


def reads_narrow_logits(run: Run) -> bool:
    """Whether notes tell of a loss of 16-bit logits as a model gives them, as a loop takes it that calls cross entropy
    itself where the model's own loss has fp32 copies (transformers' models without labels)."""
    return hit(_AS_THEY_ARE, run.notes) is not None


def reads_wide_logits(run: Run) -> bool:
    """Whether notes tell of a loss of fp32 copies of the logits."""
    return hit(_COPIED, run.notes) is not None


_LOSS_ALONE = re.compile(affirmed("keeps the loss alone"), re.IGNORECASE)


def keeps_loss_alone(run: Run) -> bool:
    """Whether notes tell that nothing but the loss outlives forward."""
    return hit(_LOSS_ALONE, run.notes) is not None
