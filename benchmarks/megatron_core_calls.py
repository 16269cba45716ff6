"""The collectives that a program issues, noted at torch's dispatcher."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

OPS = {
    "_allgather_base_": "all_gather", "_reduce_scatter_base_": "reduce_scatter", "allreduce_": "all_reduce",
    "allgather_into_tensor_coalesced_": "all_gather", "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "allreduce_coalesced_": "all_reduce", "allgather_": "all_gather", "reduce_scatter_": "reduce_scatter",
    "alltoall_base_": "all_to_all", "send": "send_recv", "recv_": "",
}  # fmt: skip
ONE_TENSOR = ("allreduce_", "allreduce_coalesced_", "send", "recv_")


def size_of(tensors: Any) -> int:
    """Bytes of all tensors in a structure."""
    return sum(one.nbytes for one in tree_leaves(tensors) if isinstance(one, torch.Tensor))


class Calls(TorchDispatchMode):
    """Notes each collective: operation, phase, ranks, bytes of its larger side. A fake group receives nothing, so what
    would arrive is zeroed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[tuple[str, str, int, int]] = Counter()
        self.phase = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), func._schema.name.split("::")[-1]
        if func.namespace != "c10d" or name not in OPS:
            return result
        if name in ("recv_", "alltoall_base_"):
            for received in tree_leaves(args[0]):
                if received.dtype != torch.int64:
                    received.zero_()
        group = dist.ProcessGroup.unbox(args[1 if name in ONE_TENSOR else 2])
        size = max(size_of(args[0]), 0 if name in ONE_TENSOR else size_of(args[1]))
        phase = self.phase or ("backward" if torch._C._current_graph_task_id() != -1 else "forward")
        if OPS[name] and group.size() > 1:
            sends = OPS[name] == "send_recv"
            self.found[OPS[name], "" if sends else phase, 2 if sends else group.size(), size] += 1
        return result


def during(calls: Calls, phase: str, function: Any) -> Any:
    """A function whose calls belong to a phase, whenever it is called."""

    def called(*args: Any, **kwargs: Any) -> Any:
        before, calls.phase = calls.phase, phase
        try:
            return function(*args, **kwargs)
        finally:
            calls.phase = before

    return called
