"""The gated delta rule in plain torch, chunk after chunk: transformers' ``torch_chunk_gated_delta_rule``, which runs
where the package flash-linear-attention is missing.

Counted on torch 2.13 with meta tensors (benchmarks/torch_passes.py): what each operation that is no view reads and
writes, forward and backward, of transformers 5.24 (models/qwen3_5/modeling_qwen3_5.py) with keys and values 64 to 256
wide and 512 to 2,048 tokens. All of it is in fp32. Linear in the widths of keys and values and in the entries of a
chunk's state for each of its tokens; sums agree to 0.5%. Each chunk selects its slice of seven tensors, whose gradient
is a tensor as large as the whole that is added to the others': so backward moves bytes with the square of the length.
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formula import formula
from distsim.units import FP32_BYTES

CHUNK = 64
"""Tokens of one chunk (``chunk_size``)."""
HOW = (
    "huggingface/transformers 5.24 models/qwen3_5/modeling_qwen3_5.py, torch_chunk_gated_delta_rule, counted operation "
    "by operation on torch 2.13"
)


@formula(unit="B", source=HOW)
def chunk_rule_forward_bytes(rows: Number, key: Number, value: Number) -> Number:
    """Bytes read and written forward, of ``rows`` tokens times heads whose keys and values are so wide."""
    return FP32_BYTES * rows * (38 * key + 26 * value + 1059 + 8 * key * value / CHUNK)


@formula(unit="B", source=HOW)
def chunk_rule_backward_bytes(rows: Number, key: Number, value: Number, chunks: Number) -> Number:
    """Bytes read and written backward; ``chunks`` of one sequence, each of which adds gradients of whole tensors."""
    once = 93 * key + 35 * value + 3310 + 16.5 * key * value / CHUNK
    return FP32_BYTES * rows * (once + chunks * (12.2 * key + 8.2 * value + 231))


@formula(unit="B", source=HOW)
def chunk_rule_kept_bytes(rows: Number, key: Number, value: Number) -> Number:
    """Bytes of what autograd keeps of it besides what it is given."""
    return FP32_BYTES * rows * (8 * key + 3 * value + 326 + key * value / CHUNK)


@formula(unit="1", source=HOW)
def chunk_rule_forward_kernels(chunks: Number) -> Number:
    """Operations forward that are no views."""
    return 46 + 9 * chunks


@formula(unit="1", source=HOW)
def chunk_rule_backward_kernels(chunks: Number) -> Number:
    """Operations backward that are no views."""
    return 81 + 32 * chunks
