"""States of optimizers that project the gradient of each matrix to few rows or columns (GaLore, APOLLO)."""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.low_rank import projected_elements, projection_elements
from distsim.layers.ledger import Parameter
from distsim.layers.names import HEAD, ROUTER
from distsim.specs.optimizer import Optimizer, State
from distsim.specs.precision import Precision
from distsim.units import FP32_BYTES

LOW_RANK = ("projected", "projection")


def of_layers(parameter: Parameter) -> bool:
    """Whether a parameter is a matrix of a layer, as Muon takes them: output layers are Adam's, like embeddings."""
    return parameter.kind == "matrix" and not parameter.name.startswith(HEAD)


def projects(setup: Setup, parameter: Parameter) -> bool:
    """Whether the gradient of a parameter is projected: that of a product of its own, which neither experts in one
    tensor nor routers are to transformers (trainer_optimizer.py, _setup_low_rank_optimizer: modules of nn.Linear)."""
    if not setup.optimizer.projection or not of_layers(parameter) or ROUTER in parameter.name:
        return False
    return parameter.group == "dense" or setup.kernels.expert_modules != "one"


def matrices_of(parameter: Parameter) -> list[tuple[Number, Number, Number]]:
    """Rows, columns and number of the matrices in a parameter on this rank."""
    if parameter.parts:
        return [(parameter.rows, columns, 1) for columns in parameter.parts]
    return [(parameter.rows, parameter.columns, parameter.copies)]


def rank_of(optimizer: Optimizer, rows: Number, columns: Number) -> Number:
    """Rows or columns of a projected gradient: a matrix has no more singular vectors than its shorter side, but any
    number of random ones."""
    return minimum(optimizer.rank, minimum(rows, columns)) if optimizer.projection == "svd" else optimizer.rank


def low_rank_bytes(setup: Setup, precision: Precision, parameter: Parameter, state: State) -> Number:
    """Bytes of a projected state of a parameter, or of what projects it.

    In fp32, the singular vectors in use stay a view of all that the decomposition gave; narrower gradients leave a copy
    of those in use (galore_torch 1.0 galore_projector.py; recorded with torch 2.13, tests/oracles/torch_low_rank.csv).
    """
    optimizer = setup.optimizer
    whole = int(optimizer.projection == "svd" and precision.gradient_bytes >= FP32_BYTES)
    total: Number = 0
    for rows, columns, count in matrices_of(parameter):
        rank = rank_of(optimizer, rows, columns)
        if state.shape == "projected":
            total = total + count * projected_elements(rows, columns, rank) * state.bytes_under(precision)
        else:
            elements = projection_elements(rows, columns, rank, whole)
            total = total + count * elements * precision.gradient_bytes
    return total


def low_rank_elements(setup: Setup, parameter: Parameter) -> Number:
    """Elements of all projected gradients of a parameter."""
    ranks = ((rows, columns, count, rank_of(setup.optimizer, rows, columns)) for rows, columns, count in
             matrices_of(parameter))  # fmt: skip
    return sum(count * projected_elements(rows, columns, rank) for rows, columns, count, rank in ranks)
