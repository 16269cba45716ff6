"""A job in a few words, for what a notebook shows of a report, and its options as they are typed."""

from __future__ import annotations

from typing import Any

from distsim.engine.jobs.resolve import Setup


def few(setup: Setup) -> str:
    """``llama-7b on 8 x h100-sxm``."""
    return f"{setup.model.name} on {setup.layout.gpus} x {setup.gpu_words}"


def flag(name: str, value: Any) -> str:
    """A job's option as a user types it."""
    spelled = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{spelled}" if value else f"--no-{spelled}"
    return f"--{spelled} {value}"
