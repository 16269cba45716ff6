"""Seconds of experts' products on TPUs: a Pallas kernel over tiles of all groups' rows (megablox)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.arrays import Number, ceil_div, maximum, minimum
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.compute import product_flops, stream_seconds
from distsim.formulas.pallas import GRID_STEP_SECONDS, tile_steps
from distsim.layers.ledger import Operation
from distsim.layers.names import EXPERTS

if TYPE_CHECKING:
    from distsim.engine.kernels.chip import Chip

TILE = (512, 1024, 1024)
"""Rows, columns and depth of a tile (marin-community/marin haliax nn/ragged_dot.py, tile_size; AI-Hypercomputer/maxtext
base.yml, wi_tile_fwd_batch_seq, wi_tile_fwd_mlp_dim and wi_tile_fwd_embed_dim and their kin)."""
FITTED_SIDE = 2048
"""Columns and depth at most of a tile that recipes choose for a model's widths: 2,048 by 1,536 for experts of 1,536 in
a model of 4,096 (yangwhale/gpu-tpu-pedia tpu/Hunyuan3-295B-Pretraining), 1,792 by 2,048 or 7,168 by 512 for 2,048 in
7,168 (recipes of DeepSeek-V3 for v7x)."""


def gates_apart(setup: Setup, operation: Operation) -> int:
    """Products that an operation of experts is done in: two where gate and up are not one."""
    both = operation.name == EXPERTS[0] and setup.model.gated and setup.kernels.expert_gate == "apart"
    return 2 if both else 1


def _evenly(size: Number) -> Number:
    """The side of a tile that fills a width without a rest: the width in as few parts as go."""
    return size / ceil_div(size, FITTED_SIDE)


def tiled_seconds(
    chip: Chip, rate: Number, shape: tuple[Number, Number, Number, Number], each: Number, parts: int,
    fitted: bool = False,
) -> list[Number]:  # fmt: skip
    """Forward, the input gradient and the weight gradient of ``shape``: rows of a group, columns, depth, groups, of
    which columns are in ``parts``, in tiles of usual sizes or ``fitted`` to the widths. Operands of ``each`` bytes come
    anew for every tile; the gradient of weights, whose rows are its depth, stays."""
    m, n, k, groups = shape
    n = n / parts
    rows, columns, depth = (minimum(size, tile) for size, tile in zip((m * groups, n, k), TILE, strict=True))
    if fitted:
        columns, depth = _evenly(n), _evenly(k)
    steps = tile_steps(m * groups, groups, rows) * ceil_div(n, columns) * ceil_div(k, depth)
    products = product_flops(rows, columns, depth) / rate

    def seconds(operands: Number) -> Number:
        moved = stream_seconds(operands * each, chip.bandwidth)
        return parts * steps * (maximum(products, moved) + GRID_STEP_SECONDS / chip.cores)

    return [
        seconds(rows * depth + depth * columns),
        seconds(rows * columns + depth * columns),
        seconds(rows * (depth + columns)),
    ]
