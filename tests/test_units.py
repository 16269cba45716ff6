"""Quantities as a person reads them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsim.units import decimal_bytes


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.07e9, "1.07 GB"), (0, "0 B"), (999.6e9, "1,000 GB"), (2.45e15, "2,450 TB"), (-3e3, "-3 kB"), (512, "512 B")],
)
def test_decimal_bytes(value: float, text: str) -> None:
    assert decimal_bytes(value) == text


@given(st.floats(1, 1e17))
def test_no_exponent_is_ever_shown(value: float) -> None:
    assert re.fullmatch(r"[\d,]+(\.\d+)? [kMGT]?FLOP/s", decimal_bytes(value, "FLOP/s"))
