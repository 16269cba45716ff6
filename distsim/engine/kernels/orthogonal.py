"""The step of optimizers that orthogonalise the update of every matrix (Muon): products, and kernels to launch."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.footprint.low_rank import of_layers
from distsim.engine.footprint.states import sharding_group
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.kernels.chip import Chip
from distsim.formulas.compute import newton_schulz_square_flops, newton_schulz_wide_flops, product_share
from distsim.layers.ledger import Parameter

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
        if not orthogonalised(parameter):
            continue
        group = where(setup.layout.zero >= 1, sharding_group(setup.layout, parameter.group), 1)
        count = parameter.copies * times / group
        short, long = _sides(parameter)
        together = parameter.copies if stacked(setup, parameter) else 1
        square, wide = (product_share(short, n, short, together, chip.units, chip.array) for n in (short, long))
        part, rest = newton_schulz_square_flops(short, rounds), newton_schulz_wide_flops(short, long, rounds)
        each = (part / square + rest / wide) / chip.rate
        seconds = seconds + each * count
        kernels = kernels + (rounds * LAUNCHES + LAUNCHES_BESIDES) * count / together
    return UpdateWork(seconds, kernels)


def orthogonalised(parameter: Parameter) -> bool:
    """Whether a parameter is a matrix of a layer that trains."""
    return of_layers(parameter) and parameter.trains


def stacked(setup: Setup, parameter: Parameter) -> bool:
    """Whether the matrix of each expert is a slice of one tensor, whose matrices batched products take at once: what
    torch's grouped products read (pytorch/torchtitan models/moe, GroupedExperts; transformers 5). Transformer Engine's
    read a parameter of each (pytorch/module/grouped_linear.py)."""
    grouped = setup.framework.family == "torch" and setup.kernels.expert_products == "grouped"
    return grouped and parameter.group == "expert"


def _sides(parameter: Parameter) -> tuple[Number, Number]:
    """The shorter and the longer side of one matrix on this rank."""
    return minimum(parameter.rows, parameter.columns), maximum(parameter.rows, parameter.columns)
