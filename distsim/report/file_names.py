"""Clusters as tables name them: presets by name, files of one's own by no more of their path than tells them apart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from distsim.engine.plans.planner import Plan


def apart(names: Iterable[str]) -> dict[str, str]:
    """For each name the shortest end of its path that no other of them has; a name without folders stays itself."""
    parts = {name: PurePath(name).parts for name in dict.fromkeys(names)}
    return {
        name: next(
            (str(PurePath(*own[-length:])) for length in range(1, len(own))
             if all(other == own or other[-length:] != own[-length:] for other in parts.values())), name,
        )
        for name, own in parts.items()
    }  # fmt: skip


def cluster_names(made: Plan) -> dict[str, str]:
    """How the clusters of a plan's options are named where a path would take the room of figures."""
    return apart(option.cluster for option in made.options)
