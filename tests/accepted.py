"""Jobs that are drawn at random, of which distsim takes many and refuses others."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import distsim
from distsim.errors import DistsimError


def accepted(draw: Callable[[random.Random], dict[str, Any]], seed: int, count: int) -> list[dict[str, Any]]:
    """The first ``count`` jobs that are drawn and not refused."""
    rng, found = random.Random(seed), []
    while len(found) < count:
        one = draw(rng)
        try:
            distsim.memory(**one)
        except DistsimError:
            continue
        found.append(one)
    return found
