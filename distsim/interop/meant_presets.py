"""What a name may mean that no preset has: one spelt like it, or what measured runs under that name are taken for."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from distsim import catalog
from distsim.errors import DID_YOU_MEAN, DistsimError, did_you_mean, slipped
from distsim.interop.runs.precision_names import precision_like
from distsim.interop.runs.software_names import nearest_profile
from distsim.plain_files import special
from distsim.preset_kinds import KINDS, SPOKEN

SHORTEST_MISTYPED = 4
"""Names of optimizers and of software up to this long differ by a letter on purpose."""
COMMON = {"name", "source", "checked", "aliases"}
"""Fields of presets of any kind."""
LEAST_ALIKE = 0.8
"""Share of a preset's fields that another kind has, from which on it is one of that kind."""
SHOWN = 4
"""Fields that tell what a preset is."""
MOST_TOLD = 3
_STAGE = re.compile(r"zero-?(?:stage-?)?([0-3])(?![0-9])")
UNDESCRIBED = (
    (r"\bapple\b|^m[1-9](-(pro|max|ultra))?(?=-|$)|^(i?mac|macbook|mac-?(studio|mini|pro))\b|^(mps|metal)$",
     "Apple silicon is not described: no run of training on it is known here"),
    (r"\bcpus?\b|\b(xeon|epyc|ryzen|threadripper|graviton\d?|cobalt|axion)\b|\bcore-(ultra|i\d)|^(nvidia-)?grace$",
     "CPUs are not described: a step is that of accelerators, whose hosts clusters state"),
    (r"^(cuda|rocm|hip|xpu|npu|gpu|xla):?\d*$", "that is what torch calls any such device: name the accelerator"),
)  # fmt: skip
"""Names of hardware that has no preset, and of no hardware, with what to say of them."""
PLAIN_TORCH = ("torch", "pytorch")
TORCHES = "torch trains by --framework torch-ddp, fsdp (with --zero 2 or 3) or torchtitan"
SEVERAL = {
    "gpus": "distsim plan compares several: --gpu",
    "clusters": "distsim plan compares several: --cluster",
    "precisions": "distsim search tries several: --precision",
}
"""Kind of which a command takes several presets, and how."""
MISTYPED = 0.8
"""How like a preset's a name must be to be taken for a slip of the keys, before it is looked for among other tools'."""


def meant_preset(kind: str, name: str, known: Mapping[str, str | None]) -> str:
    """A hint line; empty where nothing is near. ``known`` has names, and aliases with what they stand for. Of
    optimizers only those that a slip of the keys may have meant, for others with a name alike have states of other
    sizes (adan and adam, paged_ademamix_8bit and paged_adamw_8bit)."""
    if several := _several(kind, name):
        return several
    if kind == "frameworks" and name in PLAIN_TORCH:
        return TORCHES
    if kind == "optimizers":
        known = {one: whose for one, whose in known.items() if len(name) > SHORTEST_MISTYPED and slipped(name, one)}
    if kind == "frameworks" and not any(slipped(name, one) for one in known) and (part := _named_within(name, known)):
        return part
    mistyped = did_you_mean(name, known, MISTYPED)
    if kind == "gpus" and not mistyped:
        machines = {**dict.fromkeys(catalog.names("clusters")), **catalog.aliases("clusters")}
        if near := did_you_mean(name, machines, MISTYPED, machines):
            return f"{near} These are clusters: --cluster"
    if kind == "clusters" and not mistyped and catalog.knows("gpus", name):
        return f"it is an accelerator: --gpu {catalog.load('gpus', name).name}"
    if kind == "prices" and not mistyped and (priced := _priced(name)):
        return priced
    stand_in = None if mistyped else _stand_in(kind, name)
    return (
        f"the nearest is {stand_in}, which stands in for it when runs are replayed"
        if stand_in
        else did_you_mean(name, known, stands_for=known)
    )


def _several(kind: str, name: str) -> str:
    """A hint line for a list of presets where one belongs; empty for other names."""
    parts = [part for part in re.split(r"[,;\s]+", name) if part]
    if len(parts) < 2 or not all(catalog.knows(kind, part) for part in parts):
        return ""
    return f"{SEVERAL[kind]} {','.join(parts)}" if kind in SEVERAL else "these are several: ask for one at a time"


def _priced(name: str) -> str:
    """A hint line for hardware that is named, or nearly, where a price list belongs; empty for other names."""
    for kind, word, what in (("clusters", "a cluster", "its accelerators"), ("gpus", "an accelerator", "it")):
        if catalog.knows(kind, name):
            chip = catalog.load("clusters", name).gpu if kind == "clusters" else name
            chip = catalog.load("gpus", chip).name
            return f"it is {word}: distsim show prices {chip} lists who asks what for {what}"
    chips = {**dict.fromkeys(catalog.names("gpus")), **catalog.aliases("gpus")}
    near = did_you_mean(name, chips, MISTYPED, chips)
    return f"{near} These are accelerators: distsim show prices NAME" if near else ""


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


def undescribed(name: str) -> str:
    """A hint line for a name, written plain, of hardware that has no preset of its own; empty for others."""
    return next((told for words, told in UNDESCRIBED if re.search(words, name)), "")


def no_file(path: str, known: Iterable[str], otherwise: str, suffix: str = ".toml") -> DistsimError:
    """What is wrong with a path that leads to no file, or to one that is no preset's, and presets that are called so,
    or else another hint."""
    if os.path.isdir(path):
        return DistsimError(f"{path!r} is a folder, not a file", otherwise)
    if os.path.isfile(path):
        return DistsimError(f"the file {path!r} is not read: such a preset's ends in {suffix}", otherwise)
    if problem := special(path):
        return DistsimError(problem, otherwise)
    return DistsimError(f"no file {path!r}", did_you_mean(Path(path).stem, known, MISTYPED) or otherwise)


def of_other_kind(kind: str, data: Mapping[str, Any], error: DistsimError, file: str) -> DistsimError:
    """What is wrong with a preset that has the fields of another kind; else what was found wrong with it, in its
    file."""
    stated = data.keys() - COMMON
    fields = {one: stated & _fields(one).keys() for one, place in KINDS.items() if place is not None}
    likely = max(fields, key=lambda one: len(fields[one]))
    if len(fields[likely]) < max(LEAST_ALIKE * len(stated), len(fields[kind]) + 1):
        return error if error.where else DistsimError(error.problem, *error.hints, where=file)
    first = ", ".join([name for name in data if name in fields[likely]][:SHOWN])
    needed = [name for name, must in _fields(kind).items() if must and name not in fields[likely]]
    hint = f"{_a(kind)} has {', '.join(needed[:SHOWN])}" if needed else f"list them with: distsim show {kind}"
    return DistsimError(f"is {_a(likely)}, not {_a(kind)}: it has {first}", hint, where=file)


def _a(kind: str) -> str:
    word = SPOKEN.get(kind, kind.removesuffix("s"))
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _fields(kind: str) -> dict[str, bool]:
    """Names of the fields of a kind's presets, but those that all have, and which of them must be stated."""
    place = KINDS[kind]
    assert place is not None
    spec = getattr(importlib.import_module(place[0]), place[1])
    return {name: field.is_required() for name, field in spec.model_fields.items() if name not in COMMON}


def _stand_in(kind: str, name: str) -> str | None:
    """The preset that stands for the software or the precision of measured runs with this name."""
    if kind == "frameworks":
        return nearest_profile(name, split=False)
    like = precision_like(name) if kind == "precisions" else None
    return like if like and catalog.knows(kind, like) else None
