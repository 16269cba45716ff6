"""What a job's states take at the least: one copy of them, in equal parts on all of its GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distsim.arrays import Number
from distsim.engine.figures import Figures
from distsim.engine.footprint.states import states, stored
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import stage_at

ALONE: dict[str, Any] = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "etp": 1, "dp": 1, "vpp": 1, "zero": 0, "zero_group": 1,
         "schedule": "1f1b", "vocab_parallel": ""}  # fmt: skip
"""The layout of a GPU that shares nothing."""


def least_states(setup: Setup) -> Number:
    """Bytes of weights, gradients and optimizer states that the fullest GPU holds under any layout of a job on as many
    GPUs, offloaded as in the job: layouts move states from GPU to GPU and hold some more than once, and all of them
    hold one copy of each."""
    alone = setup.layout._replace(**ALONE)
    one = replace(stored(setup), layout=alone, chunk_layers=(sum(setup.chunk_layers),), offload=())
    whole = states(one, stage_at(one, 0).held(), Figures())
    kept: Number = 0 if "parameters" in setup.offload else whole.parameters
    if "optimizer" not in setup.offload:  # sharded gradients leave with it
        kept = kept + whole.gradients + whole.optimizer
    return kept / setup.layout.gpus
