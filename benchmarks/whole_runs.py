"""Accelerator-hours of whole training runs, published and predicted: python benchmarks/whole_runs.py [FILE.csv]

With --fit instead of a file, the pace of campaigns is fitted to the shipped runs first and written to presets/timing;
with --docs the table in docs/whole-runs.md, what is told beneath it, and the lines of docs/prices.md are written.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy
from whole_hours import WholeRun, median_error, shipped, whole_runs

from distsim import catalog
from distsim.engine.campaigns.pace import PACE, campaign_ends, campaign_pace
from distsim.engine.fitting.write import spread, weighted_quantile

Ratios = list[tuple[float, str]]
"""Published over predicted hours, and the source of each."""
PAGE = Path(__file__).parent.parent / "docs" / "whole-runs.md"
MARK = re.compile(r"(<!-- whole runs -->\n).*?(<!-- end -->)", re.DOTALL)
METERED = {"olmo-7b": "OLMo 7B, A100", "olmo-2-7b": "OLMo 2 7B, H100", "olmo-2-13b": "OLMo 2 13B, H100"}
"""Runs whose energy was measured, as docs/prices.md names them."""
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


def table_row(one: WholeRun) -> str:
    """The run's line of the table in docs/whole-runs.md."""
    run = one.run
    cells = [run.id, run.text("layout") or "", run.text("hours_count") or "", f"{one.published or 0:,.0f}"]
    if one.reason:
        return "| " + " | ".join([*cells, "", "", "beyond the chip's peak"]) + " |"
    error = percent(one.error or 0, "+")
    return "| " + " | ".join([*cells, f"{one.of_steps:,.0f}", f"{one.with_failures:,.0f}", error]) + " |"


def put_table(found: list[WholeRun]) -> None:
    """Write every run with published hours to its line in docs/whole-runs.md."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    known = {one.run.id: table_row(one) for one in found if one.published}
    told = [known.get(line.split("|")[1].strip(), line) if line.startswith("| ") else line for line in lines]
    page = MARK.sub(lambda mark: f"{mark[1]}\n{summary(found)}\n\n{mark[2]}", "\n".join(told) + "\n")
    PAGE.write_text(page, encoding="utf-8")


def put_energy(found: list[WholeRun]) -> None:
    """Write the errors of measured energy to docs/prices.md."""
    page = PAGE.with_name("prices.md")
    text = page.read_text(encoding="utf-8")
    for run, told in energy(found).items():
        text = re.sub(rf"(?m)^(\| {METERED[run]} \|.*\| )[^|]*( \|)$", rf"\g<1>{told}\g<2>", text)
    page.write_text(text, encoding="utf-8")


def percent(error: float, sign: str = "") -> str:
    """An error as the docs have it."""
    return f"{error:{sign}.0%}".replace("-", "−")


def energy(found: list[WholeRun]) -> dict[str, str]:
    """Errors of measured energy."""
    return {one.run.id: percent(one.energy_error, "+") for one in found if one.energy_error is not None}


def ratios_of(runs: Sequence[WholeRun]) -> Ratios:
    """Published over predicted hours, with who published them, of runs that were judged."""
    return [(one.published / one.judged, one.run.text("source") or "") for one in runs if one.error is not None]


def fitted_pace(ratios: Ratios) -> float:
    """The median of published over predicted hours, each source weighing alike."""
    count = Counter(source for _, source in ratios)
    weights = numpy.array([1 / count[source] for _, source in ratios])
    return weighted_quantile(numpy.array([ratio for ratio, _ in ratios]), weights, 0.5)


def left_one_out(ratios: Ratios) -> list[float]:
    """Error of each prediction at the pace that all other runs have: predicted over published, less one."""
    return [fitted_pace([*ratios[:at], *ratios[at + 1 :]]) / ratio - 1 for at, (ratio, _) in enumerate(ratios)]


def summary(found: list[WholeRun]) -> str:
    """The paragraph beneath the table in docs/whole-runs.md."""
    judged = [one for one in found if one.error is not None]
    known = [one for one in judged if one.run.text("layout") == "known"]
    searched = [one for one in judged if one.run.text("layout") != "known"]
    others = statistics.median(map(abs, left_one_out(ratios_of(judged))))
    low, high = campaign_ends(1.0, 1.0)
    short, seven, thirteen = (energy(found)[run] for run in METERED)
    inside = sum(one.covered is True for one in judged)
    every, own, guessed = (percent(median_error(some)) for some in (judged, known, searched))
    return (
        f"Median of the absolute errors: {every} over {len(judged)} runs, and {percent(others)} if each run is "
        f"compared with the pace of all the others; {own} over the {len(known)} with a known layout, {guessed} over "
        f"the {len(searched)} with a searched one. {inside} of {len(judged)} are within the interval of their step "
        f"times. Plans use the wider of two intervals, that of the step time and that of these runs, 90% of which "
        f"(each source weighing alike) took {low:.2f} to {high:.2f} times the hours that the pace of all the others "
        f"gives. Measured energy of the "
        f"accelerators: OLMo 7B {short}, OLMo 2 7B {seven}, 13B {thirteen} ([prices](prices.md))."
    )


def main() -> None:
    """Print every run, and medians."""
    fit = "--fit" in sys.argv
    files = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    if fit:
        write(ratios_of(whole_runs(shipped())))
    found = whole_runs(files[0] if files and not fit else shipped())
    print(HEAD, *map(line, found), sep="\n")
    for name, some in (
        ("all", found),
        ("layout known", [one for one in found if one.run.text("layout") == "known"]),
        ("layout searched", [one for one in found if one.run.text("layout") != "known"]),
    ):
        judged = [one for one in some if one.error is not None]
        if judged:
            inside = sum(one.covered is True for one in judged)
            ratios = ratios_of(judged)
            if len(ratios) > 1:
                out = statistics.median(map(abs, left_one_out(ratios)))
                print(f"pace fitted to all others, {name}: median error {out:.0%}")
            told = f"{len(judged)} runs, {inside} in the intervals of their steps"
            print(f"median error, {name}: {median_error(judged):.0%} ({told})")
    if "--docs" in sys.argv:
        put_table(found)
        put_energy(found)


def write(ratios: Ratios) -> None:
    """The preset with the pace that makes the median ratio 1, and how far each run lies from the pace of all others."""
    file = catalog.path("timing", PACE)
    stretch = campaign_pace() * fitted_pace(ratios)
    errors = left_one_out(ratios)
    over, under = spread(numpy.log1p(errors), [source for _, source in ratios])
    text = file.read_text(encoding="utf-8")
    known = {"stretch": stretch, "left_out_error": statistics.median(map(abs, errors)), "over": over, "under": under}
    for name, value in known.items():
        text = re.sub(rf"(?m)^{name} = [0-9.]+$", f"{name} = {value:.2f}", text)
        print(f"{file}: {name} = {value:.2f}")
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
