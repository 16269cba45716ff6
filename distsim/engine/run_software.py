"""What a measured run says of its software in words of its own: its name, what it recomputes, how it attends, over how
many ranks it shards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from distsim import catalog
from distsim.interop import run_notes
from distsim.interop.runs import MissingCell, Run
from distsim.specs.framework import Framework
from distsim.specs.timing import family_of

TOLD = ((re.compile(r"\bpaxml (?:on |\()jax", re.I), "paxml"),
        (re.compile(r"\bmaxtext(?: \(jax|;| args)", re.I), "maxtext"))  # fmt: skip
"""How notes name the software where the cell names its relative, or the container that it came in."""
FSDP = re.compile(r"\bici_fsdp_parallelism=(\d+)|\bFSDP=(\d+)")
WITHIN_SLICE = ("within slice", "ici_fsdp_parallelism=-1")
"""How sources say that shards stay in one domain of fast links (a TPU slice), with replicas across."""
OTHER = "other:"
FLASH_YEAR = 2023
"""Runs published before it precede flash attention in training frameworks (arXiv:2205.14135)."""
FLASH_YEARS = {("jax", "hopper"): 2024}
"""Where it came later: Transformer Engine uses cuDNN's on Hopper since January 2024 (its release notes, v1.2). Of the
same layouts in JAX-Toolbox's tables, those of 2023 on H100 take longer by what unfused attention costs."""
UNFUSED = ("plain xla", "without flash attention")
"""What notes call attention that is composed of products and a softmax."""


class Again(NamedTuple):
    """What a run's cell says of recomputation."""

    options: Mapping[str, Any]
    """As job options."""
    kernels: Mapping[str, Any]
    """What a policy by name keeps."""


PUBLISHERS = {"jzhang38/TinyLlama": "tinyllama"}
"""Repositories whose runs are of their own software."""


def told_software(run: Run) -> str | None:
    """The framework that the notes or the publisher name, if they name one."""
    own = next((known for who, known in PUBLISHERS.items() if run.source.startswith(who)), None)
    return own or next((known for pattern, known in TOLD if pattern.search(run.text("notes") or "")), None)


def recomputation_of(run: Run, framework: Framework, layers: int = 1) -> Again:
    """What the cell says: one of the framework's own policies, or what it means of ``layers`` on a stage."""
    word = (run.text("recompute") or "").lower()
    plain = word.removeprefix(OTHER)
    policy = framework.remat.get(plain)
    if policy is not None:
        options = {"recompute": "selective"} | ({"offload": "activations"} if policy.offload else {})
        return Again(options, {"kept": policy.keeps})
    if word.startswith(OTHER) and plain in ("none", "full"):
        return Again({"recompute": plain}, {})
    said = run_notes.recompute_options(run, layers)
    return Again({} if str(said.get("recompute")).startswith(OTHER) else said, {})


def attention_of(run: Run, framework: Framework) -> str | None:
    """``flash`` or ``eager``, as the cell, the notes or the year say; None where nothing does."""
    cell, notes = (run.text("attention") or "").lower(), (run.text("notes") or "").lower()
    if "flex" in cell:
        raise MissingCell(f"attention {cell!r} is a kernel that is not described")
    if cell:
        return "eager" if "eager" in cell or "unfused" in cell else "flash"
    first = FLASH_YEARS.get((family_of(framework.name), chip_of(run)), FLASH_YEAR)
    early = (run.number("year") or first) < first
    return "eager" if early or any(word in notes for word in UNFUSED) else None


def chip_of(run: Run) -> str:
    """The architecture of the run's chip; nothing where it has no preset."""
    gpu = run.text("gpu") or ""
    return str(catalog.load("gpus", gpu).architecture.split()[0]) if catalog.knows("gpus", gpu) else ""


def sharding_group(run: Run, dp: int, domain: int) -> int | None:
    """Ranks that share one sharded copy, where the row says that they are fewer than all; ``domain`` is how many fast
    links join."""
    said = f"{run.text('fsdp_kind') or ''} {run.text('notes') or ''}"
    if any(words in said for words in WITHIN_SLICE) and dp > domain and dp % domain == 0:
        return domain
    found = FSDP.search(said)
    size = int(next(filter(None, found.groups()))) if found else 0
    return size if 1 < size < dp and dp % size == 0 else None
