"""Which operations CUDA graphs hold, that the host then need not issue."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.layers.ledger import Operation
from distsim.layers.names import COMBINE, DISPATCH, EXPERT_ACTIVATION, EXPERTS, MLP_NORM, ROUTER, SHARED

DYNAMIC = (DISPATCH, *EXPERTS, EXPERT_ACTIVATION, COMBINE)
"""Operations whose shapes depend on where the router sends tokens, so that no graph of a module holds them."""
BEFORE_EXPERTS = (MLP_NORM, ROUTER)
"""What graphs of routers hold: an MLP with experts up to its router, and shared experts, which no exchange overlaps
(NVIDIA/Megatron-LM training/arguments.py, --cuda-graph-scope: moe_router)."""


def captured(setup: Setup, operation: Operation) -> bool:
    """Whether a job's CUDA graphs hold an operation."""
    graphs, name = setup.kernels.graphs, operation.name
    if graphs == "routers":
        return name in BEFORE_EXPERTS or name.startswith(SHARED)
    return graphs == "iteration" or (graphs == "modules" and name not in DYNAMIC)
