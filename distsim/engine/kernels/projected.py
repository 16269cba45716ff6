"""The step of optimizers that project gradients (GaLore, APOLLO): products, kernels, and decompositions."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.footprint.low_rank import matrices_of, projects, rank_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.orthogonal import UpdateWork
from distsim.formulas.compute import product_share
from distsim.formulas.low_rank import decomposition_flops, decomposition_seconds, projecting_flops
from distsim.units import FP32_BYTES

LAUNCHES = 12
"""Kernels of one update of elementary operations, each parameter by itself (galore_torch 1.0 adamw.py); bitsandbytes
takes one."""
LAUNCHES_BESIDES = 4
"""Products and scaling of a projected one (the same)."""
PRODUCTS = {"svd": 2, "random": 1}
"""A gradient is projected; GaLore's update goes back the same way, APOLLO scales the gradient itself."""


def projected_work(setup: Setup, stage: Stage, chip: Chip) -> UpdateWork:
    """Products of one step at the chip's best rate, in the width of gradients, and kernels launched; ranks have whole
    gradients, so all of them do the same."""
    optimizer = setup.optimizer
    rate = chip.wide_rate if setup.trained_precision.gradient_bytes >= FP32_BYTES else chip.rate
    seconds: Number = 0.0
    kernels: Number = 0.0
    for parameter, times in stage.held():
        if not parameter.trains:
            continue
        if not projects(setup, parameter):
            kernels = kernels + (LAUNCHES if optimizer.accesses else 1) * parameter.copies * times
            continue
        for rows, columns, count in matrices_of(parameter):
            rank = rank_of(optimizer, rows, columns)
            share = product_share(rows, rank, columns, 1, chip.units, chip.array)
            flops = projecting_flops(rows, columns, rank, PRODUCTS[optimizer.projection])
            seconds = seconds + flops / (share * rate) * count * times
            kernels = kernels + (LAUNCHES + LAUNCHES_BESIDES) * count * times
    return UpdateWork(seconds, kernels)


def decomposing_seconds(setup: Setup, stage: Stage) -> Number:
    """Mean time per step of the decompositions of all gradients; nothing where projections are random."""
    if setup.optimizer.projection != "svd" or not setup.optimizer.projection_steps:
        return 0.0
    flops = sum(
        decomposition_flops(rows, columns) * count * times
        for parameter, times in stage.held() if parameter.trains and projects(setup, parameter)
        for rows, columns, count in matrices_of(parameter)
    )  # fmt: skip
    return decomposition_seconds(flops, setup.optimizer.projection_steps)
