"""What the GPU cell of a measured run says beside the chip: how many there are, a slice of TPUs, a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import NamedTuple

from distsim import catalog
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run
from distsim.specs.gpu_names import BRACKETED

TOLD = "gpu as told"
"""The cell as the table has it, beside the preset's name; no column is called so, whose names have no blanks."""
_TIMES = re.compile(
    r"(?P<many>\d{1,6})\s*[x×*]\s*(?P<name>[a-z].*)|(?P<last>.+?)\s*[x×*:]\s*(?P<times>\d{1,6})|"
    r"(?P<first>.+?)[\s,]+(?P<behind>\d{1,6})\s*[x×*]",
    re.IGNORECASE,
)
_SLICE = re.compile(
    r"(?:tpu[-\s]*)?(v(?:2|3|4|5e|5litepod|5p|6e)|(?<=tpu)7x)-(\d{1,6}|\d{1,4}(?:x\d{1,4}){1,2})", re.IGNORECASE
)
_CORES = ("v2", "v3", "v4", "v5p", "7x")
"""Generations whose slices are named by TensorCores, two a chip; v5e and v6e by chips (cloud.google.com/tpu/docs;
tpu7x-128 is 4x4x4 chips, AI-Hypercomputer/xpk). A topology such as 4x4x8 counts chips of every generation."""
CORES_OF_CHIP = 2
_MACHINES = (
    (re.compile(r"\bmarenostrum[- ]?5\b|\bMN5\b", re.IGNORECASE), "h100-sxm-64gb"),
    (re.compile(r"\bleonardo\b", re.IGNORECASE), "a100-sxm4-64gb"),
)
"""Machines that notes name, whose GPUs are parts of their own: tables call them by the usual name."""
_FASTEST = re.compile(r"(?<![a-z])p[-_ ]state[ =:]*7\b", re.IGNORECASE)
"""The state of a TPU's clock that libtpu is told to hold (--xla_tpu_dvfs_p_state)."""
_DIES = re.compile(
    r"\bGPUs? (?:means?|is|are|=|counts?|stands? for) (?:one |an? |single )?GCDs?\b|"
    r"\bGCDs? (?:is|are) (?:counted|listed|told) as (?:an? |one )?GPUs?\b",
    re.IGNORECASE,
)
"""Notes of tables that call each die of an MI250X a GPU, as its driver does."""
_ONE_DIE = re.compile(r"(?:1|one|a|single)?\s*GCD", re.IGNORECASE)
_PARTS = re.compile(r"\d|pcie|sxm|nvl", re.IGNORECASE)
"""Words in brackets that tell parts of one name apart."""
_WATTS = re.compile(r"(\d{2,4})\s*W(?:atts?)?(?:\s+TDP)?", re.IGNORECASE)
_OFFER = re.compile(r"^standard[-_ ](?=n[a-z]\d)", re.IGNORECASE)
"""What Azure's names of machines begin with."""


class Chip(NamedTuple):
    """The preset that a cell means, with what else it says."""

    gpu: str
    cluster: str | None = None
    many: int | None = None


def chip_in(cell: str) -> Chip | None:
    """The chip that a cell names; None where it is nobody's name."""
    cell = _OFFER.sub("", cell)
    if catalog.knows("gpus", cell):
        return Chip(_name(cell))
    if catalog.knows("clusters", cell):
        cluster = catalog.load("clusters", cell)
        return Chip(_name(cluster.gpu), cluster.name)
    if several := slice_of(cell):
        return Chip(several.gpu, None, several.chips)
    if found := _TIMES.fullmatch(cell):
        inner, many = found["name"] or found["last"] or found["first"], found["many"] or found["times"]
        if catalog.knows("gpus", inner):
            return Chip(_name(inner), None, int(many or found["behind"]))
    if found := BRACKETED.match(cell):
        return _bracketed(found[1].strip(), found[2].strip())
    return None


class Slice(NamedTuple):
    """TPU chips that are rented together; ``cores`` is 0 where the name counts chips."""

    gpu: str
    chips: int
    cores: int


def slice_of(name: str) -> Slice | None:
    """The slice that a name means, such as v5p-256; None where it is none of whole chips."""
    found = _SLICE.fullmatch(name)
    if found is None or not catalog.knows("gpus", chip := f"tpu-{found[1]}"):
        return None
    sides = [int(side) for side in re.split("x", found[2], flags=re.IGNORECASE)]
    cores = prod(sides) if len(sides) == 1 and found[1].lower() in _CORES else 0
    chips = prod(sides) if not cores else cores // CORES_OF_CHIP
    return Slice(_name(chip), chips, cores) if chips and cores % CORES_OF_CHIP == 0 else None


def _name(gpu: str) -> str:
    return str(catalog.load("gpus", gpu).name)


def _bracketed(outside: str, inside: str) -> Chip | None:
    """A chip with its machine, or with words that tell no part of the same name."""
    parts = [part.strip() for part in re.split("[,;/]", inside)]
    for order in (parts, parts[::-1]):
        if len(parts) > 1 and catalog.knows("gpus", joined := " ".join((outside, *order))):
            return Chip(_name(joined))
    if _ONE_DIE.fullmatch(inside) and catalog.knows("gpus", die := f"{outside} GCD"):
        return Chip(_name(die))
    chip, other = chip_in(outside), chip_in(inside)
    if chip and (watts := _WATTS.fullmatch(inside)):
        return chip if float(watts[1]) == catalog.load("gpus", chip.gpu).power else None
    if chip is None or (other is None and _PARTS.search(inside)):
        return None
    if other is None:
        return chip
    return chip._replace(cluster=other.cluster) if other.gpu == chip.gpu else None


def with_chip(run: Run) -> Run:
    """The row with its GPU by the preset's name, and as many as the cell says where ``n_gpus`` is blank; itself where
    that says nothing new."""
    cell = run.text("gpu")
    chip = chip_in(cell) if cell and TOLD not in run.cells else None
    if cell is None or chip is None:
        return run
    chip = chip._replace(gpu=_own_part(run, chip.gpu))
    if chip.gpu == cell and chip.many is None:
        return run
    many = {"n_gpus": str(chip.many)} if chip.many and run.text("n_gpus") is None else {}
    return replace(run, cells={**run.cells, "gpu": chip.gpu, TOLD: cell, **many})


def _own_part(run: Run, gpu: str) -> str:
    """The part of a chip that only the machine has which notes name, or the chip in the state that they tell; else the
    chip."""
    design, told = gpu.partition("-")[0], run.notes
    if catalog.knows("gpus", die := f"{gpu}-gcd") and hit(_DIES, told):
        return _name(die)
    if catalog.knows("gpus", held := f"{gpu}-p7") and hit(_FASTEST, told):
        return _name(held)
    parts = (part for words, part in _MACHINES if part.startswith(f"{design}-") and hit(words, told))
    return next(parts, gpu) if "sxm" in gpu else gpu


def cluster_in(run: Run) -> str | None:
    """The cluster that the GPU's cell names."""
    chip = chip_in(run.text(TOLD) or "")
    return chip.cluster if chip else None


def assumed_chip(run: Run) -> str:
    """What a GPU cell was taken for that says more than a chip, or is no name of a preset."""
    cell = run.text(TOLD)
    chip = chip_in(cell) if cell else None
    if cell is None or chip is None or catalog.knows("gpus", cell):
        return ""
    place = f" in {chip.cluster}" if chip.cluster else ""
    return f"gpu {cell!r} read as {chip.gpu}{place}, n_gpus as {run.text('n_gpus')}"
