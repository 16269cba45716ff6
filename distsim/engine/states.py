"""Bytes of parameters, gradients and optimizer states of one stage on one rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.figures import Figures
from distsim.engine.resolve import Setup
from distsim.formulas.states import (
    factored_state_bytes,
    gradient_bytes_per_rank,
    optimizer_bytes_per_rank,
    parameter_bytes_per_rank,
)
from distsim.layers.ledger import Parameter
from distsim.specs.layout import Layout
from distsim.specs.optimizer import Optimizer
from distsim.specs.precision import Precision

ZERO_OFFLOAD = "Ren et al. 2021, ZeRO-Offload (arXiv:2101.06840), section 4; ZeRO-Infinity (arXiv:2104.07857)"
NEEDS_TRANSPOSE = ("ada", "hopper")
"""Architectures whose 8-bit matrix products take operands in one layout only (Transformer Engine user guide, FP8)."""


@dataclass(frozen=True)
class States:
    """Bytes on one rank, and the parameter counts they follow from."""

    parameters: Number
    gradients: Number
    optimizer: Number
    dense_parameters: Number
    """Elements on this rank before ZeRO shards them."""
    expert_parameters: Number


def sharding_group(layout: Layout, group: str) -> Number:
    """Ranks that share one copy of the states: the ZeRO group, or its part that holds the same experts."""
    if group == "dense":
        return layout.zero_group
    return minimum(layout.expert_data_parallel, maximum(layout.zero_group * layout.tp // (layout.ep * layout.etp), 1))


def state_bytes(
    optimizer: Optimizer, precision: Precision, parameter: Parameter, step_counter_bytes: Number = 0
) -> Number:
    """Optimizer bytes of one parameter tensor, with its master copy, before sharding."""
    total: Number = parameter.elements * precision.master_bytes * optimizer.master_copy
    matrix = parameter.kind == "matrix"
    for state in optimizer.states:
        if (state.of == "matrices" and not matrix) or (state.of == "vectors" and matrix):
            continue
        each = precision.state_bytes if state.bytes_per_element is None else state.bytes_per_element
        if state.shape == "scalar":
            total = total + (parameter.copies if parameter.group == "dense" else 1) * step_counter_bytes
        elif state.shape == "factored" and parameter.kind != "vector":
            total = total + factored_state_bytes(parameter.rows, parameter.columns, parameter.copies, each)
        else:
            total = total + parameter.elements * each
    return total


def states(setup: Setup, parameters: Iterable[tuple[Parameter, int]], figures: Figures) -> States:
    """Fold a stage's parameters into bytes per rank."""
    y, precision, counter = setup.layout, setup.precision, setup.framework.buffers.step_counter_bytes
    counts: dict[str, Number] = {"dense": 0, "expert": 0}
    optimizer: dict[str, Number] = {"dense": 0, "expert": 0}
    matrices: dict[str, Number] = {"dense": 0, "expert": 0}
    for parameter, times in parameters:
        counts[parameter.group] = counts[parameter.group] + parameter.elements * times
        own = state_bytes(setup.optimizer, precision, parameter, counter) * times
        optimizer[parameter.group] = optimizer[parameter.group] + own
        if parameter.kind == "matrix":
            matrices[parameter.group] = matrices[parameter.group] + parameter.elements * times
    sums: dict[str, Number] = {"parameters": 0, "gradients": 0, "optimizer": 0}
    for group, count in counts.items():
        if group == "expert" and setup.model.experts is None:
            continue
        size = sharding_group(y, group)
        transposed = precision.transpose_bytes * (setup.accelerator.architecture in NEEDS_TRANSPOSE)
        copies = matrices[group] / maximum(count, 1) * (precision.weight_copy_bytes + transposed)
        sums["parameters"] = sums["parameters"] + figures.use(
            f"{group} parameters", parameter_bytes_per_rank, parameters=count,
            bytes_per_parameter=precision.parameter_bytes + copies, zero_stage=y.zero, zero_group_size=size,
        )  # fmt: skip
        sums["gradients"] = sums["gradients"] + figures.use(
            f"{group} gradients", gradient_bytes_per_rank, parameters=count,
            bytes_per_gradient=precision.gradient_bytes, zero_stage=y.zero, zero_group_size=size,
        )  # fmt: skip
        sums["optimizer"] = sums["optimizer"] + figures.use(
            f"{group} optimizer states", optimizer_bytes_per_rank, parameters=count,
            state_bytes_per_parameter=optimizer[group] / maximum(count, 1), zero_stage=y.zero, zero_group_size=size,
        )  # fmt: skip
    _offload(setup, sums, figures)
    return States(**sums, dense_parameters=counts["dense"], expert_parameters=counts["expert"])


def _offload(setup: Setup, sums: dict[str, Number], figures: Figures) -> None:
    """Take what lives in host memory off the GPU; sharded gradients go there with the optimizer that reads them."""
    moved = {"parameters": sums["parameters"] * ("parameters" in setup.offload)}
    if "optimizer" in setup.offload:
        moved["optimizer"] = sums["optimizer"]
        moved["gradients"] = where(setup.layout.zero >= 2, sums["gradients"], 0)
    for name, size in moved.items():
        if name in setup.offload or name == "gradients":
            sums[name] = sums[name] - figures.note(f"{name} in host memory", size, "B", ZERO_OFFLOAD)
