"""What ends a model's name without changing its shape: roles, dates of these, formats of stored weights, tuning."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ROLE = re.compile(
    r"-(?:hf|chat|instruct|it|pt|base|thinking|reasoning)(?:-(?:\d{4}|\d{6}|v\d+(?:\.\d+)?))?$", re.IGNORECASE
)
"""What a variant is for, and its date or version. No bare dates: GLM-4-9B-0414 is another network than GLM-4-9B."""
_FORMAT = re.compile(
    r"-(?:(?:unsloth-)?bnb-[48]bit|[48]bit|(?:nv|mx)?fp[48](?:-dynamic|-block)?|fp16|bf16|awq|gguf"
    r"|(?:gptq|autoround)(?:-int[48])?|int[48]|w4a16|w8a8)$",
    re.IGNORECASE,
)
_TRAINING = re.compile(r"-(?:q?lora|sft|dpo|pre-?train(?:ed|ing)?|deduped)$", re.IGNORECASE)
"""How a run trained, where its model's name says so."""


def shorter_names(name: str, *, trained: bool = False) -> Iterator[str]:
    """A model's name, then without what ends it, one end at a time; ``trained`` takes off how it was trained too."""
    ends = (_FORMAT, _ROLE, _TRAINING) if trained else (_FORMAT, _ROLE)
    yield name
    while shorter := next((name[: end.start()] for one in ends if (end := one.search(name))), ""):
        name = shorter
        yield name


def names_format(name: str) -> bool:
    """Whether a model's name ends in a format of stored weights, such as bnb-4bit."""
    return any(_FORMAT.search(one) for one in shorter_names(name))
