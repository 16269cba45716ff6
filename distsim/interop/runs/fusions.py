"""Which fusions the notes of a measured run say were on or off."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_ACTIVATIONS_PLAIN = re.compile(
    r"\beager activations?\b|\b(?:no|without) (?:fused activations?|bias[-_]activation[-_]fusion)|"
    r"bias[-_]activation[-_]fusion(?:[ =:]+|\s+is\s+)(?:off|false|not set)|--no-bias-swiglu-fusion|"
    r"\bactivations?(?: and loss(?:es)?)?(?: are)? not fused\b",
    re.IGNORECASE,
)


def composes_activations(run: Run) -> bool:
    """Whether notes say that Megatron's fused activations are off, as they are unless a recipe turns them on."""
    return hit(_ACTIVATIONS_PLAIN, run.notes) is not None


_LOSS_COMPILED = re.compile(
    r"cross[-_]entropy[-_]loss[-_]fusion[ =:]+true(?!.*fusion[-_]impl[ =:]+te)|(?<!te )(?<!te-)(?<!engine )"
    + affirmed("fused (?:cross[- ]entropy|ce)|cross[- ]entropy fusion")
    + r"(?! \(te\))"
)
"""A flag of Megatron-LM's own; Transformer Engine's loss is another."""


def compiles_loss(run: Run) -> bool:
    """Whether notes tell of Megatron core's own fused cross entropy, whose steps torch compiles."""
    return hit(_LOSS_COMPILED, run.notes.lower()) is not None


_LOSS_OF_TE = re.compile(
    affirmed(
        r"(?:TE|Transformer Engine)(?:'s)?[- ](?:fused (?:cross[- ]entropy|ce)|cross[- ]entropy fusion)|"
        r"fusion[-_]impl[ =:]+te"
    ),
    re.IGNORECASE,
)


def overwrites_logits(run: Run) -> bool:
    """Whether notes tell of Transformer Engine's cross entropy, which writes gradients over the logits."""
    return hit(_LOSS_OF_TE, run.notes) is not None


_LOSS_PLAIN = re.compile(
    r"\b(?:no|without) (?:fused (?:cross[- ]entropy|ce|loss)|(?:cross[- ]entropy|loss) fusion)\b|"
    r"\b(?:loss|cross[- ]entropy)(?: is)? not fused\b",
    re.IGNORECASE,
)


def composes_loss(run: Run) -> bool:
    """Whether notes say that no fused kernel computes the loss, as in Megatron core unless a recipe asks for one."""
    return hit(_LOSS_PLAIN, run.notes) is not None


_ROTATES_PLAINLY = re.compile(
    r"(?:apply[-_])?rope[-_ ]fusion(?:[ =:]+|\s+is\s+)(?:off|false|not set)\b|--no-rope-fusion\b|"
    r"\b(?:no|without) (?:(?:rope|rotary)[-_ ]fusion|fused (?:rope|rotation|rotary))\b",
    re.IGNORECASE,
)


def composes_rotation(run: Run) -> bool:
    """Whether notes say that no fused kernel rotates queries and keys, as in Megatron's TransformerConfig unless a
    recipe or provider turns apply_rope_fusion on."""
    return hit(_ROTATES_PLAINLY, run.notes) is not None


def fuses_norms(run: Run) -> bool:
    """Whether notes tell of one kernel for an RMSNorm, where the software composes it unless asked."""
    return hit(_NORMS_FUSED, run.notes.lower()) is not None


_NORMS_FUSED = re.compile(affirmed(r"fused rms[-_ ]?norms?"))


def fuses_rotation(run: Run) -> bool:
    """Whether notes tell of one kernel that rotates queries and keys, where the software composes it unless asked."""
    return hit(_ROTATION_FUSED, run.notes.lower()) is not None


_ROTATION_FUSED = re.compile(affirmed(r"fused (?:rms[-_ ]?norms? and )?(?:rope|rotary|rotation)"))
