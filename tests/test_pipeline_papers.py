"""Figures that papers print, from the times that they print."""

from __future__ import annotations

import math

import pytest

import distsim

# Qi et al. 2023 (arXiv:2401.10241): profiled milliseconds of forward, input gradient, weight gradient and transfer of
# each model at m = 3p, and the bubble rates of table 5 computed from them (share of the longest stage span).
PROFILED = {
    (8, 24, 18.522, 18.086, 9.337, 0.601): (0.2431, 0.1585, 0.1083),
    (8, 24, 29.718, 29.444, 19.927, 0.527): (0.2347, 0.1323, 0.0698),
    (16, 48, 11.347, 11.248, 8.132, 0.377): (0.2552, 0.1397, 0.0672),
    (32, 96, 10.419, 10.207, 7.715, 0.408): (0.2646, 0.1421, 0.0641),
}


@pytest.mark.parametrize("case", PROFILED)
@pytest.mark.parametrize(("column", "name"), [(0, "1f1b"), (1, "zb-h1"), (2, "zb-h2")])
def test_bubble_rates_of_the_zero_bubble_paper(case: tuple[float, ...], column: int, name: str) -> None:
    stages, micro = int(case[0]), int(case[1])
    forward, first, second, hop = case[2:]
    report = distsim.pipeline(
        stages, micro, name, forward=forward, input_gradient=first, weight_gradient=second, hop=hop
    )
    assert round(report.span_bubble_fraction, 4) == PROFILED[case][column]


# The same models' hidden size and heads (table 3; sequences of 1,024), and their rates under ZB-1p and ZB-2p.
SEARCHED = dict(zip(PROFILED, (
    (2304, 24, 0.1585, 0.0433), (4096, 32, 0.1323, 0.0029), (5120, 40, 0.1397, 0.0066), (6144, 48, 0.1421, 0.0038),
), strict=True))  # fmt: skip


@pytest.mark.parametrize("case", SEARCHED)
def test_orders_found_for_a_memory_limit_have_the_rates_of_the_paper(case: tuple[float, ...]) -> None:
    """A weight gradient waits with 32 h of the 34 h + 5 a s bytes per token that a forward keeps (section 4.1)."""
    stages, micro = int(case[0]), int(case[1])
    forward, first, second, hop = case[2:]
    hidden, heads, *rates = SEARCHED[case]
    for limit, rate in zip((stages, 2 * stages), rates, strict=True):
        report = distsim.pipeline(
            stages, micro, "zb-auto", forward=forward, input_gradient=first, weight_gradient=second, hop=hop,
            memory_limit=limit, weight_memory=32 / (34 + 5 * heads * 1024 / hidden),
        )  # fmt: skip
        assert round(report.span_bubble_fraction, 4) == rate


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 6, 7, 8, 12, 16])
def test_memory_of_the_controllable_memory_schedules(stages: int) -> None:
    """Qi et al. 2024 (arXiv:2405.15362): V-Half holds about half and V-Min about a third of 1F1B's activations."""
    half = distsim.pipeline(stages, 3 * stages, "v-half")
    least = distsim.pipeline(stages, 3 * stages, "v-min")
    assert max(half.peak_in_flight) * 2 == stages + 2 - stages % 2
    assert max(least.peak_in_flight) * 2 <= math.ceil(2 * (stages + 2) / 3) + 1
    assert max(distsim.pipeline(stages, 3 * stages, "zb-v").peak_in_flight) == stages


@pytest.mark.parametrize(
    "name,chunks,times",
    [("v-min", 2, (61.5, 93.3)), ("hanayo", 4, (58.25, 95.45)), ("1f1b", 1, (69, 81))],
)
def test_waves_are_sensitive_to_latency(name: str, chunks: int, times: tuple[float, float]) -> None:
    """Makespans at 8 stages and 16 micro-batches without hops and with hops of 0.3 of a forward."""
    found = [distsim.pipeline(8, 16, name, chunks, hop=hop).makespan for hop in (0, 0.3)]
    assert found == pytest.approx(times)


@pytest.mark.parametrize(("stages", "micro", "slices"), [(4, 8, 1), (4, 8, 4), (8, 16, 2), (4, 2, 4)])
def test_slices_of_sequences_in_an_order_of_ones_own(stages: int, micro: int, slices: int) -> None:
    """Seq1F1B (Sun et al. 2024, arXiv:2406.03488): slices of a sequence go back last first: as long as 1F1B of that
    many more micro-batches, and k - 1 slices more are held."""
    total = micro * slices
    back = [first + one for first in range(0, total, slices) for one in reversed(range(slices))]
    lines = []
    for stage in range(stages):
        ahead = min(stages - 2 - stage + slices, total)
        begun = [f"{stage}F{one}" for one in range(total)]
        steady = [
            part for at, one in enumerate(back) for part in (*begun[ahead + at : ahead + at + 1], f"{stage}B{one}")
        ]
        lines.append(" ".join(begun[:ahead] + steady))
    report = distsim.pipeline(order=lines, forward=1 / slices, backward=2 / slices)
    assert report.makespan == pytest.approx((total + stages - 1) * 3 / slices)
    assert report.peak_in_flight == tuple(min(total, stages - stage + slices - 1) for stage in range(stages))
