"""Losses that a framework's programs cannot take: patches of other models, kernels for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim import catalog
from distsim.errors import DistsimError
from distsim.specs.framework import Framework

if TYPE_CHECKING:
    from distsim.specs.loss import Loss


def foreign_loss(framework: Framework, name: str | None) -> tuple[str, str]:
    """(what is wrong with a loss under a framework, the field of its ``supports`` that says so); nothing where it takes
    it."""
    if name is None:
        return "", ""
    found: Loss = catalog.load("losses", name)
    if found.triton and not framework.supports.calls_triton:
        words = f"--loss {name} is of kernels in Triton for programs of torch, which {framework.name} does not run"
        return words, "calls_triton"
    if found.patches and not framework.supports.patched:
        return f"--loss {name} patches models of transformers, and {framework.name} has its own", "patched"
    return "", ""


def refuse_foreign_loss(framework: Framework, name: str | None) -> None:
    """Raise what a framework that somebody named cannot take of losses, with where that is written."""
    problem, figure = foreign_loss(framework, name)
    if not problem:
        return
    instead = "name a loss that your own code calls (fused-linear, cut), or another framework"
    source = framework.source_of(f"supports.{figure}") or framework.source_of("supports")
    hints = [instead if figure == "patched" else "leave --loss out", *([f"source: {source}"] if source else [])]
    raise DistsimError(problem, *hints)
