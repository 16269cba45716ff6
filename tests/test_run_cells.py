"""Cells of measured runs that say nothing: words for numbers, and figures that nothing measured can have."""

from __future__ import annotations

import pytest

from distsim.interop.runs import MissingCell, Run, measured_peak_bytes, measured_step_seconds


@pytest.mark.parametrize("text", ["-3", "0", "nan", "inf", "fast", ""])
def test_nothing_measured_is_zero_or_less(text: str) -> None:
    for cell in ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s"):
        assert measured_step_seconds(Run({cell: text}, 2), 8, 2048, 8) is None
    assert measured_peak_bytes(Run({"mem_peak_gb_per_gpu": text}, 2)) is None


def test_a_figure_that_makes_no_sense_leaves_room_for_the_next() -> None:
    assert measured_step_seconds(Run({"step_time_s": "-1", "samples_per_s": "4"}, 2), 8, 2048, 8) == 2


def test_words_are_not_blanks() -> None:
    with pytest.raises(MissingCell, match="layers 'many' is not a count"):
        Run({"layers": "many"}, 2).need("layers")
    with pytest.raises(MissingCell, match="layers is blank"):
        Run({"layers": " "}, 2).need("layers")
