"""Tensors that leave the GPU where a job offloads modules of a layer, not all that a layer saves.

A module's saved tensors are copied by hooks around its forward pass (NVIDIA/Megatron-LM
core/pipeline_parallel/fine_grained_activation_offload.py); one that an operation outside of these modules saves too is
copied as well, but stays.
"""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.layers.ledger import Block, Operation, Tensor
from distsim.layers.names import SECOND
from distsim.units import MIB

LEAST_ELEMENTS = MIB
"""Tensors of fewer elements are not moved (the same file: min_offloaded_tensor_size, 1024 x 1024)."""
CORE = "core_attention"
"""The kind of the operations of ``core_attn``."""
OPERATIONS = {
    "attention.norm": "attn_norm", "attention.projection": "attn_proj", "mlp.norm": "mlp_norm",
    "mlp.experts.up": "expert_fc1", "mlp.experts.activation": "moe_act", "attention.heads": "core_attn",
}  # fmt: skip
"""Operations that are modules of their own, or whose tensors a module saves."""
QUERIES = "attention."
"""What an attention does besides is making queries, keys and values (``qkv_linear``)."""
ROUTED = "mlp.router"


def _bare(name: str) -> str:
    return name.removeprefix(SECOND)


def module_of(operation: Operation, routed: bool, latent: bool) -> str:
    """The module that an operation of a layer is part of; empty where none of those is. Norms before dense layers' MLP
    and before plain attention are part of the product that follows."""
    name = _bare(operation.name)
    if operation.recompute_class == CORE:
        return "core_attn"
    if name == "attention.norm" and not latent:
        return "qkv_linear"
    if name == "mlp.norm" and not routed:
        return ""
    return OPERATIONS.get(name) or ("qkv_linear" if name.startswith(QUERIES) else "")


def moved(block: Block, modules: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors by name that nothing but operations of these modules saves."""
    names = {_bare(one.name) for one in block.operations}
    routed, latent = ROUTED in names, "attention.kv_down" in names
    found: dict[str, Tensor] = {}
    staying: set[str] = set()
    for operation in block.operations:
        goes = module_of(operation, routed, latent) in modules
        for tensor in operation.saved:
            if goes:
                found[tensor.name] = tensor
            else:
                staying.add(tensor.name)
    return {name: tensor for name, tensor in found.items() if name not in staying}


def moved_bytes(block: Block, modules: tuple[str, ...], sizes: dict[str, Number]) -> Number:
    """Bytes that leave of those in ``sizes``, which are what a layer keeps by name."""
    return sum(
        where(tensor.elements >= LEAST_ELEMENTS, sizes.get(name, 0), 0)
        for name, tensor in moved(block, modules).items()
    )
