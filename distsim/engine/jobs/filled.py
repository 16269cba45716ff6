"""Options that a job leaves open: from its framework's defaults, then from distsim's; and what is refused as such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsim.engine.jobs.layout import needs_replicas
from distsim.engine.jobs.offloading import refuse_offload
from distsim.engine.jobs.recomputed import refuse_recompute
from distsim.engine.jobs.reference import refuse_reference
from distsim.errors import DistsimError
from distsim.specs.framework import Framework
from distsim.specs.job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS: dict[str, Any] = {
    "tp": 1, "cp": 1, "pp": 1, "ep": 1, "vpp": 1, "zero": 0, "micro_batch": 1, "recompute": "none",
    "attention": "flash", "precision": "bf16", "optimizer": "adamw", "offload": "none", "quantize": "none",
    "cp_mode": "ring", "loss_parallel": True,
}  # fmt: skip
"""What an option is where neither the job nor its framework says."""


def fill(job: Job, framework: Framework) -> tuple[dict[str, Any], dict[str, str]]:
    """Options from the job, then the framework's defaults, then distsim's; and where each came from."""
    filled, origins = dict[str, Any](), dict[str, str]()
    usual = f"framework {framework.name}"
    for name in Job.model_fields:
        if (value := getattr(job, name)) is not None:
            origins[name] = "you"
        elif (value := framework.defaults.get(name)) is not None:
            origins[name] = usual
        elif (value := DEFAULTS.get(name)) is not None:
            origins[name] = "default"
        filled[name] = value
    if origins.get("offload") == usual and (filled["recompute"] != "full" or filled["recompute_layers"]):
        filled["offload"], origins["offload"] = DEFAULTS["offload"], "default"
    if needs_replicas(filled) and origins.get("zero", "").startswith("framework"):
        filled["zero"], origins["zero"] = 0, "default"
    return filled, origins


def refuse_options(filled: Mapping[str, Any], framework: Framework) -> None:
    """Options of the contract whose physics is not there yet are refused, never ignored."""
    refuse_offload(filled, framework)
    if filled["compile"] and not framework.compiled:
        raise DistsimError(
            f"--compile has no effect with framework {framework.name}: its profile does not state what it fuses",
            "leave --compile out",
        )
    refuse_recompute(filled, framework)
    refuse_reference(filled)
