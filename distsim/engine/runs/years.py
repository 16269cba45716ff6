"""When a measured run's software was made, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.interop.runs import Run
from distsim.interop.runs.release import release_year, stated_year
from distsim.specs.traffic import Traffic

TODAY = 2026.9
"""The year, with its months as a fraction, of the newest software that presets describe: when evidence was last
gathered (November 2026). It is no clock's: answers stay what they are until presets change, and move with them."""
MIDDLE = 0.5
"""Of a year."""
TORCH_2 = 2023.2
"""Release 2.0 of PyTorch, of March 2023: ``zero_grad`` lets gradients go, and optimizers update all tensors of a GPU at
once where nobody says."""


def run_year(run: Run) -> float:
    """The year of a run's software, to the month where a release is named; today's where nobody says, as for a job."""
    return release_year(run) or stated_year(run) or TODAY


def recipe_year(run: Run) -> float:
    """The year by which a run's recipes are chosen: its middle where nobody says the month, since a table of a year
    has the recipes of any of its releases, and its first is the least likely."""
    year = run_year(run)
    return year + MIDDLE if release_year(run) is None and run.text("year") and year == int(year) else year


def year_ended(run: Run) -> float:
    """The latest that a run's software may be: the end of its year where nobody says the month."""
    year = run_year(run)
    return year + 1 if year == int(year) else year


def before_torch_2(run: Run) -> bool:
    """Whether a run's software is older than PyTorch 2.0."""
    return year_ended(run) <= TORCH_2


def in_force(entries: Mapping[int, dict[str, Any]] | Mapping[float, dict[str, Any]], year: float) -> dict[str, Any]:
    """What held in a year, of entries by the last year that each held in (2024) or by the date at which it ended
    (2025.25): all that had not ended, of which those that end first win."""
    ends = {last + (last == int(last)): found for last, found in entries.items()}
    return {name: kernel for end in sorted(ends, reverse=True) if year < end for name, kernel in ends[end].items()}


def dated_traffic(year: float, rules: Traffic) -> dict[str, Any]:
    """What a framework exchanged otherwise at that time."""
    told: dict[str, Any] = {}
    if year < rules.experts_by_columns_since:
        told["experts_by_columns_since"] = 0
    if year < rules.tokens_kept_since:
        told["recompute_keeps"] = tuple(one for one in rules.recompute_keeps if one != "all_to_all")
    if year < rules.recompute_stops_until:
        told["recompute_stops_early"] = True
    if year < rules.owned_op_since:
        told["owned_op"] = "reduce_scatter"
    return told


def micro_batches_per_stage(run: Run, usual: Mapping[str, Any]) -> int | None:
    """Micro-batches for a stage of pipelines whose number nobody says, as long as a framework's releases cut a rank's
    batch into so many; None where they cut it into single samples. ``usual`` is its preset's."""
    until = usual.get("micro_batches_per_stage_until")
    per_stage: int | None = usual.get("micro_batches_per_stage")
    return None if until is not None and run_year(run) >= until else per_stage
