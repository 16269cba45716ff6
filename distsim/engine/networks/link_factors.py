"""Measured factors of links: the shipped ones, and those of a network profile, checked as they are read."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from distsim.engine.networks.network import Factor
from distsim.errors import DistsimError, did_you_mean

FACTORS = "factors"
FAMILIES = {
    "all_reduce": "all_reduce",
    "all_gather": "gather",
    "reduce_scatter": "gather",
    "broadcast": "gather",
    "reduce": "gather",
    "scatter": "direct",
    "gather": "direct",
    "all_to_all": "direct",
    "send_recv": "send_recv",
}
KEYS = ("latency_short", "latency_long", "bandwidth")
"""What a file states of each link and family, in the order of ``Factor``."""
_PLAIN = "1 is the value that NCCL itself uses"
_MOST = 1e6  # beyond any measurement: a slip


def factors(name: str = FACTORS) -> dict[str, Factor]:
    """Measured factors by ``link/family``, as ``make calibrate-links`` wrote them, read anew where a file changed."""
    from distsim import catalog

    file = catalog.path("links", name)
    return _read(name, str(file), os.stat(file).st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read(name: str, file: str, changed_ns: int) -> dict[str, Factor]:
    from distsim import catalog

    table = catalog.load("links", name).get("factor", {})
    found = {
        f"{link}/{family}": _factor(one, f"factor.{link}.{family}", file)
        for link, families in _table(table, "factor", file).items()
        for family, one in _families(families, f"factor.{link}", file).items()
    }
    if not found:
        raise DistsimError("no [factor] for any link", catalog.PROFILE_HINT, where=name)
    return found


def profiled(profile: str | None) -> dict[str, Factor]:
    """The shipped factors, with those of a profile of the user's own measurements laid over them."""
    from distsim import catalog

    if profile is None:
        return factors()
    if not profile.endswith(".toml") and not catalog.knows("links", profile) and not os.path.isfile(profile):
        raise DistsimError(f"there is no network profile {profile!r}", catalog.PROFILE_HINT)
    return {**factors(), **factors(profile)}


def _table(value: Any, place: str, file: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DistsimError(f"{place} is {value!r}, not a table", "write [factor.LINK.FAMILY] above it", where=file)
    return value


def _families(value: Any, place: str, file: str) -> Mapping[str, Any]:
    """The families of collectives of one link."""
    known = dict.fromkeys(FAMILIES.values())
    for name in _table(value, place, file):
        if name not in known:
            hints = did_you_mean(name, known), f"families: {', '.join(known)}"
            raise DistsimError(f"{place}.{name}: unknown family of collectives", *hints, where=file)
    return _table(value, place, file)


def _factor(value: Any, place: str, file: str) -> Factor:
    """The factors of one link and family; each is stated, a number nobody gave is not made up."""
    given = _table(value, place, file)
    for name in given:
        if name not in KEYS:
            raise DistsimError(
                f"{place}.{name}: unknown", did_you_mean(name, KEYS), f"keys: {', '.join(KEYS)}", where=file
            )
    if lacking := [name for name in KEYS if name not in given]:
        raise DistsimError(f"{place} lacks {' and '.join(lacking)}", f"add them; {_PLAIN}", where=file)
    for name, one in given.items():
        if isinstance(one, bool) or not isinstance(one, (int, float)) or not 0 < one <= _MOST:
            raise DistsimError(
                f"{place}.{name} is {one!r}", f"give a number above 0, at most {_MOST:,.0f}; {_PLAIN}", where=file
            )
    return Factor(*(float(given[name]) for name in KEYS))
