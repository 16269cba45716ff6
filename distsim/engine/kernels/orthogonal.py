"""The step of optimizers that orthogonalise the update of every matrix (Muon): products, and kernels to launch."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, where
from distsim.engine.footprint.orthogonalised import orthogonalised, sides, stacked
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.engine.kernels.chip import Chip
from distsim.formulas.compute import newton_schulz_square_flops, newton_schulz_wide_flops, product_share

LAUNCHES = 3
"""Kernels of one iteration, a product with its sum each (torch/optim/_muon.py)."""
LAUNCHES_BESIDES = 6
"""Momentum, its look-ahead, the cast, norm, quotient and scaled update of one matrix (the same)."""


class UpdateWork(NamedTuple):
    """Work of Muon, or of what projects gradients, in one optimizer step on one rank: seconds of products at the chip's
    best rate, and kernels launched."""

    seconds: Number = 0.0
    kernels: Number = 0.0


def orthogonal_work(setup: Setup, stage: Stage, chip: Chip) -> UpdateWork:
    """Work of one step; ranks that shard optimizer states take whole matrices in turn, others do all of them.

    Matrices inside the layers are orthogonalised as a tensor parallel rank holds them; embeddings and the output layer
    are not.
    """
    rounds = setup.optimizer.newton_schulz
    if not rounds:
        return UpdateWork()
    seconds: Number = 0.0
    kernels: Number = 0.0
    for parameter, times in stage.held():
        if not (parameter.trains and orthogonalised(setup, parameter)):
            continue
        group = where(setup.layout.zero >= 1, sharding_group(setup.layout, parameter.group), 1)
        count = parameter.copies * times / group
        short, long = sides(parameter)
        together = parameter.copies if stacked(setup, parameter) else 1
        square, wide = (product_share(short, n, short, together, chip.units, chip.array) for n in (short, long))
        part, rest = newton_schulz_square_flops(short, rounds), newton_schulz_wide_flops(short, long, rounds)
        each = (part / square + rest / wide) / chip.rate
        seconds = seconds + each * count
        kernels = kernels + (rounds * LAUNCHES + LAUNCHES_BESIDES) * count / together
    return UpdateWork(seconds, kernels)
