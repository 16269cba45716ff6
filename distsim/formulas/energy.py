"""Watts, kilowatt-hours and carbon dioxide of a training run."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.formula import formula
from distsim.units import KILOGRAMS_PER_TONNE, WATTS_PER_KILOWATT

LINE = "straight line between the draw of an accelerator that only waits for others and its full draw (presets/power)"
PATTERSON = "Patterson et al. 2021 (arXiv:2104.10350), section 2"


@formula(unit="W", source=LINE)
def accelerator_watts(
    full_watts: Number, least_fraction: Number, full_utilisation: Number, utilisation: Number
) -> Number:
    """Mean draw of one accelerator with its memory while it trains at a utilisation (model FLOPs over peak)."""
    busy = minimum(maximum(utilisation / full_utilisation, 0), 1)
    return full_watts * (least_fraction + (1 - least_fraction) * busy)


@formula(
    unit="W",
    source="a limit lowers clocks until the draw keeps to it (nvidia-smi --power-limit); below it nothing changes",
)
def limited_watts(watts: Number, limit_watts: Number) -> Number:
    """Mean draw of one accelerator under a power limit, from what it would draw without one."""
    return minimum(watts, limit_watts)


@formula(unit="W", source="processors, fans, network cards and drives: a share of what a node may draw beyond its GPUs")
def node_overhead_watts(node_watts: Number, gpus_per_node: Number, full_watts: Number, node_share: Number) -> Number:
    """Draw of the rest of a node, per accelerator, from the most that the node may draw."""
    return maximum(node_watts / gpus_per_node - full_watts, 0) * node_share


@formula(unit="kWh", source=PATTERSON)
def energy_kwh(busy_gpu_hours: Number, watts_per_gpu: Number, pue: Number) -> Number:
    """Energy of a run at the meter of the data centre: accelerators, their share of nodes, and cooling."""
    return busy_gpu_hours * watts_per_gpu / WATTS_PER_KILOWATT * pue


@formula(unit="W", source="share of time training, the rest idle (checkpoints, restarts, repair)")
def mean_watts(training_watts: Number, idle_watts: Number, goodput: Number) -> Number:
    """Mean draw over a whole run, failures and pauses included."""
    return training_watts * goodput + idle_watts * (1 - goodput)


@formula(unit="tCO2e", source=PATTERSON)
def emitted_tonnes(kwh: Number, kg_co2e_per_kwh: Number) -> Number:
    """Operational emissions; those of making the machines are not included."""
    return kwh * kg_co2e_per_kwh / KILOGRAMS_PER_TONNE
