"""What of a layer's saved tensors leaves the GPU where activations are offloaded, and how."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import Count


class OffloadKernels(Spec):
    """Offloaded activations. Source: the framework's own code."""

    offloads: Literal["all", "marked", "products", "modules"] = "all"
    """What of a layer's saved tensors offloaded activations are: all, those that modules mark (Transformer Engine
    before 2.10), what a policy names, beside which a layer's input stays (XLA), or those of ``offload_modules``."""
    offload_modules: tuple[str, ...] = ()
    """Modules all of whose saved tensors are offloaded, by Megatron's names (layers/moved.py)."""
    offload_waits: bool = False
    """The host waits for each copy of offloaded activations, so that nothing runs beside them."""
    offload_stash: Count = 2
    """Layers whose offloaded tensors are on the GPU when a forward pass ends: one computes while another is copied
    (NVIDIA/TransformerEngine pytorch/cpu_offload.py), or as many as are only given up later (torchtune)."""
