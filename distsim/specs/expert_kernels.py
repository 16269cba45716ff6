"""How experts are computed: their products, the order of their tokens, and what ranks that share them exchange."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import Factor


class ExpertKernels(Spec):
    """Kernels of experts, and what these read. Source: the framework's own code."""

    router_keeps_input: bool = False
    """The router's product is a function of its own, which keeps its input as wide as activations are, whether or not
    its weights train."""
    expert_products: Literal["grouped", "loop", "modules", "sequential"] = "grouped"
    """A rank's experts are multiplied in one kernel; one expert after another in compiled code; one after another as
    modules of Python, each of which first asks the GPU which tokens are its own (transformers before 5.0); or as MLPs
    like a dense layer's, of tokens that are in the experts' order (Megatron core's SequentialMLP)."""
    expert_slices: bool = False
    """A loop over modules takes each expert's matrix as a slice of one tensor of all, whose gradient is a tensor as
    large with zeros elsewhere, added to those of the others (transformers 5 with experts_implementation eager)."""
    expert_counts: Literal["host", "device"] = "device"
    """Who must know how many tokens each expert got before its kernels are issued: where it is the host, it waits for
    the GPU, whose queue is empty when it goes on."""
    expert_kernel: Literal["library", "torch", "triton"] = "library"
    """Grouped products of a library, torch's own grouped_mm, or what is no faster, or a kernel in Triton
    (engine/kernels/expert_rates.py)."""
    expert_tiles: Literal["usual", "fitted"] = "usual"
    """Pallas kernels of experts' products have the tiles of a configuration's defaults, or those that a recipe chose
    for the model's widths (engine/kernels/expert_tiles.py)."""
    expert_index: Literal["fused", "indexed", "eager"] = "fused"
    """Tokens are put in the experts' order by kernels written for it, or by plain torch's indexing, which a compiler
    takes its neighbours from or (``eager``) leaves alone."""
    expert_padding: bool = False
    """Plain torch's indexing fills each expert's tokens up to a multiple, by a pass of its own where no exchange puts
    them in order anyway."""
    expert_bias: Literal["fused", "composed", "repeated", "indexed"] = "fused"
    """Biases of experts' outputs are added with the routers' weights in one kernel, one by one in plain torch, or those
    of both products are repeated for each token, by their counts or by an index whose gradient is a sum row by row."""
    expert_clamp: Literal["fused", "composed", "sliced"] = "fused"
    """What experts' activation reads is clamped in its kernel, or in plain torch before it, in halves or in slices."""
    expert_order: Literal["fused", "around"] = "fused"
    """Tokens are put in the order of experts once on each side by what sends them (DeepEP, HybridEP), or besides by a
    pass before and after an all-to-all, which sends a token to each of its experts."""
    expert_map: Literal["copies", "scores", "places"] = "copies"
    """What passes around an all-to-all keep of the order: an index of each copy of a token; for each token and expert
    whether it goes there, and with what weight (Megatron core's own); or two numbers of 4 bytes for each token and
    expert (Transformer Engine's, moe_permute_fusion), with one of each copy for either pass behind the exchange."""
    router_weights: Literal["activations", "fp32"] = "activations"
    """The format in which routers' weights go to experts, and in which ranks that share experts by tensor parallelism
    add up what these give (Megatron's moe_router_dtype)."""
    expert_order_alone: Literal["fused", "around"] | None = None
    """The same on a rank that has all experts and sends none of their tokens, where a job asks for another dispatcher
    than its framework's; by default it is the same."""
    expert_tokens: Literal["chosen", "all"] = "chosen"
    """Experts compute the tokens that the router sends them, or every token, which it weighs by zero."""
    expert_gate: Literal["joined", "apart"] = "joined"
    """Experts' gate and up are one product, or one each (where a kernel's tiles are wider than either fills)."""
    expert_slots: Literal["indexed", "one-hot"] = "indexed"
    """How tokens come to slots of a fixed capacity: by index, or by products with masks (layers/capacity.py)."""
    expert_slot_groups: Literal["model", "micro_batch"] = "model"
    """Tokens share slots as the model groups them, or all of a rank's micro-batch do (DeepSpeed's gate)."""
    expert_masks: Literal["fused", "composed"] = "fused"
    """Masks over tokens and slots come out of one kernel, whose time nothing counts, or of plain torch's operations one
    by one (engine/kernels/mask_passes.py)."""
    expert_buffers: Literal["exact", "worst"] = "exact"
    """Buffers of what experts are sent hold that, or, where shapes are fixed before (XLA), all that they could be."""
    expert_room: Factor = 1.0
    """Rows of experts' tensors over the mean of their tokens in a graph of whole steps, whose shapes are fixed."""
    expert_pages: Factor = 1.0
    """The same of the pages to which such a graph copies what experts keep, where their products quantise it."""
    expert_rows_once: Literal["indexed", "selected"] = "indexed"
    """Where a dispatcher sends tokens once (DeepEP) plain torch's indexing orders them as it does others, with results
    weighted and summed; or ``index_select`` and ``scatter_add`` do, and the activation weighs (torchtitan)."""
    rows_taken: Literal["vectorised", "strided"] = "vectorised"
    """Plain torch takes rows by an index a vector at a time, or element by element (before release 2.8)."""
    expert_scale: Literal["after", "before", "inputs"] = "after"
    """Routers' weights multiply what experts give, what their second product reads, or what their first one does."""
    expert_output_wide: bool = False
    """Routers' weights multiply fp32 copies of what experts give, one by one in plain torch."""
    expert_gathers: Literal["copies", "tokens", "group"] = "copies"
    """Ranks that share experts by tensor parallelism gather what the router sends to these, one copy of a token for
    each of its experts (Megatron's all-to-all dispatcher), or all tokens before they are routed, with those of shared
    experts, and reduce what experts' ranks add up (torch: a region of DTensors around the block); or a ``group`` of all
    ranks that have parts of the experts gathers all its tokens, with masks and weights of each expert, and reduces what
    it adds up (Megatron's allgather dispatcher)."""
