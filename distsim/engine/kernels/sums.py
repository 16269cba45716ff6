"""Seconds of computation by kind of kernel, and the phases of a micro-batch that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from distsim.arrays import PLAIN, Number, product
from distsim.engine.kernels.orthogonal import UpdateWork

PHASES = ("forward", "backward", "recompute")
PRODUCTS = ("matmul", "matmul8", "grouped", "grouped8", "attention")
CLASSES = (*PRODUCTS, "memory", "kernels", "issued", "waits", "cover")


@dataclass(repr=False)
class Sums:
    """Seconds of one micro-batch by kind of kernel, at datasheet rates, the number of kernels, and their work."""

    matmul: Number = 0.0
    matmul8: Number = 0.0
    grouped: Number = 0.0
    grouped8: Number = 0.0
    attention: Number = 0.0
    memory: Number = 0.0
    kernels: Number = 0.0
    issued: Number = 0.0
    """Work of the host, in operations issued from Python."""
    waits: Number = 0.0
    """The part of it during which the GPU has nothing to do."""
    cover: Number = 0.0
    """Of the products, those that an exchange of the same operation may run beside."""
    flops: Number = 0.0
    """Floating-point operations of products, attention and scans, as utilisation counts them: attention dense, and
    without the scores that a flash kernel makes again in its own backward."""

    def add(self, other: Sums, times: Number = 1) -> None:
        """Add ``times`` times another."""
        mine, once = vars(self), isinstance(times, int) and times == 1
        for name, value in vars(other).items():
            if not isinstance(value, PLAIN) or value:  # most kernels are of one kind
                mine[name] = mine[name] + (value if once else product(times, value))


@dataclass(repr=False, eq=False)
class StageCompute:
    """One stage's computation per micro-batch, and that of its optimizer step."""

    phases: dict[str, Sums] = field(default_factory=lambda: {phase: Sums() for phase in PHASES})
    ends: dict[str, Sums] = field(default_factory=lambda: {phase: Sums() for phase in PHASES})
    """The part of them that embedding and output layer are; nothing of those is computed again."""
    optimizer: Number = 0.0
    update: UpdateWork = field(default_factory=UpdateWork)
    decomposing: Number = 0.0
    """Seconds per step of decompositions of gradients, at a rate of their own."""


class BlockSums(NamedTuple):
    """Seconds of one block of the ledger: forward, backward, what full and selective recomputation repeat, and what
    runs again in its own backward."""

    forward: Sums
    backward: Sums
    again: Sums
    dropped: Sums
    reruns: Sums
