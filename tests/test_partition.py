"""The split of layers over stages against all possible splits."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsim.engine.timelines.partition import split
from distsim.engine.timelines.partition_chunks import lower_bound, split_over
from distsim.errors import DistsimError
from distsim.schedules.action import looped, wave

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


PLACES = st.sampled_from([looped(2, 2), looped(2, 3), looped(3, 2), wave(2, 2), wave(3, 2), wave(2, 3), looped(1, 3)])
UNEVEN = st.lists(st.one_of(st.sampled_from([0.5, 1.0, 2.0]), st.floats(0.01, 3.0)), min_size=6, max_size=10)


@given(UNEVEN, PLACES)
def test_no_other_split_makes_the_slowest_device_faster(times: list[float], devices: list[int]) -> None:
    found = split_over(times, devices)

    def slowest(cut: tuple[int, ...]) -> float:
        loads = dict.fromkeys(devices, 0.0)
        for device, (a, b) in zip(devices, pairwise((0, *cut, len(times))), strict=True):
            loads[device] += sum(times[a:b])
        return max(loads.values())

    best = min(map(slowest, combinations(range(1, len(times)), len(devices) - 1)))
    assert found.slowest == pytest.approx(best, rel=1e-6)
    assert found.proven and lower_bound(times, devices) <= best * (1 + 1e-9)
    assert sum(found.sizes) == len(times) and min(found.sizes) >= 1
    assert sum(found.device_times) == pytest.approx(sum(times))


def test_chunks_of_a_device_make_up_for_each_other() -> None:
    """Head and embedding take layers from other chunks of their devices; the slowest chunk may be slower for it."""
    times = [0.5, *[1.0, 1.7] * 6, 2.0]
    chunks, devices = split(times, 8), split_over(times, looped(4, 2))
    alone = max(sum(chunks.times[device::4]) for device in range(4))
    assert devices.slowest < alone - 0.1 and devices.proven
    assert max(devices.times) >= max(chunks.times)
    assert split_over(times, wave(4, 2)).slowest <= alone


@pytest.mark.parametrize("chunks", [2, 4])
def test_large_models_with_chunks_are_split_at_once(chunks: int) -> None:
    found = split_over([0.7, *[1.0] * 126, 2.1], looped(8, chunks))
    assert found.proven and found.slowest == pytest.approx(16.7)
    mixed = [0.7, *[1.0, 1.3] * 60, 2.1]
    assert split_over(mixed, looped(8, chunks)).slowest <= sum(mixed) / 8 * 1.05
