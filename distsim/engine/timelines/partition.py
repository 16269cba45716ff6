"""Splits a model's layers over stages so that the slowest stage is as fast as possible."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from distsim.errors import DistsimError


class Partition(NamedTuple):
    """``sizes`` layers per part in model order, the summed ``times`` of each part, and the device that holds it (a part
    each where nothing is said)."""

    sizes: tuple[int, ...]
    times: tuple[float, ...]
    devices: tuple[int, ...] = ()
    proven: bool = True
    """Whether no other split is faster; else none was found in the time allowed."""

    @property
    def device_times(self) -> tuple[float, ...]:
        """Times of the parts of each device together."""
        if not self.devices:
            return self.times
        sums = dict.fromkeys(sorted(self.devices), 0.0)
        for device, time in zip(self.devices, self.times, strict=True):
            sums[device] += time
        return tuple(sums.values())

    @property
    def slowest(self) -> float:
        """Time of the slowest device, which no other split into as many parts undercuts."""
        return max(self.device_times)

    @property
    def imbalance(self) -> float:
        """How much longer the slowest device takes than the mean."""
        each = self.device_times
        return self.slowest * len(each) / sum(each) - 1 if sum(each) else 0.0


def split(times: Sequence[float], parts: int) -> Partition:
    """The split of consecutive layers into ``parts`` non-empty parts with the smallest largest sum.

    Embedding, head and uneven layers are simply layers with their own times. Dynamic programming over (parts, layers)
    with a binary search for the last cut: with more layers in front the parts before it only get slower and the last
    part faster, so the best cut is where the two cross. Among equal splits the part at the end is as small as possible.
    """
    count = len(times)
    if not 1 <= parts <= count:
        raise DistsimError(
            f"{count} layers cannot be split into {parts} parts", f"give 1 to {count} parts: none may be empty"
        )
    if any(not 0 <= time < float("inf") for time in times):
        raise DistsimError("a layer time is negative or not finite", "give times of at least 0")
    total = [0.0]
    for time in times:
        total.append(total[-1] + time)
    cuts = _cuts(total, parts)
    ends = [count]
    for cut in reversed(cuts):
        ends.append(cut[ends[-1]])
    bounds = [0, *reversed(ends)]
    sizes = tuple(b - a for a, b in pairwise(bounds))
    return Partition(sizes, tuple(sum(times[a:b]) for a, b in pairwise(bounds)))


def _cuts(total: list[float], parts: int) -> list[list[int]]:
    """Where the last part begins in the best split of the first j layers into 2, 3, … parts; ``total`` are sums of the
    first layers."""
    count = len(total) - 1
    best = total  # the slowest part when the first j layers are split into as many parts as rounds so far
    cuts: list[list[int]] = []
    for used in range(2, parts + 1):
        row, cut = best[:], [0] * (count + 1)
        for j in range(used, count + 1):
            low, high = used - 1, j - 1
            while low < high:
                middle = (low + high) // 2
                if best[middle] >= total[j] - total[middle]:
                    high = middle
                else:
                    low = middle + 1
            if low > used - 1 and total[j] - total[low - 1] <= max(best[low], total[j] - total[low]):
                low -= 1
            row[j], cut[j] = max(best[low], total[j] - total[low]), low
        best = row
        cuts.append(cut)
    return cuts
