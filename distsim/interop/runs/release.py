"""When a measured run's software was released: by a release that its words name, or by the cell of its year."""

from __future__ import annotations

import functools
import re

from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run
from distsim.interop.runs.torch_releases import torch_released

# "26.04.01 NeMo Container", "NeMo container 25.09", "nvcr.io/nvidia/nemo:24.07", "(tag v25.10)": NVIDIA
# numbers these by year and month.
_NAMED = re.compile(
    r"\b(?P<a>2\d)\.(?P<b>0[1-9]|1[0-2])(?:\.\d+)? NeMo container"
    r"|NeMo(?: container| framework)?[ :-](?P<c>2\d)\.(?P<d>0[1-9]|1[0-2])"
    r"|tag v(?P<e>2\d)\.(?P<f>0[1-9]|1[0-2])",
    re.IGNORECASE,
)

_SIGNS = {
    re.compile("MP mode PURE precision label bf16"): 2023 + 4 / 12,
    re.compile(r"Megatron-LM CI golden values\b.*\((?:2|9|19) values\)"): 2025.5,
}
"""By what a table shows of its release. The benchmarks of mosaicml/llm-foundry name the precision bf16 in the tables of
May 2023, which its README of 2024 carries on beside newer ones, and amp_bf16 from then on. Megatron-LM's tests recorded
every fifth step in 2025, all steps since (its pull request 4238)."""
_CELL = re.compile(r"(?P<year>20\d\d)(?P<part>\.\d+)?(?:[-/](?P<month>0?[1-9]|1[0-2])(?!\d))?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]*\b", re.IGNORECASE)


def release_year(run: Run) -> float | None:
    """The year with its months as a fraction, e.g. 2025.75 for 25.10; None where no release is named."""
    found = hit(_NAMED, f"{run.text('source') or ''} | {run.notes}")
    if found is None:
        return next((year for sign, year in _SIGNS.items() if hit(sign, run.notes)), None)
    year, month = (int(part) for part in found.groups() if part is not None)
    return 2000 + year + (month - 1) / 12


def stated_year(run: Run) -> float | None:
    """The year that the cell tells: with a fraction as it stands (2025.75), to the middle of a month that it names
    (2025-03, 2025/3, March 2025); where it is blank, that of the torch that notes name; else None."""
    told = _year_in(run.text("year") or "")
    return torch_released(run) if told is None else told


@functools.lru_cache(maxsize=256)
def _year_in(text: str) -> float | None:
    found = _CELL.search(text)
    if found is None:
        return None
    year, named = float(found["year"] + (found["part"] or "")), _NAMED_MONTH.search(text)
    month = int(found["month"]) if found["month"] else _MONTHS.index(named[1].lower()) + 1 if named else 0
    return year + (month - 0.5) / 12 if month and not found["part"] else year
