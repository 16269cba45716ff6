"""How fast kernels multiply experts on an architecture, over libraries' grouped products there."""

from distsim.specs.base import Spec
from distsim.specs.quantity import Amount, Positive

Passes = tuple[Positive, Positive, Positive]
"""Forward, input gradients and weight gradients."""


class GroupedKernels(Spec):
    """Products of experts in one kernel that is not a library's."""

    torch: Passes = (1.0, 1.0, 1.0)
    """Rates of torch's own grouped product (torch._grouped_mm) in 16 bits."""
    torch_narrow: Passes = (1.0, 1.0, 1.0)
    """Rates of torch's scaled grouped products in 8 bits."""
    triton_once: Positive = 1.0
    triton_each: Amount = 0.0
    """Time of a grouped product written in Triton (Pallas: haliax's ragged_dot), at once and for each expert of a
    rank."""
