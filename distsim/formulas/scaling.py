"""Compute-optimal size and data, as Chinchilla has it: advice about quality, not about time or money."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formula import formula

CHINCHILLA = "Hoffmann et al. 2022 (arXiv:2203.15556)"
TOKENS_PER_PARAMETER = 20.0
"""Tokens per parameter of compute-optimal models in Hoffmann et al. 2022, table 3 (20.0 at 1B, 21.2 at 67B)."""
FLOPS_PER_PARAMETER_AND_TOKEN = 6.0
"""Forward and backward pass of a dense model, attention left out (Kaplan et al. 2020, section 2.1)."""
BATCH_FACTOR, BATCH_EXPONENT = 0.2920, 0.3271
"""Bi et al. 2024, DeepSeek LLM (arXiv:2401.02954), section 3.1."""


@formula(unit="tokens", source=f"{CHINCHILLA}, approach 1 and 2, table 3: about 20 tokens per parameter")
def optimal_tokens(parameters: Number) -> Number:
    """Tokens for which a model of this size is the best use of its compute."""
    return parameters * TOKENS_PER_PARAMETER


@formula(unit="parameters", source=f"{CHINCHILLA}, approach 1 and 2, table 3, with C = 6 N D")
def optimal_parameters(flops: Number) -> Number:
    """Parameters of the model that is the best use of a number of FLOPs."""
    return (flops / (FLOPS_PER_PARAMETER_AND_TOKEN * TOKENS_PER_PARAMETER)) ** 0.5


@formula(unit="FLOP", source="Kaplan et al. 2020 (arXiv:2001.08361), section 2.1")
def training_flops(parameters: Number, tokens: Number) -> Number:
    """Model FLOPs of a whole training run, 6 N D."""
    return FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens


@formula(unit="tokens", source="Bi et al. 2024, DeepSeek LLM (arXiv:2401.02954), section 3.1: 0.2920 C^0.3271")
def good_batch_tokens(flops: Number) -> Number:
    """Tokens per optimizer step that a training run of so many FLOPs reaches its lowest loss with, nearly."""
    return BATCH_FACTOR * flops**BATCH_EXPONENT
