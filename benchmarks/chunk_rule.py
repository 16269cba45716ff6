"""What distsim/formulas/chunk_rule.py is made of: python benchmarks/chunk_rule.py, with torch and transformers.

Runs transformers' torch_chunk_gated_delta_rule on meta tensors, forward and backward, adds up what each operation that
is no view reads and writes and what autograd keeps, and fits sums that are linear in the widths of keys and values.
Prints per token and head: numbers of fp32 for each channel of a key, of a value, for itself, for each entry of a state
over the tokens of a chunk; then the first three again for each chunk of a sequence; and the largest error of each fit.
"""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

VIEWS = {"view", "_unsafe_view", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "t",
         "as_strided", "split", "detach", "alias", "reshape", "_reshape_alias", "unbind"}  # fmt: skip
WIDTHS = ((128, 128), (64, 128), (128, 64), (128, 256), (256, 128), (64, 64), (256, 256), (64, 256))
LENGTHS = (512, 1024, 2048)
HEADS, CHUNK, FP32_BYTES = 16, 64, 4


class Count(TorchDispatchMode):
    """Operations that are no views, and bytes of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: collections.Counter[str] = collections.Counter()
        self.moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        if name not in VIEWS:
            read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
            written = [leaf for leaf in made if not any(leaf is one for one in read)]
            self.operations[name] += 1
            self.moved += sum(leaf.numel() * leaf.element_size() for leaf in (*read, *written))
        return out


class Counted(NamedTuple):
    """Of one call: kernels and bytes forward, the same backward, bytes kept besides what it is given."""

    forward_kernels: int
    forward: int
    backward_kernels: int
    backward: int
    kept: int


def counted(tokens: int, key: int, value: int) -> Counted:
    """One call on meta tensors in bf16, decays in fp32."""

    def given(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(1, tokens, HEADS, *shape, dtype=dtype, device="meta", requires_grad=True)

    inputs = given(key), given(key), given(value)
    decays, writes = given(dtype=torch.float32), given()
    own = {tensor.untyped_storage()._cdata for tensor in (*inputs, decays, writes)}
    alive, kept = [], dict[int, int]()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), Count() as forward:
        out = torch_chunk_gated_delta_rule(
            *inputs, g=decays, beta=writes, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=True
        )[0]
    with Count() as backward:
        out.backward(torch.empty_like(out))
    return Counted(
        forward.operations.total(), forward.moved, backward.operations.total(), backward.moved,
        sum(size for storage, size in kept.items() if storage not in own),
    )  # fmt: skip


def fitted(name: str, columns: list[list[float]], bytes_each: list[float]) -> None:
    """Least squares over all cases, printed in numbers of fp32."""
    table, wanted = numpy.array(columns), numpy.array(bytes_each)
    found = numpy.linalg.lstsq(table, wanted, rcond=None)[0]
    worst = numpy.abs(table @ found / wanted - 1).max()
    print(f"{name:<9}", " ".join(f"{number / FP32_BYTES:9.2f}" for number in found), f"  worst {worst:.2%}")


def main() -> None:
    """Print kernels by length, then the three fits."""
    cases = [(key, value, tokens, counted(tokens, key, value)) for key, value in WIDTHS for tokens in LENGTHS]
    for _, _, tokens, one in cases[: len(LENGTHS)]:
        print(f"{tokens // CHUNK} chunks: {one.forward_kernels} kernels forward, {one.backward_kernels} backward")
    once = [[key, value, 1.0, key * value / CHUNK] for key, value, _, _ in cases]
    chunks = [tokens / CHUNK for _, _, tokens, _ in cases]
    each = [[*own, *(count * part for part in own[:3])] for own, count in zip(once, chunks, strict=True)]
    rows = [tokens * HEADS for _, _, tokens, _ in cases]
    for name, columns in (("forward", once), ("backward", each), ("kept", once)):
        fitted(name, columns, [getattr(one, name) / size for (*_, one), size in zip(cases, rows, strict=True)])


if __name__ == "__main__":
    main()
