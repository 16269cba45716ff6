"""Losses over a vocabulary, computed for a chunk of the tokens at a time."""

from distsim.arrays import Number, ceil_div, ceil_log2, minimum
from distsim.formula import formula


@formula(unit="tokens", source="linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py: inc_factor, chunk_size")
def loss_chunk_tokens(tokens: Number, words: Number, width: Number) -> Number:
    """Tokens whose logits are alive at once: enough to make the logits about as large as the layer's input, rounded up
    to a power of two.

    ``words`` and ``width`` are the columns and rows of the output layer's weight.
    """
    return minimum(tokens, 2 ** ceil_log2(ceil_div(tokens, ceil_div(words, width))))
