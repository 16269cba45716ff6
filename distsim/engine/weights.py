"""What grows with weights, not tokens: bytes that a stage moves for its parameters, their gradients and states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distsim.arrays import Number, where
from distsim.engine.resolve import Setup
from distsim.engine.stages import Stage
from distsim.engine.states import sharding_group
from distsim.engine.tuning import gathered_bytes, recipe_of
from distsim.formulas.compute import optimizer_traffic_bytes
from distsim.layers.ledger import Parameter


def held(setup: Setup, parameters: Iterable[tuple[Parameter, int]]) -> Iterator[tuple[Parameter, Number, Number]]:
    """Each parameter with its elements on this rank before sharding, and the ranks that shard its states."""
    for parameter, count in parameters:
        yield parameter, parameter.elements * count, sharding_group(setup.layout, parameter.group)


def optimizer_bytes(setup: Setup, stage: Stage) -> Number:
    """Bytes that one optimizer step moves."""
    y = setup.layout
    total: Number = 0
    for parameter, elements, group in held(setup, stage.held()):
        if not parameter.trains:
            continue
        precision = recipe_of(parameter, setup.precision, setup.tuning)
        states = precision.master_bytes + sum(
            precision.state_bytes if state.bytes_per_element is None else state.bytes_per_element
            for state in setup.optimizer.states if state.shape not in ("scalar", "factored")
        )  # fmt: skip
        shard = elements / where(y.zero >= 1, group, 1)
        total = total + optimizer_traffic_bytes(
            shard, states, precision.gradient_bytes, precision.parameter_bytes, precision.master_bytes,
            int(precision.math == "fp16"),
        )  # fmt: skip
        total = total + elements / where(y.zero >= 2, group, 1) * precision.gradient_bytes  # gradients set to zero
    return total


def weight_bytes(setup: Setup, stage: Stage) -> tuple[Number, Number]:
    """Per micro-batch, forward and backward: gradients accumulated, weights cast, gathered shards copied in and out."""
    y, precision = setup.layout, setup.precision
    forward: Number = 0.0
    backward: Number = 0.0
    for parameter, elements, group in held(setup, stage.parameters()):
        if parameter.trains:
            each = recipe_of(parameter, precision, setup.tuning).gradient_bytes
            accumulate = 2 * each * where(y.micro_batches > 1, 1, where(each > 2, 0.5, 0))
            backward = backward + elements * accumulate
        copied = 2 * gathered_bytes(parameter, precision, setup.tuning)
        if parameter.held != "quantised":
            copied = 2 * precision.activation_bytes
        gathered = where(y.zero >= 3, where(group > 1, copied, 0), 0)
        matrix = parameter.kind == "matrix" and parameter.held != "quantised"
        cast = (precision.parameter_bytes + precision.activation_bytes) * int(precision.autocast and matrix)
        forward = forward + elements * (gathered + cast)
        backward = backward + elements * 2 * gathered
    return forward, backward
