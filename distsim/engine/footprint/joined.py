"""Gradients that torch's FSDP joins and reduces: whose shards lie apart, and what waits to be joined."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.traffic import DTYPE_BYTES


def reduces_apart(setup: Setup) -> Number:
    """Whether torch's FSDP reduces gradients of what it gathered, on a stream of its own whose blocks the allocator
    gives no other: the shards that are kept are made there (torch.distributed.fsdp _runtime_utils.py, _reduce_grad
    under state._post_backward_stream; _fsdp_collectives.py, foreach_reduce under reduce_scatter_stream)."""
    shards = setup.layout.shards(setup.model.experts is not None)
    return setup.framework.buffers.gathers_copies & (setup.layout.zero >= 2) & shards


def unjoined_bytes(setup: Setup) -> float:
    """Bytes per element of gradients that wait whole until those of the one unit of a model are joined."""
    return DTYPE_BYTES[setup.precision.gather_dtype]
