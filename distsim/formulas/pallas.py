"""Kernels whose work is a grid of steps, one after another on a core: Pallas on TPUs."""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, minimum
from distsim.formula import formula

GRID_STEP_SECONDS = 0.45e-6
"""A step of a Pallas kernel's grid on a TPU beside its products, at the best measured rate; 0.57 us in training, where
attention keeps 0.79 of that. On a v6e a step takes 400, 208 and 161 ms with blocks of 128, 256 and 512 tokens (1,024
heads of 2,048 tokens, one kernel forward and two backward: 0.63 and 0.59 us for each block less), a layer of another
model 2.13 and 1.44 ms with 256 and 512 (0.57 us; vorushin/tpuchat LOG.md)."""

UNMASKED = 0.87, 0.96
"""Time of a block that no mask cuts over that of one to which a mask is applied, forward and backward. Bundles of
instructions that XLA makes of a block of 1,024 by 1,024, heads 128 wide, by Tokamax's kernel without a mask and by
JAX's, which masks every block: 4,534 of 4,935 and 9,262 of 9,235 on a v5p, 2,768 of 3,259 and 5,491 of 5,739 on a v6e,
2,849 of 3,344 and 4,851 of 5,308 on a v7x (jax 0.10.2, libtpu 0.0.42.1, tokamax 0.0.12)."""


@formula(
    unit="1", source="openxla/tokamax splash_attention_kernel.py: blocks that no mask cuts have a body of their own"
)
def unmasked_time(block: Number, keys: Number, edges: Number, unmasked: Number) -> Number:
    """Time of a kernel that masks only blocks at an edge of what may be seen, over that of one that masks all: of the
    ``keys`` that a query meets in the mean, those of as many blocks as there are ``edges``."""
    return 1 - (1 - unmasked) * (1 - minimum(edges * block / keys, 1.0))


@formula(unit="s", source="vorushin/tpuchat LOG.md: one step of training with blocks of 128 to 1,024 tokens")
def grid_seconds(batch: Number, heads: Number, queries: Number, keys: Number, block: Number, cores: Number) -> Number:
    """What the steps of a Pallas kernel's grid cost in addition to their products: one step per block of ``keys`` that
    the queries see, one after another on each core."""
    return batch * heads * queries * keys / block**2 * GRID_STEP_SECONDS / cores


@formula(
    unit="1",
    source="jax-ml/jax pallas/ops/tpu/megablox/gmm.py, make_group_metadata: two groups in one tile visit it twice",
)
def tile_steps(rows: Number, groups: Number, tile: Number) -> Number:
    """Tiles of rows that a grouped kernel visits when groups may end inside a tile."""
    return ceil_div(rows, tile) + groups - 1
