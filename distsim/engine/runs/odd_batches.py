"""Batches that the replicas of a row's cells do not divide: a slip, or what tells of degrees that are blank."""

from __future__ import annotations

import math
from collections.abc import Callable

from distsim.engine.jobs.resolve import Setup
from distsim.engine.memory import memory_of
from distsim.errors import DistsimError
from distsim.interop.runs import MissingCell, Run


class Undivided(MissingCell):
    """A batch that its replicas do not divide; ``larger`` is the next that they do."""

    def __init__(self, whole: int, micro: int, dp: int) -> None:
        super().__init__(f"global_batch {whole} is not a multiple of micro_batch {micro} * dp {dp}")
        self.larger = -(-whole // (micro * dp)) * micro * dp


def odd_batch(run: Run) -> str:
    """What is said of degrees that were filled in beside a batch which the replicas of the cells, blank degrees being
    1, do not divide; nothing where they do."""
    told = math.prod(run.count(name) or 1 for name in ("tp", "pp", "cp"))
    replicas, whole = max((run.count("n_gpus") or 1) // told, 1), run.count("global_batch") or 0
    divided = whole % (replicas * (run.count("micro_batch") or 1)) == 0
    return "" if divided else f" with a global batch of {whole}"


def refuse_odd_batch(run: Run, build: Callable[[dict[str, int]], Setup]) -> None:
    """Raise what is wrong with a batch that the degrees of the cells do not divide, where all but the batch fits with
    blank ones at 1: a slip in it tells of no more stages. Replicas that the cells tell do."""
    if run.count("dp") or _tells_replicas(run) or not odd_batch(run):
        return
    odd = None
    try:
        build({})
    except Undivided as found:
        odd = found
    except (MissingCell, DistsimError):
        return
    if odd is not None and _fits(build, {"global_batch": odd.larger}):
        raise odd


def _fits(build: Callable[[dict[str, int]], Setup], degrees: dict[str, int]) -> bool:
    try:
        return memory_of(build(degrees)).fits
    except (MissingCell, DistsimError):
        return False


def _tells_replicas(run: Run) -> bool:
    """Whether batch and accumulation tell how many replicas there are where no degree is told."""
    accumulate, whole = run.count("grad_accum"), run.count("global_batch")
    told = any(run.count(name) for name in ("tp", "pp", "cp", "ep"))
    return bool(not told and accumulate and whole and whole % (accumulate * (run.count("micro_batch") or 1)) == 0)
