"""When the torch that a run's notes name was released, which says more of its kernels than the year of the run."""

from __future__ import annotations

import re

from distsim.interop.runs.hits import hit, told
from distsim.interop.runs.table import Run

TORCH = {
    "1.6": 2020.57, "1.7": 2020.82, "1.8": 2021.17, "1.9": 2021.46, "1.10": 2021.80, "1.11": 2022.19, "1.12": 2022.49,
    "1.13": 2022.82, "2.0": 2023.20, "2.1": 2023.76, "2.2": 2024.08, "2.3": 2024.31, "2.4": 2024.56, "2.5": 2024.79,
    "2.6": 2025.08, "2.7": 2025.31, "2.8": 2025.60, "2.9": 2025.79, "2.10": 2026.06,
}  # fmt: skip
"""Release -> year and its part (github.com/pytorch/pytorch/releases; recalled)."""
_TORCH = r"(?<![\w-])(?:py)?torch(?: ?[=v:]+ ?| )v?"
_NAMED = re.compile(rf"{_TORCH}(\d\.\d+)(?!\d)", re.IGNORECASE)
_CONTAINER = re.compile(r"\b(?:NGC|nvcr|containers?)\b|\b2[3-9]\.\d\d-py3\b", re.IGNORECASE)
"""NVIDIA's, whose torch is built with libraries of its own."""


def in_container(run: Run) -> bool:
    """Whether notes say that torch came in a container."""
    return hit(_CONTAINER, run.notes) is not None


def names_torch(run: Run, release: tuple[int, int]) -> bool:
    """Whether notes name this release of torch or a newer one, and no older one."""
    named = [tuple(map(int, one.split("."))) for one in told(_NAMED, run.notes)]
    return bool(named) and min(named) >= release


def names_exactly(run: Run, release: str) -> bool:
    """Whether notes name this patch of a release."""
    return hit(re.compile(rf"{_TORCH}{re.escape(release)}(?!\d)", re.IGNORECASE), run.notes) is not None


def torch_released(run: Run) -> float | None:
    """The year of the torch that notes name; None where they name none, one that is newer than all of these, or
    several."""
    named = told(_NAMED, run.notes)
    return TORCH.get(named.pop()) if len(named) == 1 else None
