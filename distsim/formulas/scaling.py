"""Compute-optimal model size and data by Chinchilla: advice about quality, not about time or money."""

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
    """Training tokens at which a model of this size is compute-optimal."""
    return parameters * TOKENS_PER_PARAMETER


@formula(unit="parameters", source=f"{CHINCHILLA}, approach 1 and 2, table 3, with C = 6 N D")
def optimal_parameters(flops: Number) -> Number:
    """Parameters of the compute-optimal model for a budget of FLOPs."""
    return (flops / (FLOPS_PER_PARAMETER_AND_TOKEN * TOKENS_PER_PARAMETER)) ** 0.5


@formula(unit="FLOP", source="Kaplan et al. 2020 (arXiv:2001.08361), section 2.1")
def training_flops(parameters: Number, tokens: Number) -> Number:
    """Model FLOPs of a whole training run, 6 N D."""
    return FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens


@formula(unit="tokens", source="Bi et al. 2024, DeepSeek LLM (arXiv:2401.02954), section 3.1: 0.2920 C^0.3271")
def good_batch_tokens(flops: Number) -> Number:
    """Tokens per optimizer step with which a training run of ``flops`` reaches nearly its lowest loss."""
    return BATCH_FACTOR * flops**BATCH_EXPONENT
