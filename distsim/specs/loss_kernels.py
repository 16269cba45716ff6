"""How a loss is computed over its logits, and what of these it keeps."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import Amount, Count, MaybeAmount, Natural


class LossKernels(Spec):
    """Whether the loss is fused, chunked or taken with the output layer. Source: the framework's own code."""

    loss: Literal["fused", "eager", "with-head", "cut"] = "fused"
    """``fused`` keeps fp32 logits once (vocabulary-parallel cross entropy); ``eager`` upcasts and keeps the fp32
    log-softmax, with bf16 logits, their upcast and their gradients in transit; ``with-head`` takes the output layer's
    product in a chunk of tokens at a time, and both their gradients at once (Liger, torchtitan) or in a backward pass
    that computes the chunk again (TRL); ``cut`` never has logits in memory (Cut Cross Entropy)."""
    loss_kept_bytes: Amount = 4.0
    """Bytes per logit that a fused loss keeps: fp32, or the logits themselves where a compiler makes the rest again."""
    loss_transit_bytes: MaybeAmount = None
    """Bytes per logit in transit while a fused loss is computed, beside what it keeps; None means one in the
    activation dtype."""
    loss_gives: Literal["nothing", "narrow", "wide"] | None = None
    """Logits that a compiled module returns beside the loss that it takes: none, those of its output layer, or fp32
    ones; says what is kept of each and in transit (formulas/loss.py) in the place of the two above."""
    loss_upcast: bool | Literal["autocast"] = True
    """An ``eager`` loss works on fp32 logits; off where it reads those of the output layer (BERT in Hugging Face);
    ``autocast``: only there, since an fp32 buffer is added to them (BART)."""
    loss_chunks: Count = 1
    """Chunks of tokens in which the loss is computed; more than one also those of a ``with-head`` loss, however many
    tokens they have."""
    loss_chunk_tokens: Natural = 0
    """Tokens of a chunk of a ``with-head`` loss; 0: as many as Liger takes."""
    loss_chunk_again: bool = False
    """A chunk of a ``with-head`` loss is computed once more in backward (TRL), which then makes its gradients, instead
    of making them at once."""
    loss_sliced: bool = False
    """An eager loss is taken of slices of the whole logits, a few tokens at a time, so that of its gradients that of
    the logits alone is whole (litgpt)."""
    loss_shifted: bool = False
    """An eager loss reads a copy of the logits without those of the last positions, which of a micro-batch of one
    sequence are no copy but a view."""
    loss_frees_narrow: bool = False
    """The fp32 logits of an eager loss take the name of those that the output layer gave, which go at once."""
    loss_holds_logits: bool | Literal["narrow"] = False
    """The training loop still refers to an eager loss's logits while backward runs: to wide ones, or to those that the
    output layer gave."""
    loss_gathered: bool = False
    """An eager loss is the logits of the targets less a log-sum-exp, whose gradients meet as whole tensors (TRL)."""
    loss_keeps_chunks: bool = False
    """What a chunk's loss keeps lives until backward (torchtune), instead of being differentiated at once."""
    loss_kernel: Literal["one", "eager", "vocab-parallel", "steps", "compiled", "cut"] | None = None
    """How often the loss passes over its logits (engine/kernels/passes.py); None: as ``loss`` says."""
    loss_exchange: Literal["sums", "joined", "gathered"] = "sums"
    """Ranks that share a vocabulary sum three numbers of each position, each by itself or two at once (Megatron core's
    fused loss), or gather four (Transformer Engine's)."""
    loss_metrics: Natural = 0
    """Metrics of training that take the cross entropy of every micro-batch's logits once more, composed in fp32."""
