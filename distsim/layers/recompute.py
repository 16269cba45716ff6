"""What selective recomputation keeps of a layer where it is told by operations: torchtitan's ``op``, XLA's names."""

from __future__ import annotations

import functools

from distsim.arrays import Number, nothing, where
from distsim.layers.ledger import Block, Operation, Tensor
from distsim.layers.names import EXCHANGE, SECOND
from distsim.specs.kernels import Kernels

KEPT_OF_ATTENTION = ("attention.lse", "attention.rng")
KEPT_INDICES = ("mlp.router.chosen",)
PARTS = {
    "qkv": ("attention.qkv", "attention.query", "attention.query_down", "attention.query_up", "attention.kv_down",
            "attention.kv_up", "attention.heads"),
    "context": ("attention.core", EXCHANGE),
    "out": ("attention.projection",),
    "up": ("mlp.up", "mlp.shared.up", "mlp.experts.up", "mlp.router"),
    "down": ("mlp.down", "mlp.shared.down", "mlp.experts.down"),
}  # fmt: skip
"""What policies call a layer's products, and the operations whose outputs are kept with them."""


SUMMED = ("attention.projection", "mlp.down")
"""Products whose output is a sum over tensor parallel ranks, of which each then holds as much as of a layer's input."""


def _bare(tensor: Tensor) -> str:
    """A tensor's name in whichever half of a layer."""
    return tensor.name.removeprefix(SECOND)


@functools.cache
def kept_operations(parts: tuple[str, ...]) -> frozenset[str]:
    """The operations whose outputs a policy keeps."""
    return frozenset(name for part in parts for name in PARTS[part])


def _grouped(operation: Operation) -> bool:
    """Whether a row is many products in one call, of experts (grouped_mm) or of groups of heads (bmm)."""
    return operation.role == "batched" or any(parameter.group == "expert" for parameter in operation.parameters)


def _biased(operation: Operation) -> bool:
    return any(parameter.is_bias for parameter in operation.parameters)


def kept_by_kind(operation: Operation) -> bool:
    """Whether recomputation by operations always keeps what a row makes: attention, and products that add a bias
    (torch's addmm); its policy names neither experts' products (grouped_mm) nor batched ones (bmm)."""
    return operation.kind == "attention" or (
        operation.kind == "matmul" and _biased(operation) and not _grouped(operation)
    )


def counted_product(operation: Operation) -> bool:
    """Whether a row is a product of which every second one is kept."""
    return operation.kind == "matmul" and not _grouped(operation) and not _biased(operation)


def _products(operation: Operation) -> list[Tensor]:
    """The outputs of the separate matrix products of one row, in order: queries, keys, values; gate, up."""
    output = operation.output
    assert output is not None
    parameter = operation.parameters[0] if operation.parameters else None
    if parameter is None or parameter.copies == 1:
        return [output]
    count = int(parameter.copies)
    widths = parameter.parts or (1,) * count
    whole = sum(widths)
    return [
        output._replace(name=f"{output.name}_{index}", elements=output.elements * width / whole)
        for index, width in enumerate(widths)
    ]


def op_level_saved(
    block: Block, kernels: Kernels, math: str = "bf16", exchanged: tuple[str, ...] = ()
) -> dict[str, Number]:
    """Bytes by name: the layer's input, every second product without a bias from the first on and all with one,
    attention, top-k indices, and what ``exchanged`` collectives give."""
    escaped = math == "fp4" and not kernels.op_keeps_narrow
    assert block.boundary is not None
    kept: dict[str, Number] = {block.boundary.name: block.boundary.size_bytes}
    seen = 0
    unread = frozenset() if kernels.op_keeps_unread else _only_added(block)
    for operation in block.operations:
        if operation.kind == "matmul" and operation.output is not None and not (escaped or _grouped(operation)):
            counted = counted_product(operation)
            for product in _products(operation):
                seen += counted
                if (seen % 2 or not counted) and operation.name not in unread:
                    kept[product.name] = product.size_bytes
        elif operation.kind == "attention" and operation.output is not None:
            kept[operation.output.name] = operation.output.size_bytes
        wanted = KEPT_OF_ATTENTION + KEPT_INDICES
        kept.update({tensor.name: tensor.size_bytes for tensor in operation.saved if _bare(tensor) in wanted})
        kept.update(_received(operation, block.boundary, exchanged, operation.name in unread))
    return kept


def _received(operation: Operation, boundary: Tensor, exchanged: tuple[str, ...], unread: bool) -> dict[str, Number]:
    """What an operation's exchanges give in forward: a rank's part of a sum, which may go unread, and tokens at their
    experts and back, whose weights they are multiplied by."""
    kept: dict[str, Number] = {}
    for one in operation.collectives:
        if one.phase != "forward" or one.op not in exchanged or (unread and one.group == "tp"):
            continue
        sizes = {"tp": where(one.bytes_logical > 0, boundary.size_bytes, 0), "ep": one.bytes_logical}
        if not nothing(size := sizes.get(one.group, 0)):
            kept[f"{operation.name}.{one.op}"] = size
    return kept


def _only_added(block: Block, first: int = 0) -> frozenset[str]:
    """Products that nothing reads but the sum that a layer gives on: the last before a residual, with its adapters,
    unless a norm follows, of the product or of the sum, which is made again from it; of additions from the ``first``
    row on."""
    names = {operation.name for operation in block.operations}
    found: set[str] = set()
    for index, operation in enumerate(block.operations[first:], first):
        normed = operation.name.replace(".residual", ".post_norm") in names or _sum_is_read(block, index)
        if operation.name.endswith(".residual") and not normed:
            for before in reversed(block.operations[:index]):
                if ".lora_a" not in before.name:
                    found.add(before.name)
                if ".lora_" not in before.name:
                    break
    return frozenset(found)


def _sum_is_read(block: Block, index: int) -> bool:
    """Whether a norm after this residual reads what it has added up, not the layer's input as parallel blocks do."""
    assert block.boundary is not None
    later = (one for one in block.operations[index + 1 :] if one.kind == "norm" and one.saved)
    return any(one.saved[0].name != block.boundary.name for one in later)


def _never_read(block: Block) -> frozenset[str]:
    """Products that only the last addition reads: neither backward nor what is made again needs their output."""
    additions = [place for place, one in enumerate(block.operations) if one.role == "residual"]
    return _only_added(block, additions[-1]) if additions else frozenset()


def op_level_bytes(block: Block, kernels: Kernels, math: str = "bf16", exchanged: tuple[str, ...] = ()) -> Number:
    """All of it together."""
    return sum(op_level_saved(block, kernels, math, exchanged).values())


def named_saved(block: Block, parts: tuple[str, ...]) -> dict[str, Number]:
    """Bytes by name: the layer's input, and the outputs that a policy keeps and something reads (JAX drops others)."""
    assert block.boundary is not None
    kept = kept_operations(parts) - _never_read(block)
    sizes: dict[str, Number] = {block.boundary.name: block.boundary.size_bytes}
    for operation in block.operations:
        if operation.name in kept and operation.output is not None:
            whole = operation.name not in SUMMED
            sizes[operation.output.name] = operation.output.size_bytes if whole else block.boundary.size_bytes
            sizes.update({one.name: one.size_bytes for one in operation.saved if _bare(one) in KEPT_OF_ATTENTION})
    return sizes


def named_bytes(block: Block, parts: tuple[str, ...]) -> Number:
    """All of it together."""
    return sum(named_saved(block, parts).values())
