"""What a framework's own scripts set, layouts that it chose, and its policies of what layers keep."""

from typing import Any, Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, KeptPart, MaybeCount, MaybePositive, ZeroStage


class Script(Spec):
    """What a framework's own script sets for a model on an accelerator."""

    seq: MaybeCount = None
    ep: MaybeCount = None
    micro_batch: MaybeCount = None
    global_batch: MaybeCount = None
    grad_accum: MaybeCount = None
    recompute: str | None = None
    """As a measured run's cell has it: what is computed again, or ``other:`` and one of the framework's policies."""
    attention: Literal["flash", "eager"] | None = None
    capacity_factor: MaybePositive = None
    """Slots of an expert over the mean of its tokens."""


class ChosenLayout(Spec):
    """A layout that a framework's publisher chose, or its own search found, for a model on a number of GPUs."""

    gpus: Count
    tp: Count = 1
    pp: Count = 1
    ep: Count = 1
    zero: ZeroStage = 0
    micro_batch: MaybeCount = None
    """None where a script has it."""
    global_batch: MaybeCount = None
    noted: str = ""
    """A word of rows' notes without which this is not their layout."""


class Remat(Spec):
    """One of a framework's own policies of what a layer keeps for backward."""

    keeps: tuple[KeptPart, ...]
    """As ``kernels.kept``."""
    offload: bool = False
    """What is kept goes to the host's memory."""
    inputs: bool = False
    """So do layers' inputs."""
    long_keeps: tuple[KeptPart, ...] = ()
    """What it keeps of sequences of ``long_tokens`` and more, where that is something else."""
    long_tokens: int = 0

    def kernels(self, tokens: int = 0) -> dict[str, Any]:
        """The kernels that it means of sequences of so many tokens."""
        moved = {"offloads": "all" if self.inputs else "products"} if self.offload else {}
        return {"kept": self.long_keeps if 0 < self.long_tokens <= tokens else self.keeps, **moved}
