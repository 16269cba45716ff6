"""Where a measured run kept what left its GPUs: how much of its activations in host memory, its states on drives."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.jobs.drives import DRIVEN, node_rates
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.years import run_year
from distsim.interop.runs import Run
from distsim.interop.runs.offloads import (
    layers_offloaded,
    noted_share,
    offloaded,
    offloaded_share,
    on_drives,
    states_return,
)
from distsim.specs.framework import Framework


def offload_of(run: Run, framework: Framework) -> str | None:
    """What a row says was offloaded; nothing where it says so, or is older than its software's own way; None where the
    framework's default holds."""
    told = offloaded(run)
    if told or "offload" not in framework.defaults:
        return told
    older = run_year(run) < framework.usual.get("offload_since", 0)
    return "none" if older or run.text("offload") else None


def partly_offloaded(run: Run, setup: Setup) -> Setup:
    """The setup with the share of activations, or else of the optimizer, that the cell or the notes say is
    offloaded."""
    if "activations" not in setup.offload:
        return _part_of_states(run, setup) if "optimizer" in setup.offload else setup
    share = noted_share(run)
    if share is None and (layers := layers_offloaded(run)) is not None:
        share = layers / max(setup.stage_layers)
    elif share is None:
        share = offloaded_share(run) or 1.0
    return replace(setup, offload_share=min(share, 1.0))


def _part_of_states(run: Run, setup: Setup) -> Setup:
    """The same of the optimizer. Megatron's --optimizer-offload-fraction leaves the rest to the GPU, which updates it
    beside the host (NVIDIA/Megatron-LM core/optimizer/cpu_offloading/hybrid_optimizer.py); with
    --offload-optimizer-states all states leave between updates, none of which the host makes."""
    if states_return(run):
        return replace(setup, states_return=True)
    return replace(setup, job=setup.job.model_copy(update={"offload_fraction": offloaded_share(run)}))


def to_drives(run: Run, setup: Setup) -> Setup:
    """The setup with its shards of ZeRO 3 on NVMe drives, where the cell says so and what the cluster's do is known."""
    swaps = setup.layout.zero == 3 and set(setup.offload).intersection(DRIVEN)
    if not on_drives(run) or not swaps or None in node_rates(setup.cluster):
        return setup
    return replace(setup, job=setup.job.model_copy(update={"offload_to": "nvme"}))
