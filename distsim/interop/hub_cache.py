"""Models in the Hugging Face Hub's cache on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cached(name: str) -> Path | None:
    """The newest config.json of a model in the Hugging Face Hub's cache on this machine."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
    return newest(folder)


def newest(folder: Path) -> Path | None:
    """The newest config.json in a model's folder of the Hub's cache."""
    found = sorted(folder.glob("snapshots/*/config.json"), key=lambda one: one.stat().st_mtime)
    return found[-1] if found else None
