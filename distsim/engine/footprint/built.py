"""The moment at which weights are copied to the buffers that a distributed optimizer shares out."""

from __future__ import annotations

from distsim.arrays import nothing, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.gradient_places import gradient_place_bytes
from distsim.engine.footprint.stage_step import StageStep
from distsim.engine.footprint.states import States
from distsim.formulas.states import building_bytes
from distsim.units import FP32_BYTES, HALF_BYTES

BUILT = "weights copied to buffers"


def weights_copied(step: StageStep, held: States) -> None:
    """Weights twice beside all gradients, before the first step: the highest point of a job whose activations are small
    and whose optimizer is elsewhere. Frozen weights have no buffers, and 8-bit ones are rewritten where they are."""
    setup, layout, precision = step.setup, step.setup.layout, step.setup.precision
    plain = precision.parameter_bytes in (HALF_BYTES, FP32_BYTES)
    shares = where(layout.zero == 1, 1, 0)
    if not setup.kernels.weights_built_apart or setup.tuning is not None or not plain or nothing(shares):
        return
    most = building_bytes(held.dense_parameters, held.expert_parameters, precision.parameter_bytes,
                          precision.gradient_bytes, layout.vpp)  # fmt: skip
    later = held.parameters + held.optimizer + held.gradients + gradient_place_bytes(setup, step.stage, Figures())
    step.add(BUILT, shares * most - later, churns=False)
