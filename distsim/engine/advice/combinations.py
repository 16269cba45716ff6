"""Which changes of a job are tried together: one of each of some families, least effort first."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

from distsim.engine.advice.change import Change

DOUBLINGS = 3
"""Doublings of the GPUs that one change or two may ask for; more only where nothing milder fits."""
PAIRS_ONLY = ("sequence parallel", "optimizer", "precision", "adapters")
"""Families that a combination of three and more leaves out: what they win there is small, or not free."""


def combinations(pool: list[Change], count: int, rare: bool = False) -> Iterable[tuple[Change, ...]]:
    """One change from each of ``count`` families, least effort first; more than two take only the ends, and with
    ``rare`` those of all families."""
    families = by_family(pool) if count <= 2 else _ends(pool, () if rare else PAIRS_ONLY)
    if count <= 2 and "gpus" in families:
        families["gpus"] = families["gpus"][:DOUBLINGS]
    found: Iterator[tuple[Change, ...]] = itertools.chain.from_iterable(
        itertools.product(*(families[name] for name in names)) for names in itertools.combinations(families, count)
    )
    return sorted(found, key=lambda combined: sum(change.effort for change in combined))


def by_family(pool: list[Change]) -> dict[str, list[Change]]:
    """Changes by what they change, in their order."""
    families: dict[str, list[Change]] = {}
    for change in pool:
        families.setdefault(change.family, []).append(change)
    return families


def _ends(pool: list[Change], without: Collection[str]) -> dict[str, list[Change]]:
    """The strongest change of each family, and every second number of GPUs."""
    families = {family: members for family, members in by_family(pool).items() if family not in without}
    return {family: members[::-2][::-1] if family == "gpus" else members[-1:] for family, members in families.items()}
