"""Whose hooks around a measured run's modules cost its host: DeepSpeed's, or those of torch's FSDP."""

from __future__ import annotations

from distsim import catalog
from distsim.interop.runs import Run
from distsim.interop.runs.sharding import by_torch, by_torchs_second, wraps_layers
from distsim.specs.framework import Framework

TORCHS = "fsdp"
"""The profile that has torch's figures."""


def hooks_of(run: Run, framework: Framework) -> dict[str, float]:
    """Host work of hooks, and what they gather twice, where they are not the framework's: of what shards a run that
    names another."""
    if not (framework.traffic.module_hooks and by_torch(run)):
        return {}
    unit_hooks = catalog.load("frameworks", TORCHS).traffic.unit_hooks
    return {"module_hooks": 0.0, "unit_hooks": unit_hooks, "frozen_again": False}


def adapters_wrapped(run: Run, framework: Framework) -> dict[str, bool]:
    """Whether each adapter's matrix is a unit of FSDP, where a run's own cells and notes tell it."""
    if not by_torch(run) or not (framework.traffic.module_hooks or framework.adapters.units):
        return {}
    second = by_torchs_second(run)
    if second or not wraps_layers(run):
        return {"units": not second}
    return {"units": False, "in_flat_units": True}
