"""The split of layers over stages against all possible splits."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsim.engine.partition import split
from distsim.errors import DistsimError

TIMES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 7.0]), min_size=1, max_size=9)


@given(TIMES, st.data())
def test_no_other_split_is_faster(times: list[float], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(times)))
    found = split(times, parts)
    cuts = combinations(range(1, len(times)), parts - 1)
    best = min(max(sum(times[a:b]) for a, b in pairwise((0, *cut, len(times)))) for cut in cuts)
    assert found.slowest == pytest.approx(best)
    assert sum(found.sizes) == len(times) and min(found.sizes) >= 1
    assert sum(found.times) == pytest.approx(sum(times))


def test_head_and_embedding_take_layers_from_the_ends() -> None:
    found = split([0.3, *[1.0] * 31, 1.9], 8)
    assert found.slowest == pytest.approx(4.9)
    assert found.sizes[-1] == 4  # three layers and the head
    assert found.imbalance == pytest.approx(4.9 * 8 / 33.2 - 1)


def test_large_models_are_split_at_once() -> None:
    assert split([1.0] * 2000, 128).slowest == 16


@pytest.mark.parametrize("parts", [0, 4, -1])
def test_more_parts_than_layers_are_refused(parts: int) -> None:
    with pytest.raises(DistsimError, match="3 layers"):
        split([1.0, 2.0, 3.0], parts)
