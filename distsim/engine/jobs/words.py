"""A job in a few words, for what a notebook shows of a report."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup


def few(setup: Setup) -> str:
    """``llama-7b on 8 x h100-sxm``."""
    return f"{setup.model.name} on {setup.layout.gpus} x {setup.gpu_words}"
