"""What a plan was asked for and is in no option, beside others that are, is told with the reason."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.campaigns.prices import Quote
from distsim.engine.figures import Figures
from distsim.engine.plans.goodput import Goodput
from distsim.engine.plans.parts import partial_rents
from distsim.engine.plans.plan import Candidate, options

FAST: dict[str, Any] = {"tp": 1, "pp": 1, "zero": 1, "recompute": "none", "micro_batch": 1, "provider": "nebius"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"gpus": "16,8000000", "tp": None, "pp": None},
            "left out: 8,000,000 accelerators, which would take more than 10 years, or fail",
        ),
        (
            {"gpus": "16", "cluster": "nebius-h100", "gpu": "h100,b200"},
            "left out: b200-sxm, which none of the clusters",
        ),
        (
            {"gpus": "16", "cluster": "nebius-h100,nebius-b200"},
            "left out: nebius-b200, whose accelerators are not those",
        ),
    ],
)
def test_what_is_in_no_option_is_told(asked: dict[str, Any], told: str) -> None:
    made = distsim.plan("llama-2-7b", "30B", **{**FAST, "gpu": "h100-sxm", **asked})
    assert {one.gpus for one in made.options} == {16} and {one.gpu for one in made.options} == {"h100-sxm"}
    (note,) = (one for one in made.notes if one.startswith("left out: "))
    assert note.startswith(told)


def test_sizes_and_chips_on_which_nothing_fits_are_told() -> None:
    made = distsim.plan("llama-2-7b", "30B", **{**FAST, "provider": None, "micro_batch": 2, "gpus": "8,16"},
                        gpu=["h100-sxm", "v100-sxm2-16gb"])  # fmt: skip
    why = "on which no layout of llama-2-7b that was tried fits"
    assert [one for one in made.notes if one.startswith("left out")] == [f"left out: v100-sxm2-16gb, {why}"]
    small = distsim.plan("llama-2-7b", "30B", **FAST, gpu="h100-sxm", gpus="8,16", global_batch=16)
    assert not [one for one in small.notes if one.startswith("left out")]
    large = distsim.plan("llama-2-70b", "30B", **{**FAST, "tp": 8, "pp": [1, 2, 4]}, gpu="h100-sxm", gpus="8,32")
    assert f"left out: 8 accelerators, {why.replace('7b', '70b')}" in large.notes


def test_chips_on_which_the_options_are_wrong_are_told_so() -> None:
    made = distsim.plan("llama-3.2-1b", "1B", gpu="gb10,h100-sxm", gpus="1,8", offload="optimizer", price=2)
    (note,) = (one for one in made.notes if one.startswith("left out"))
    assert note == "left out: gb10: gb10 and its host have one memory: --offload optimizer frees none of it"
    assert {one.gpu for one in made.options} == {"h100-sxm"}


def rent(rate: float, provider: str, together: int) -> Quote:
    return Quote(provider, "h100-sxm", "", together, "", "on-demand", rate, "2026-09", "a page", cluster="dgx-h100")


def test_lower_rents_are_left_out_for_some_numbers_only() -> None:
    """Compared with the cheapest of each number of GPUs, not with whatever is dearest."""
    known = [rent(2.4, "one", 1), rent(2.9, "two", 2), rent(3.0, "node", 8), rent(9.0, "dear", 8)]
    kept = Goodput(8, 1e5, 600, 1, 10, 600, 1.0, 1.0, 1.0, Figures())
    sizes = {1: known, 2: known[1:], 8: known[2:], 16: known[2:]}
    candidates = [Candidate("dgx-h100", "h100-sxm", size, {}, 1, 1, 1, 1_000_000, kept, None, {}) for size in sizes]
    quotes = {("dgx-h100", size): found for size, found in sizes.items()}
    found = options(candidates, 1e10, quotes, catalog.load("facilities", "default"))
    [note] = partial_rents(known, found)
    assert note.startswith("2 lower rents of h100-sxm left out, from $2.40 (one), for 2, 8 and 16 of them: of fewer")
    assert partial_rents(known, [one for one in found if one.gpus == 1]) == []
    [few] = partial_rents(known, [one for one in found if one.gpus == 2])
    assert few.startswith("a lower rent of h100-sxm left out, from $2.40 (one), for 2 of them")
