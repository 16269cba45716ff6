"""Matrices whose updates are orthogonalised (Muon), and what that holds beside them."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.engine.footprint.low_rank import of_layers
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.states import newton_schulz_bytes
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.layers.ledger import Parameter

ITERATE = "bf16"
"""What torch's iteration computes in, whatever the weights are (torch 2.13 optim/_muon.py)."""


def orthogonalised(setup: Setup, parameter: Parameter) -> bool:
    """Whether an optimizer that orthogonalises matrices takes a parameter; torch's takes no tensor of three dimensions,
    as transformers has a layer's experts."""
    three = parameter.group == "expert" and setup.kernels.expert_modules == "one"
    return of_layers(parameter) and not (three and setup.optimizer.flat_matrices)


def stacked(setup: Setup, parameter: Parameter) -> bool:
    """Whether the matrix of each expert is a slice of one tensor, whose matrices batched products take at once: what
    torch's grouped products read (pytorch/torchtitan models/moe, GroupedExperts; transformers 5). Transformer Engine's
    read a parameter of each (pytorch/module/grouped_linear.py)."""
    grouped = setup.framework.family == "torch" and setup.kernels.expert_products == "grouped"
    return grouped and parameter.group == "expert"


def sides(parameter: Parameter) -> tuple[Number, Number]:
    """The shorter and the longer side of one matrix on this rank."""
    return minimum(parameter.rows, parameter.columns), maximum(parameter.rows, parameter.columns)


def orthogonalising_bytes(setup: Setup, stage: Stage) -> Number:
    """What the iteration holds beside the largest matrix of a stage, or beside all that it takes at once."""
    largest: Number = 0
    for parameter, _ in stage.parameters:
        if parameter.trains and orthogonalised(setup, parameter):
            together = parameter.copies if stacked(setup, parameter) else 1
            short, long = sides(parameter)
            largest = maximum(largest, newton_schulz_bytes(short, long, together, DTYPE_BYTES[ITERATE]))
    return largest
