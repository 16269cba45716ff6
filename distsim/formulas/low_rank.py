"""Optimizers that project the gradient of a matrix to few rows or columns: sizes of their states, and work."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum, where
from distsim.formula import formula
from distsim.formulas.compute import product_flops

_GALORE = "Zhao et al. 2024, GaLore (arXiv:2403.03507), section 4, and galore_torch 1.0"
DECOMPOSITION_RATE = 0.8e12
"""FLOP/s of torch.linalg.svd on a GPU in fp32, on whatever chip, as most of it waits for the host: ten minutes for all
matrices of LLaMA 7B (recalled: Zhu et al. 2024, arXiv:2412.05270), 4.3 s for 4,160 by 4,160 on a Titan X of 2016
(pytorch/pytorch pull request 1373: 0.4). Known within a factor of two."""


@formula(unit="elements", source=_GALORE)
def projected_elements(rows: Number, columns: Number, rank: Number) -> Number:
    """A state of one matrix whose gradient is projected along its shorter side to ``rank`` rows or columns."""
    return rank * maximum(rows, columns)


@formula(unit="elements", source=_GALORE)
def projection_elements(rows: Number, columns: Number, rank: Number, whole: Number) -> Number:
    """What projects one matrix's gradient to ``rank``: so many singular or random vectors of its shorter side, or
    (``whole`` is 1) all of them, where the ones in use are a view of all that a decomposition gave."""
    short = minimum(rows, columns)
    return short * where(whole > 0, short, rank)


@formula(unit="FLOP", source=f"{_GALORE}: the gradient to its projection, and in GaLore the update back from it")
def projecting_flops(rows: Number, columns: Number, rank: Number, products: Number) -> Number:
    """Operations of the ``products`` of one matrix's gradient or update with its projection, in each step."""
    return products * product_flops(rows, columns, rank)


@formula(unit="FLOP", source="Golub and Van Loan, Matrix Computations, section 8.6: R-SVD with both sets of vectors")
def decomposition_flops(rows: Number, columns: Number) -> Number:
    """Operations of one singular value decomposition, with as many vectors as the shorter side has."""
    short, long = minimum(rows, columns), maximum(rows, columns)
    return 6 * long * short**2 + 20 * short**3


@formula(unit="s", source="FLOPs over rate, spread over the steps between two decompositions")
def decomposition_seconds(flops: Number, steps_between: Number, rate: Number = DECOMPOSITION_RATE) -> Number:
    """Mean time per step of decompositions that are made anew every so many steps."""
    return flops / rate / steps_between
