"""How well layouts are ranked: jobs are told apart, noise is in no order, and what a wrong choice costs."""

from __future__ import annotations

import math

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.engine.ranking import Timed, ranking_of
from distsim.engine.single_changes import gains_of, kept_of
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


def test_equal_predictions_are_in_no_order_whatever_their_last_bits_say() -> None:
    """Sums round otherwise on other machines, and the kept tau of one moved by 0.005 on the next."""
    even, up, down = (
        ranking_of(runs([(1.0, 2.0), (2.0, 2.0 * (1 + bits)), (3.0, 4.0)])) for bits in (0.0, 1e-15, -1e-15)
    )
    assert even is not None and even == up == down
    assert even.tau == pytest.approx(2 / 3) and even.regret_median == pytest.approx(0.5)  # either may be chosen


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


def test_a_layout_counts_once_and_only_among_steps_of_as_many_tokens() -> None:
    """A quarter of all pairs once were repeats of one layout, and blank batches made two jobs one."""
    once = runs([(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)])
    again = [one._replace(measured_seconds=one.measured_seconds * 1.5, predicted_seconds=1.0) for one in once[:1]]
    told, repeated = ranking_of(once), ranking_of(once + again)
    assert told is not None and (told.jobs, told.runs, told.tau) == (1, 3, 1)
    assert repeated == told._replace(runs=4)
    assert ranking_of([one._replace(step_tokens=at % 2) for at, one in enumerate(once)]) is None


ROW = {"source": "some/where x", "model": "gpt2", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "1024", "pp": "1",
       "global_batch": "64", "micro_batch": "4", "framework": "megatron-core", "recompute": "none"}  # fmt: skip


def test_what_single_changes_promise_is_held_against_what_they_gained() -> None:
    def measured(at: int, seconds: float, **cells: str) -> Replay:
        return replay(Run({**ROW, "id": str(at), "step_time_s": str(seconds), **cells}, at))

    plain = [measured(0, 0.30), measured(1, 0.34)]  # repeats: 0.32 s on average
    others = [measured(2, 0.40, recompute="full"), measured(3, 0.20, tp="4"), measured(4, 9.0, seq_len="512")]
    gains = {one.setting: one for one in gains_of([*plain, *others])}
    assert set(gains) == {"recompute", "tp"}
    assert gains["recompute"].kept == pytest.approx(1 - math.sqrt(0.30 * 0.34) / 0.40)
    assert gains["tp"].kept < 0 < gains["tp"].promised  # predicted to be slower at tp 4, and measured to be faster
    told = kept_of(list(gains.values()))
    assert told["recompute"].large_faster == 1 and told["tp"].large_faster == 0
    assert told["tp"].sources == told["tp"].pairs == 1 and told["tp"].small_faster is None
