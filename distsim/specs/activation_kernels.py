"""How the activation functions of MLPs are computed, and what they keep until backward."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import MaybeNatural, Natural


class ActivationKernels(Spec):
    """Activations and the products by their gates. Source: the framework's own code."""

    activation: Literal["fused", "gates", "eager"] = "fused"
    """``eager`` keeps all steps of a composed activation (gelu_new: four) and of a gated product, ``gates`` of that."""
    activation_overwrites: bool = False
    """The backward kernel of a gated product writes both factors' gradients over the factors that were kept (Liger's
    and Unsloth's kernels in Triton)."""
    gate_tensors: Natural = 1
    """Tensors of the inner width that an eager gated activation keeps beside its two inputs and its product: the
    activated gate, or four where the product is clamped and composed (GPT-OSS)."""
    expert_gate_tensors: MaybeNatural = None
    """The same of experts, where they differ from dense MLPs."""
    activation_kept: Literal["own", "fp8"] = "own"
    """A fused activation keeps its input as it is, or cast to 8 bits, and casts it back in backward (Megatron's
    activation_func_fp8_input_store)."""
