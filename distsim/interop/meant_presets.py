"""What a name may mean that no preset has: one spelt like it, or what measured runs under that name are taken for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from distsim import catalog
from distsim.errors import DID_YOU_MEAN, DistsimError, did_you_mean, slipped
from distsim.interop.runs.names import nearest_profile, precision_like

SHORTEST_MISTYPED = 4
"""Optimizers' names up to this long differ by a letter on purpose."""
MOST_TOLD = 3
_STAGE = re.compile(r"zero-?(?:stage-?)?([0-3])(?![0-9])")
MISTYPED = 0.8
"""How like a preset's a name must be to be taken for a slip of the keys, before it is looked for among other tools'."""


def meant_preset(kind: str, name: str, known: Iterable[str]) -> str:
    """A hint line; empty where nothing is near. Of optimizers only those that a slip of the keys may have meant, for
    others with a name alike have states of other sizes (adan and adam, paged_ademamix_8bit and paged_adamw_8bit)."""
    known = list(known)
    if kind == "optimizers":
        known = [one for one in known if len(name) > SHORTEST_MISTYPED and slipped(name, one)]
    if kind == "frameworks" and not any(slipped(name, one) for one in known) and (part := _named_within(name, known)):
        return part
    mistyped = did_you_mean(name, known, MISTYPED)
    if kind == "gpus" and not mistyped:
        machines = [*catalog.names("clusters"), *catalog.aliases("clusters")]
        if near := did_you_mean(name, machines, MISTYPED):
            return f"{near} These are clusters: --cluster"
    if kind == "clusters" and not mistyped and catalog.knows("gpus", name):
        return f"it is an accelerator: --gpu {catalog.load('gpus', name).name}"
    stand_in = None if mistyped else _stand_in(kind, name)
    return (
        f"the nearest is {stand_in}, which stands in for it when runs are replayed"
        if stand_in
        else did_you_mean(name, known)
    )


def _named_within(name: str, known: Iterable[str]) -> str:
    """A hint line for a name of which a part is a framework's, and another may be a stage of ZeRO."""
    words = set(re.findall(r"[a-z0-9]+", name))
    whole = sorted((one for one in known if words.issuperset(one.split("-"))), key=len, reverse=True)
    stage = _STAGE.search(name)
    flags = f"--framework {whole[0]} --zero {stage[1]}" if whole and stage else ", ".join(whole[:MOST_TOLD])
    return f"{DID_YOU_MEAN} {flags}?" if whole else ""


def meant_hardware(name: str) -> str:
    """A hint line for an accelerator's or a cluster's name that means another option, or both of a job's: a cloud's
    machine, a slice of TPUs, so many of a chip; empty where it means none of these."""
    from distsim.interop.runs.chips import chip_in, slice_of

    if found := slice_of(name):
        counted = f" ({found.cores:,} TensorCores)" if found.cores else ""
        return f"it is a slice of {found.chips:,} chips{counted}: --gpu {found.gpu} --gpus {found.chips}"
    chip = chip_in(name)
    if chip is not None and chip.cluster:
        each = catalog.load("clusters", chip.cluster).gpus_per_node
        return f"it is a cluster with {each} {chip.gpu} per node: --cluster {chip.cluster}"
    many = chip.many if chip is not None else None
    return f"it is {many} accelerators: --gpu {chip.gpu} --gpus {many}" if chip is not None and many else ""


def no_file(path: str, known: Iterable[str], otherwise: str) -> DistsimError:
    """What is wrong with a path that leads to no file, and presets that are called so, or else another hint."""
    if os.path.exists(path):
        kind = "folder" if os.path.isdir(path) else "device or a pipe"
        return DistsimError(f"{path!r} is a {kind}, not a file", otherwise)
    return DistsimError(f"no file {path!r}", did_you_mean(Path(path).stem, known, MISTYPED) or otherwise)


def _stand_in(kind: str, name: str) -> str | None:
    """The preset that stands for the software or the precision of measured runs with this name."""
    if kind == "frameworks":
        return nearest_profile(name, split=False)
    return precision_like(name) if kind == "precisions" else None
