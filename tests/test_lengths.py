"""Lengths of samples that follow a gamma distribution."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsim.formulas.lengths import gamma_share, kept_tokens, longest_kept_tokens, longest_tokens, single_tokens


@pytest.mark.parametrize("value", [0.1, 1.0, 3.0, 30.0, 5000.0])
def test_a_shape_of_one_is_exponential(value: float) -> None:
    assert gamma_share(1.0, value) == pytest.approx(1 - math.exp(-value), rel=1e-9)


def test_one_sample_is_its_mean_and_more_are_longer() -> None:
    one, eight = (longest_tokens(2.0, 100.0, 1e4, samples) for samples in (1, 8))
    assert one == pytest.approx(100.0, rel=2e-3) and 2 * one < eight < 4 * one
    assert single_tokens(2.0, eight, 1e4, 8) == pytest.approx(100.0, rel=1e-3)


@given(shape=st.floats(0.2, 5000), mean=st.floats(1, 1e5), cap=st.floats(16, 1e6), samples=st.integers(1, 512))
def test_no_length_is_beyond_the_cap_or_no_number(shape: float, mean: float, cap: float, samples: int) -> None:
    """Also of samples of which hardly any, or all, are below it."""
    kept, cut, dropped = (
        kept_tokens(shape, mean, cap), longest_tokens(shape, mean, cap, samples),
        longest_kept_tokens(shape, mean, cap, samples),
    )  # fmt: skip
    assert 0 <= gamma_share(shape, cap * shape / mean) <= 1 + 1e-9
    assert all(0 <= length <= cap * (1 + 1e-9) for length in (kept, cut, dropped))


def test_a_cap_far_beyond_all_lengths_changes_nothing() -> None:
    """Steps as wide as the whole distribution would find no sample in it."""
    assert longest_tokens(4884.4, 2017.75, 946398.0, 1) == pytest.approx(2017.75, rel=2e-3)
    near, far = (longest_tokens(2.0, 100.0, cap, 8) for cap in (4e3, 1e6))
    assert far == pytest.approx(near, rel=5e-3)
