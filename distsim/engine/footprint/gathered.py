"""Parameters that come to a rank for their use, from the ranks that share them or from host memory."""

from __future__ import annotations

from collections.abc import Callable

from distsim.arrays import Number, maximum, where
from distsim.engine.footprint.stored import shared_elements
from distsim.engine.footprint.update import tensors_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.tuning import gathered_bytes
from distsim.formulas.buffers import gathered_unit_bytes, live_parameter_bytes
from distsim.layers.ledger import Block, Parameter


def sharded(setup: Setup, parameter: Parameter) -> Number:
    """Elements that are gathered because ZeRO shards them; none of experts that no other rank holds."""
    ranks = sharding_group(setup.layout, parameter.group)
    return where(ranks > 1, shared_elements(setup, parameter, ranks), 0)


def gathered(setup: Setup, parameter: Parameter) -> Number:
    """Elements that are gathered, or come from host memory to a rank that has them for itself. Quantised weights count
    by their bytes: as so many elements of the format that all others are gathered in."""
    each = gathered_bytes(parameter, setup.precision, setup.tuning) / setup.precision.gather_bytes
    return (parameter.elements if from_host(setup) else sharded(setup, parameter)) * each


def from_host(setup: Setup) -> bool:
    """Whether parameters lie in host memory between their uses."""
    return "parameters" in setup.offload


def unit_parameters(setup: Setup, stage: Stage) -> tuple[Number, Number]:
    """Elements of the largest layer that is a unit, and of the root unit (embedding, final norm, head, or all)."""

    def whole(block: Block) -> Number:
        return sum(gathered(setup, p) for operation in block.operations for p in operation.parameters)

    ends = sum(whole(part) for part in (stage.embedding, stage.head) if part is not None)
    if setup.framework.traffic.one_unit:
        return 0, sum((whole(block) * times for block, times in stage.layers), start=ends)
    largest: Number = 0
    for block, _ in stage.layers:
        largest = maximum(largest, whole(block))
    return largest, ends


def gathered_at_once(setup: Setup, stage: Stage) -> tuple[Callable[..., Number], dict[str, Number]]:
    """What of a stage's parameters is gathered at once: a formula and what it takes."""
    rules, each = setup.framework.buffers, setup.precision.gather_bytes
    if rules.gathered_elements:
        found = [(gathered(setup, p), p, times) for p, times in stage.held()]
        largest = maximum(0, *(size / tensors_of(setup, p) for size, p, _ in found))
        return live_parameter_bytes, {
            "parameters": sum(size * times for size, _, times in found), "live": rules.gathered_elements,
            "largest": largest, "bytes_per_parameter": each,
        }  # fmt: skip
    unit, root = unit_parameters(setup, stage)
    return gathered_unit_bytes, {
        "unit_parameters": unit, "bytes_per_parameter": each,
        "units_alive": 1 + rules.gather_ahead_units, "root_parameters": root * rules.keep_last_unit,
    }  # fmt: skip
