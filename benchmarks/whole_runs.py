"""Accelerator-hours of whole training runs, published and predicted: python benchmarks/whole_runs.py [FILE.csv]"""

from __future__ import annotations

import sys
from pathlib import Path

from distsim.engine.whole_runs import WholeRun, median_error, shipped, whole_runs

HEAD = f"{'run':<20} {'layout':<9} {'hours':<11} {'published':>11} {'steps':>11} {'goodput':>11} {'error':>6}"


def line(one: WholeRun) -> str:
    """One run; the error is that of the column that counts what the published hours count."""
    run = one.run
    start = f"{run.id:<20} {run.text('layout') or '':<9} {run.text('hours_count') or '':<11}"
    if one.reason:
        return f"{start} not replayed: {one.reason}"
    published = f"{one.published:,.0f}" if one.published else "-"
    error = "-" if one.error is None else f"{one.error:+.0%}"
    energy = ""
    if one.energy_error is not None:
        energy = f"  {one.run.number('accelerator_mwh'):,.0f} MWh, predicted {one.accelerator_mwh:,.0f}: "
        energy += f"{one.energy_error:+.0%}"
    return f"{start} {published:>11} {one.of_steps:>11,.0f} {one.with_failures:>11,.0f} {error:>6}{energy}"


def main() -> None:
    """Print every run, and medians."""
    found = whole_runs(Path(sys.argv[1]) if len(sys.argv) > 1 else shipped())
    print(HEAD, *map(line, found), sep="\n")
    for name, some in (
        ("all", found),
        ("layout known", [one for one in found if one.run.text("layout") == "known"]),
        ("layout searched", [one for one in found if one.run.text("layout") != "known"]),
    ):
        judged = [one for one in some if one.error is not None]
        if judged:
            inside = sum(one.covered is True for one in judged)
            print(f"median error, {name}: {median_error(judged):.0%} ({len(judged)} runs, {inside} in their intervals)")


if __name__ == "__main__":
    main()
