"""What crosses the boundary between two pipeline stages."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.traffic import pipeline_boundary_bytes


def boundary_bytes(setup: Setup) -> Number:
    """What a rank of one stage sends another for one micro-batch, each way."""
    layout = setup.layout
    parts = where(layout.sequence_parallel, layout.tp, layout.tp if setup.framework.traffic.scatter_gather else 1)
    width = setup.model.hidden * setup.model.residual_streams
    return pipeline_boundary_bytes(layout.tokens, width, setup.precision.activation_bytes, parts)
