"""Quantities as a person reads them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsim.errors import DistsimError
from distsim.units import DAY, MIB, count, decimal_bytes, dollars, duration, duration_like, gib, parse


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.07e9, "1.07 GB"),
        (0, "0 B"),
        (999.6e9, "1.00 TB"),
        (2.45e15, "2,450 TB"),
        (-3e3, "-3.00 kB"),
        (512, "512 B"),
        (0.00195, "< 1 B"),
        (13e9, "13.0 GB"),
    ],
)
def test_decimal_bytes(value: float, text: str) -> None:
    assert decimal_bytes(value) == text


def test_sizes_and_amounts_change_their_unit_where_a_person_would() -> None:
    assert decimal_bytes(999.7e12, "B/s") == "1,000 TB/s"
    assert [gib(one * MIB) for one in (0.5, 50, 100)] == ["512.0 KiB", "50.0 MiB", "0.10 GiB"]
    assert [dollars(one) for one in (99.5, 250.0, 9_999.0, 25_000.0)] == ["$99.50", "$250", "$9,999", "$25k"]


def test_a_part_of_a_byte_is_not_told() -> None:
    """A rank's mean share of an all-reduce of 4 bytes was 7.97 B."""
    assert [decimal_bytes(one) for one in (7.97, 0.4, 0)] == ["8 B", "< 1 B", "0 B"]


@given(st.floats(1, 1e17))
def test_no_exponent_is_ever_shown(value: float) -> None:
    assert re.fullmatch(r"[\d,]+(\.\d+)? [kMGT]?FLOP/s", decimal_bytes(value, "FLOP/s"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (5e-7, "0.500 us"), (0.9996e-3, "1.00 ms"), (0.9996, "1.00 s"), (1.2, "1.20 s"), (13, "13.0 s"),
     (99.97, "100 s"), (119.9, "2.0 min")],
)  # fmt: skip
def test_durations_have_three_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_times_beside_another_have_its_unit() -> None:
    """A step of 99.0 s was between 81.8 s and 4.4 min."""
    beside = [duration_like(seconds, 99.0) for seconds in (81.8, 264.0, 0.5)]
    assert beside == ["81.8 s", "264 s", "0.500 s"] and duration_like(1.061, 0.5) == "1,061 ms"


@pytest.mark.parametrize(
    ("text", "dimension", "meant"),
    [("300b", "tokens", "300B"), ("300 billion", "tokens", "300B"), ("5mm", "USD", "5M"), ("30D", "s", "30d"),
     ("1m", "s", "1min or 1month"), ("1gb", "B", "1GB"), ("1G", "B", "1GB or 1GiB"), ("1gib", "B", "1GiB"),
     ("5kEUR", "USD", ""), ("100GB", "tokens", "")],
)  # fmt: skip
def test_a_unit_that_is_nearly_one_is_answered_with_it(text: str, dimension: str, meant: str) -> None:
    with pytest.raises(DistsimError) as raised:
        parse(text, dimension)
    assert raised.value.near == (f"did you mean {meant}?" if meant else "")


@pytest.mark.parametrize("left", ["M", "00k", "0M", "00,000"])
def test_what_a_shell_leaves_of_dollars_is_told(left: str) -> None:
    """``--budget $5M`` is M, whose error said to write $5M; ``$500k`` was a budget of nothing."""
    with pytest.raises(DistsimError) as raised:
        parse(left, "USD", "--budget")
    assert "write 5M, or '$5M' in quotes" in raised.value.text()
    assert parse("0", "USD") == 0 and parse("0.5M", "USD") == 500_000


def test_counts_round_into_the_next_unit() -> None:
    assert [count(999.7e6), count(999_700), count(13e9)] == ["1B", "1M", "13B"]


def test_bits_and_weeks() -> None:
    assert parse("8 Gbit/s", "B/s") == parse("8 Gb/s", "B/s") == 1e9
    assert parse("1w", "s") == parse("1 week", "s") == 7 * DAY


def test_what_rounding_leaves_is_no_time() -> None:
    """A part of a step whose exposed time is the difference of two sums showed 7.16e-05 us."""
    assert duration(7.16e-11) == "<0.001 us"
    assert duration(5e-9) == "0.00500 us"
