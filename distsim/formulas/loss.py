"""Losses over a vocabulary, computed for a chunk of the tokens at a time."""

from distsim.arrays import Number, ceil_div, ceil_log2, minimum, where
from distsim.formula import formula


@formula(unit="tokens", source="linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py: inc_factor, chunk_size")
def loss_chunk_tokens(tokens: Number, words: Number, width: Number) -> Number:
    """Tokens whose logits are alive at once: enough to make the logits about as large as the layer's input, rounded up
    to a power of two.

    ``words`` and ``width`` are the columns and rows of the output layer's weight.
    """
    return minimum(tokens, 2 ** ceil_log2(ceil_div(tokens, ceil_div(words, width))))


@formula(unit="bytes", source="torch 2.13 AOTAutograd and inductor on fake tensors: tests/oracles/torch_compiled.csv")
def compiled_logit_kept(activation: Number, given: Number, capped: Number) -> Number:
    """Bytes that a compiled module keeps for each logit when it has taken its loss.

    Of a loss alone the ``activation`` bytes of the output layer's product, whatever casts and caps follow. A module
    that returns ``given`` bytes a logit has these in their place, and under a softcap the product beside them.
    """
    return where(given > 0, given + capped * activation, activation)


@formula(unit="bytes", source="torch 2.13 AOTAutograd and inductor on fake tensors: tests/oracles/torch_compiled.csv")
def compiled_logit_transit(activation: Number, given: Number) -> Number:
    """Bytes for each logit in transit when a compiled module's loss runs backward, beside what it keeps.

    The gradient of a loss alone is written over the product. Of logits that are returned autograd makes a gradient of
    zeros, ``given`` bytes each, and the product's own stands beside it.
    """
    return where(given > 0, given + activation, 0)
