"""Whose modules a network is made of, as measured runs say: its author's own, or those of transformers."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_BY_HAND = re.compile(
    affirmed(
        r"(?:network|model)s? (?:is |was )?(?:written by hand|of its own)|own (?:network|model|layers) (?:in|of) plain|"
        r"in (?:the (?:repository|author)'s|their|its) own code|written out in the (?:script|kernel|notebook)|"
        r"(?:own|hand-?written) (?:[\w-]+ )?(?:gpt|llama|transformer|modules)"
    ),
    re.IGNORECASE,
)
_TRANSFORMERS = re.compile(r"hugging ?face|\btransformers\b(?! layer)|\bhf\b", re.IGNORECASE)
_TRANSFORMERS_MODEL = re.compile(
    affirmed(r"(?:hugging ?face|transformers|hf)(?:/timm)?(?:'s?)? (?:[\w.-]+ )?(?:models?|modules|implementation)"),
    re.IGNORECASE,
)


def writes_network(run: Run) -> bool:
    """Whether notes call the network written by hand."""
    return hit(_BY_HAND, run.notes) is not None


def names_transformers(run: Run) -> bool:
    """Whether software, source or notes name Hugging Face."""
    return hit(_TRANSFORMERS, f"{run.text('framework')} {run.source} {run.notes}") is not None


def has_transformers_modules(run: Run) -> bool:
    """Whether notes say that the modules are transformers'."""
    return hit(_TRANSFORMERS_MODEL, run.notes) is not None
