"""Which products a recipe of 8 or 4 bits leaves in 16."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.layers.names import HEAD, POOLER, ROUTER, SENTENCE, SHARED_GATE, TRANSFORM, WEIGHT

NARROW = ("fp8", "fp4")
INPUTS = "embedding"
"""How tables and projections of inputs are called."""
PREDICTION = "mtp"
"""How the names of rows of multi-token prediction begin."""
WIDE_PRODUCTS = (HEAD, TRANSFORM, POOLER, SENTENCE, ROUTER, SHARED_GATE)
"""Output layers and routers, which are no modules of Transformer Engine (NVIDIA/Megatron-LM core)."""


def stays_wide(operation: str) -> bool:
    """Whether a product, by its name in the ledger, is one of 16 bits whatever the recipe; so are what makes inputs and
    all heads of multi-token prediction."""
    more = operation.startswith(PREDICTION) and operation.endswith(".head")
    return operation in WIDE_PRODUCTS or operation.startswith(INPUTS) or more


def wide_here(setup: Setup, operation: str) -> bool:
    """Whether an operation of a job stays in 16 bits, given that its software may multiply the output layer in the
    recipe's format, too."""
    if setup.kernels.wide_predictions and operation.startswith(PREDICTION):
        return True
    return stays_wide(operation) and not (setup.kernels.narrow_head and operation.endswith("head"))


def wide_share(setup: Setup) -> float:
    """Part of the layers, those of multi-token prediction among them, whose products all stay in 16 bits."""
    model, kernels = setup.model, setup.kernels
    more = model.mtp_trained * len(model.mtp_module)
    wide = kernels.wide_layers + more * kernels.wide_predictions
    return max(setup.precision.wide_share(model.layers), min(1.0, wide / (model.layers + more)))


def narrow_weight(name: str, matrix: bool) -> bool:
    """Whether a recipe of 8 or 4 bits holds or copies a tensor in them: the ``matrix`` of a product, but of no wide
    one; embeddings, norms and biases stay as they are."""
    return matrix and not stays_wide(name.removesuffix(WEIGHT))
