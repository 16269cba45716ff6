"""Memory traffic that grows with weights, not tokens: gradients, casts, gathered shards, the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distsim.arrays import Number, where
from distsim.engine.resolve import Setup
from distsim.engine.stages import Stage
from distsim.engine.tuning import gathered_bytes, recipe_of
from distsim.formulas.compute import optimizer_traffic_bytes
from distsim.layers.ledger import Parameter


def held(setup: Setup, parameters: Iterable[tuple[Parameter, int]]) -> Iterator[tuple[Parameter, Number, Number]]:
    """Each parameter with its elements on this rank before sharding, and the ranks that shard its states."""
    from distsim.engine.states import sharding_group

    for parameter, count in parameters:
        yield parameter, parameter.elements * count, sharding_group(setup.layout, parameter.group)


def optimizer_bytes(setup: Setup, stage: Stage) -> Number:
    """What one optimizer step of a rank reads and writes."""
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
        total = total + optimizer_traffic_bytes(shard, states, precision.gradient_bytes, precision.parameter_bytes)
        total = total + elements / where(y.zero >= 2, group, 1) * precision.gradient_bytes  # gradients set to zero
    return total


def weight_bytes(setup: Setup, stage: Stage) -> tuple[Number, Number]:
    """Bytes of one micro-batch, forward and backward: accumulated gradients, casts, gathered shards copied in and
    out."""
    y, precision = setup.layout, setup.precision
    partitioned = setup.framework.traffic.partitioned
    forward: Number = 0.0
    backward: Number = 0.0
    for parameter, elements, group in held(setup, stage.parameters()):
        own = elements / where(y.zero >= 2, group, 1) if partitioned else elements
        if parameter.trains:
            each = recipe_of(parameter, precision, setup.tuning).gradient_bytes
            backward = backward + own * 2 * each * where(y.micro_batches > 1, 1, where(each > 2, 0.5, 0))
        copied = 2 * gathered_bytes(parameter, precision, setup.tuning)
        if parameter.held != "quantised":
            copied = (1 if partitioned else 2) * precision.activation_bytes
        gathered = where(y.zero >= 3, where(group > 1, copied, 0), 0)
        matrix = parameter.kind == "matrix" and parameter.held != "quantised"
        narrowed = precision.autocast or (partitioned and precision.parameter_bytes > precision.activation_bytes)
        cast = (precision.parameter_bytes + precision.activation_bytes) * int(narrowed and matrix)
        forward = forward + elements * gathered + where(y.zero >= 3, own, elements) * cast
        backward = backward + elements * 2 * gathered
    return forward, backward
