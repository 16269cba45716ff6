"""What computing layers again holds in memory, and where it ends."""

from typing import Literal

from distsim.specs.base import Spec


class RecomputeKernels(Spec):
    """How whole layers are computed again. Source: the framework's own code."""

    recompute_stops_early: bool = False
    """Recomputing a layer ends before its last product, which backward does not read: torch's checkpoint without
    reentrant autograd, and XLA."""
    recompute_holds: Literal["nothing", "output", "slice"] = "nothing"
    """What backward of a recomputed layer holds beside what its operations keep: ``output``, from which reentrant
    autograd starts, and its gradient (torch's CheckpointFunction, Megatron's and DeepSpeed's); ``slice``, its input
    taken out of one tensor of all scanned layers' (JAX)."""
    recompute_reaches_inputs: bool = False
    """Where layers are computed again, what the first layer of each network reads is made to need a gradient, so that
    backward goes through frozen layers before all that trains, too (transformers' enable_input_require_grads)."""
    recompute_caches: bool = False
    """Layers that are computed again also give their keys and values, which the caller holds until the next step: a
    model of transformers whose ``use_cache`` is on, in layers that somebody else wraps in checkpoints."""
    recompute_given: bool = False
    """Masks, biases of distances and rotary tables, which all layers are given beside their input, live until the
    backward pass of the first layer that is computed again (transformers)."""
