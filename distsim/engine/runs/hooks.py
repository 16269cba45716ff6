"""Whose hooks around a measured run's modules cost its host: DeepSpeed's, or those of torch's FSDP."""

from __future__ import annotations

import re

from distsim import catalog
from distsim.interop.runs import Run
from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.sharding import by_torch
from distsim.specs.framework import Framework

TORCHS = "fsdp"
"""The profile that has torch's figures."""
_SECOND = re.compile(r"fsdp[\s-]?2|fully_shard", re.IGNORECASE)
"""FSDP2, under which peft has no policy that wraps adapters (accelerate's utils/fsdp_utils.py,
fsdp2_prepare_auto_wrap_policy, knows layers' classes and sizes)."""
_LAYERS = re.compile(
    affirmed(r"wrap(?:s|ped|ping)? (?:per|by|each|every) (?:decoder |transformer )?(?:layer|block)"), re.IGNORECASE
)
"""Notes of units that are layers and nothing else."""


def hooks_of(run: Run, framework: Framework) -> dict[str, float]:
    """Host work of hooks where it is not the framework's: of what shards a run that names another."""
    if not (framework.traffic.module_hooks and by_torch(run)):
        return {}
    return {"module_hooks": 0.0, "unit_hooks": catalog.load("frameworks", TORCHS).traffic.unit_hooks}


def adapters_wrapped(run: Run, framework: Framework) -> dict[str, bool]:
    """Whether each adapter's matrix is a unit of FSDP, where a run's own cells and notes tell it."""
    if not by_torch(run) or not (framework.traffic.module_hooks or framework.adapters.units):
        return {}
    second = any(_SECOND.search(run.text(name) or "") for name in ("fsdp_kind", "framework"))
    if second or not hit(_LAYERS, run.notes):
        return {"units": not second}
    return {"units": False, "in_flat_units": True}
