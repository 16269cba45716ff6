"""How well layouts are ranked: jobs are told apart, noise is in no order, and what a wrong choice costs."""

from __future__ import annotations

import pytest

from distsim.engine.ranking import Timed, ranking_of
from distsim.interop.runs import Run


def runs(pairs: list[tuple[float, float]], **cells: str) -> list[Timed]:
    """Runs of one job at rising tp, with these measured and predicted seconds."""
    return [
        Timed(
            Run({"source": "some/where x", "model": "gpt2", "tp": str(2**place), "id": str(place), **cells}, place),
            *one,
        )
        for place, one in enumerate(pairs)
    ]


def test_the_order_of_predictions_is_held_against_the_measured_one() -> None:
    told = ranking_of(runs([(1.0, 3.0), (2.0, 4.0), (3.0, 2.5), (4.0, 8.0)]))
    assert told is not None and (told.jobs, told.runs) == (1, 4)
    assert told.tau == told.pairs_tau == pytest.approx((4 - 2) / 6)  # the third is before the first and the second
    assert told.regret_median == told.regret_p90 == pytest.approx(3.0 / 1.0 - 1)


def test_times_within_the_noise_are_in_no_order() -> None:
    told = ranking_of(runs([(1.0, 2.0), (1.02, 1.0), (2.0, 4.0), (3.0, 5.0)]))
    assert told is not None and told.tau == 1
    assert told.regret_median == pytest.approx(0.02)
    assert ranking_of(runs([(1.0, 2.0), (1.01, 1.0), (1.02, 3.0), (1.015, 4.0)])) is None


def test_jobs_of_other_cells_stand_by_themselves() -> None:
    good, bad = (
        [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0), (5.0, 5.0)],
        [(4.0, 1.0), (3.0, 2.0), (2.0, 3.0), (1.0, 4.0)],
    )
    told = ranking_of(runs(good) + runs(bad, seq_len="4096"))
    assert told is not None and (told.jobs, told.runs, told.tau) == (2, 9, 0.0)
    assert told.pairs_tau == pytest.approx((10 - 6) / 16)
    assert told.regret_median == pytest.approx(1.5)
    assert ranking_of(runs(good[:2]) + runs(bad[:2], seq_len="4096")) is None
