"""Which products a recipe of 8 or 4 bits leaves in 16."""

from __future__ import annotations

from distsim.layers.ledger import Parameter

NARROW = ("fp8", "fp4")
WIDE_PRODUCTS = ("head", "head.transform", "head.pooler", "head.sentence", "mlp.router", "mlp.shared.gate")
"""Output layers and routers, which are no modules of Transformer Engine (NVIDIA/Megatron-LM core)."""


def stays_wide(operation: str) -> bool:
    """Whether a product, by its name in the ledger, is one of 16 bits whatever the recipe; so are all heads of
    multi-token prediction."""
    return operation in WIDE_PRODUCTS or (operation.startswith("mtp") and operation.endswith(".head"))


def narrow_weight(parameter: Parameter) -> bool:
    """Whether a recipe of 8 or 4 bits holds or copies a tensor in them: the matrix of a product, but of no wide one;
    embeddings, norms and biases stay as they are."""
    return parameter.kind == "matrix" and not stays_wide(parameter.name.removesuffix(".weight"))
