"""Kinds of networks between nodes by name, as ``presets/links/fabrics.toml`` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim import catalog
from distsim.errors import DistsimError, did_you_mean
from distsim.last import while_same
from distsim.units import BITS_PER_BYTE, GIGA

FABRICS = "fabrics"
SAME_RATE = 0.01
"""How far two rates that are told with few digits may be apart and be the same."""


@while_same(lambda: catalog.state("links", FABRICS))
def fabrics() -> dict[str, Any]:
    """Link classes and what they add to NCCL's constants, as ``presets/links/fabrics.toml`` states them."""
    data: dict[str, Any] = catalog.load("links", FABRICS)
    return data


def usual_network(architecture: str, gpus_per_node: int, gbps: float) -> str:
    """The network class that GPUs of an architecture usually have at a rate per GPU."""
    for rule in fabrics()["usual"]:
        low, high = rule["gbps"]
        if not low < gbps <= high or rule.get("architecture", architecture) != architecture:
            continue
        if rule.get("gpus_per_node", gpus_per_node) == gpus_per_node:
            return str(rule["network"])
    return "ethernet"


def network_class(name: str) -> tuple[str, Mapping[str, Any]]:
    """Class of a cluster's network and what it adds: its own, or the first of its kind; raises where there is none."""
    known = fabrics()["network"]
    found = described(name) or next(iter(_kin(name)), None)
    if found is None:
        raise _unknown_network(name)
    return found, known[found]


def with_nics(name: str, rate: float) -> str:
    """The class of a network on which a GPU has so much, bytes per second: another where GPUs share a NIC."""
    known = fabrics()["network"][name]
    whole = known.get("nic", 0) * GIGA / BITS_PER_BYTE
    return str(known["shared"]) if 0 < rate < (1 - SAME_RATE) * whole else name


def stated_network(name: str) -> str:
    """A class that somebody asks for by name: one that is described, whatever its maker adds to it."""
    if described(name) is None:
        raise _unknown_network(name)
    return name


def described(name: str) -> str | None:
    """The class that a name is, or of which it says more: ``slingshot-11`` is a ``slingshot``, ``ib-hdr100`` an
    ``ib-hdr``, but ``efa-v10`` no ``efa-v1``."""
    alike = [one for one in fabrics()["network"] if name.startswith(one) and _ends(one, name[len(one) :])]
    return max(alike, key=len, default=None)


def _ends(name: str, more: str) -> bool:
    """Whether a word is over where more follows."""
    return not more or more[0] == "-" or (more[0].isdigit() and not name[-1].isdigit())


def _kin(name: str) -> list[str]:
    """Classes of the same kind."""
    return [one for one in fabrics()["network"] if one.split("-")[0] == name.split("-")[0]]


def _unknown_network(name: str) -> DistsimError:
    known = fabrics()["network"]
    return DistsimError(
        f"unknown network {name!r}", did_you_mean(name, _kin(name) or known), f"known: {', '.join(known)}"
    )
