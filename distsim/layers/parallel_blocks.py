"""Attention and MLP that read one residual: what tensor parallel ranks sum for both at once."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.layers.ledger import Collective, Context, Operation


def summed_once(
    ctx: Context, attending: list[Operation], feeding: list[Operation]
) -> tuple[list[Operation], list[Operation]]:
    """Rows of both branches, whose sum is reduced behind the MLP instead of each branch (Black et al. 2022, GPT-NeoX,
    arXiv:2204.06745, section 2). Where both read the output of one norm, its gradient is reduced once too, and under
    sequence parallelism it is gathered once, for attention (Mesh Transformer JAX, transformer layer)."""
    if not ctx.model.parallel_blocks or ctx.kernels.branch_sums == "apart":
        return attending, feeding
    attending = [_with(row, (one for one in row.collectives if one.group != "tp" or _enters(one))) for row in attending]
    if ctx.model.norms_per_layer == 1:
        feeding = [
            _with(row, (one for one in row.collectives if one.group != "tp" or not _enters(one))) for row in feeding
        ]
    return attending, feeding


def _with(row: Operation, collectives: Iterable[Collective]) -> Operation:
    return row._replace(collectives=tuple(collectives)) if row.collectives else row


def _enters(one: Collective) -> bool:
    """Whether it is of a branch's input or its gradient, and not of its output (layers/tensor_parallel.py)."""
    return bool(one.overlaps) or (one.op, one.phase) == ("all_gather", "forward")
