"""The most bytes alive at once in a step of Megatron core whose exchanges of experts hide behind another micro-batch.

Run with each release: python benchmarks/megatron_core_overlap.py (torch, megatron-core, einops); a line of JSON for
each job, as tests/oracles/megatron_core_overlap.json has them. As megatron_core.py, but every storage that an
operation made and that is still alive counts, not only what autograd saved: schedules hold tensors of their own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import types
import weakref
from collections.abc import Callable
from typing import Any

import megatron.core
import megatron_core as recorded
import torch
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

JOBS = ((1, 1, 4), (1, 1, 8), (2, 2, 8), (2, 2, 16), (2, 4, 16))
"""Stages, chunks of each, layers."""
MICRO, SEQ, EXPERT_RANKS = {1: 4, 2: 8}, 256, 2


class Alive(TorchDispatchMode):
    """Counts the bytes of storages that are alive after each operation."""

    def __init__(self, owned: set[int]) -> None:
        super().__init__()
        self.owned, self.storages, self.most = owned, dict[int, weakref.ref[Any]](), 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        alive = (reference() for reference in list(self.storages.values()))
        self.most = max(self.most, sum(storage.nbytes() for storage in alive if storage is not None))
        return made

    def _note(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self.owned and key not in self.storages:
            self.storages[key] = weakref.ref(storage, lambda _: self.storages.pop(key, None))


def _forward(run: recorded.Run) -> Callable[..., Any]:
    def forward(_: Any, model: Any, return_schedule_plan: bool = False) -> Any:
        words = torch.randint(0, 100, (1, SEQ))
        places = torch.arange(SEQ)[None]
        call = model.build_schedule_plan if return_schedule_plan else model
        return call(words, places, None, labels=words), lambda out: (out.float().mean(), {})

    return forward


def alive(stages: int, chunks: int, layers: int, overlap: bool, delay: bool = False) -> int:
    """The most bytes alive on the first stage, without weights and gradients' buffers."""
    job = {"seq": SEQ, "gpus": stages * EXPERT_RANKS, "pp": stages, "vpp": chunks, "ep": EXPERT_RANKS, "zero": 1,
           "global_batch": MICRO[stages] * EXPERT_RANKS}  # fmt: skip
    run = recorded.Run({"model": "experts", "fused": False, "job": job}, layers)
    run.train()
    run.config.overlap_moe_expert_parallel_comm, run.config.delay_wgrad_compute = overlap, delay
    modules = [one for chunk in run.chunks for one in chunk.modules() if hasattr(one, "backward_dw")]
    for one in modules if delay else ():
        one.backward_dw = lambda *args, **kwargs: None  # weight gradients themselves are not put off here
    buffers = [one.grad_data for chunk in run.chunks for one in (*chunk.buffers, *chunk.expert_parallel_buffers)]
    owned = [*buffers, *(one for chunk in run.chunks for one in chunk.parameters())]
    with recorded.Calls(), Alive({one.untyped_storage()._cdata for one in owned}) as found:
        get_forward_backward_func()(
            forward_step_func=_forward(run), data_iterator=[iter(())] * chunks if chunks > 1 else iter(()),
            model=run.chunks if chunks > 1 else run.chunks[0], num_microbatches=run.micro, seq_length=SEQ,
            micro_batch_size=1, forward_only=False,
        )  # fmt: skip
    return found.most


def main() -> None:
    """Print all recordings of this release."""
    logging.disable(logging.WARNING)
    torch.Tensor.record_stream = lambda *args: None
    torch.cuda.nvtx = types.SimpleNamespace(
        range_push=lambda *args: None, range_pop=lambda *args: None, range=contextlib.nullcontext
    )
    for stages, chunks, layers in JOBS:
        found = {"core": megatron.core.__version__, "stages": stages, "chunks": chunks, "layers": layers}
        found |= {"plain": alive(stages, chunks, layers, False), "overlap": alive(stages, chunks, layers, True),
                  "delayed": alive(stages, chunks, layers, True, delay=True)}  # fmt: skip
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
