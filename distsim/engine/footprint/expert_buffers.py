"""Buffers of what sends tokens once to each node or rank of their experts, one set per rank for all of its layers."""

from __future__ import annotations

from distsim.arrays import Number, maximum, where
from distsim.engine.figures import Figures
from distsim.engine.jobs.dispatch import HYBRIDEP, ONCE, dispatcher_named, domains_of, ranks_of, tokens_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.expert_buffers import TOKEN_BYTES, deepep_buffer_bytes, hybridep_buffer_bytes
from distsim.layers.names import DISPATCH

PIECES = ((8, 256, 0), (16, 288, 140), (64, 288, 128), (96, 480, 132), (128, 560, 132))
"""Tokens of a piece inside a node and between nodes, up to so many ranks: the larger of DeepEP's configurations for
dispatch and combine, the latter a multiple of what is sent at once (deepseek-ai/DeepEP deep_ep/buffers/legacy.py,
get_dispatch_config and get_combine_config; csrc/config.hpp). Ranks that it has none for count as the next."""
LARGEST_PIECES = (720, 132)
"""Of 144 and 160 ranks, the most that it has a configuration for."""


def expert_buffer_bytes(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """Bytes outside of torch's allocator (cudaMalloc, fabric handles and NVSHMEM's heap), on stages with experts."""
    experts, layout = setup.model.experts, setup.layout
    kind = dispatcher_named(setup.job, setup.framework, setup.kernels, setup.cluster)
    if experts is None or kind not in ONCE or (isinstance(layout.ep, int) and layout.ep == 1) or not _sends(stage):
        return 0.0
    width, ranks = experts.latent or setup.model.hidden, ranks_of(layout)
    if kind == HYBRIDEP:
        held = figures.use(
            f"buffers of {HYBRIDEP}", hybridep_buffer_bytes, tokens=tokens_of(layout), hidden=width, ranks=ranks,
            nodes=domains_of(layout, setup.cluster), experts=experts.count * layout.etp,
        )  # fmt: skip
    else:
        near, far = pieces(ranks)
        held = figures.use(
            f"buffers of {kind}", deepep_buffer_bytes,
            token_bytes=width * maximum(setup.precision.activation_bytes, TOKEN_BYTES), ranks=ranks,
            near_tokens=near, far_tokens=far,
        )  # fmt: skip
    return where(layout.ep > 1, held, 0)


def pieces(ranks: Number) -> tuple[Number, Number]:
    """Tokens that DeepEP's buffers hold of each rank of a node, and of each node, at once."""
    near: Number
    far: Number
    near, far = LARGEST_PIECES
    for most, own, others in reversed(PIECES):
        near, far = where(ranks <= most, own, near), where(ranks <= most, others, far)
    return near, far


def _sends(stage: Stage) -> bool:
    """Whether a stage has layers with experts, in the head too (that of tokens further ahead)."""
    return any(operation.name == DISPATCH for operation, _ in stage.operations())
