"""What an accelerator and its share of the node draw while a job trains, and while it stands still."""

from __future__ import annotations

import math
from typing import NamedTuple

from distsim import catalog
from distsim.engine.figures import Figures
from distsim.engine.jobs.hardware import profile_of
from distsim.formulas import energy as forms
from distsim.specs.accelerator import Accelerator
from distsim.specs.cluster import Cluster
from distsim.specs.power import PowerDraw

USUAL_UTILISATION = 0.4
"""Of the peak: what good training reaches (PaLM 0.46, Llama 3 0.38 to 0.43: arXiv:2204.02311, arXiv:2407.21783), where
nothing better is known: of a chip without a stated peak, of a plan before its layouts are timed."""


class Draw(NamedTuple):
    """Watts per accelerator, its share of the node included; ``accelerator`` is without that share."""

    accelerator: float
    overhead: float
    idle_accelerator: float
    figures: Figures
    rated: float = 0.0
    """The most that it may draw with its share of the node: what a hall is rented for."""

    @property
    def training(self) -> float:
        """While steps run."""
        return self.accelerator + self.overhead

    @property
    def idle(self) -> float:
        """While the job waits for a restart, or has no rank there."""
        return self.idle_accelerator + self.overhead

    def mean(self, goodput: float) -> float:
        """Over a whole run of which a share is training."""
        return float(forms.mean_watts(self.training, self.idle, goodput))

    def metered_kwh(self, hours: float, idle_hours: float, goodput: float, pue: float) -> float:
        """Energy of so many accelerator-hours with ranks and, of what is paid for besides, without."""
        parts = (hours, self.mean(goodput)), (idle_hours, self.idle)
        return sum(float(forms.energy_kwh(each, watts, pue)) for each, watts in parts)


def draw(accelerator: Accelerator, cluster: Cluster, utilisation: float | None) -> Draw | None:
    """Watts of an accelerator in a node at a utilisation (model FLOPs over peak); None if nobody states its power."""
    profile, figures = profile_of(accelerator), Figures()
    full = profile.full_watts or accelerator.rated_power or accelerator.power
    if full is None:
        return None
    most = min(full, accelerator.power or full)
    busy = figures.use(
        "accelerator", forms.accelerator_watts, full_watts=full, least_fraction=profile.least_fraction,
        full_utilisation=profile.full_utilisation,
        utilisation=USUAL_UTILISATION if utilisation is None else utilisation,
    )  # fmt: skip
    if accelerator.rated_power:
        busy = figures.use("accelerator, under its limit", forms.limited_watts, watts=busy, limit_watts=most)
    idle = figures.note("accelerator, waiting for a restart", full * profile.idle_fraction, "W",
                        profile.source_of("idle_fraction") or "")  # fmt: skip
    stated = min(full, cluster.gpu_power or full) if cluster.power else full
    node = cluster.power or _alike_power(accelerator, cluster)
    rest = _overhead(stated, node, cluster.gpus_per_node, profile, figures)
    rated = most + rest if node is None else max(node / cluster.gpus_per_node - stated, 0.0) + most
    return Draw(float(busy), rest, float(idle), figures, rated)


def starved_node(accelerator: Accelerator, cluster: Cluster) -> str:
    """A note on a node that is stated to draw less than its accelerators may, most likely a slip, or nothing."""
    full = min(accelerator.rated_power or accelerator.power or 0.0, cluster.gpu_power or math.inf)
    within = cluster.gpus_per_node * full
    if cluster.power is None or cluster.power >= within:
        return ""
    return (
        f"power {cluster.power:,g} W of cluster {cluster.name} is less than its {cluster.gpus_per_node} "
        f"{accelerator.name} may draw ({within:,g} W): nothing is counted for the rest of the node"
    )


def _alike_power(accelerator: Accelerator, cluster: Cluster) -> float | None:
    """What the accelerator's usual node may draw, for a cluster that states no power and has as many accelerators per
    node; None if it has another number."""
    if accelerator.default_cluster is None:
        return None
    usual: Cluster = catalog.load("clusters", accelerator.default_cluster)
    return usual.power if usual.gpus_per_node == cluster.gpus_per_node else None


def _overhead(full: float, node: float | None, gpus_per_node: int, profile: PowerDraw, figures: Figures) -> float:
    """Draw of processors, fans and network per accelerator: as measured, or a share of what the node (or a similar one)
    may draw beyond its accelerators, or a share of what the accelerators draw."""
    if profile.node_watts is not None:
        return float(figures.note("share of the node", profile.node_watts, "W", profile.source_of("node_watts") or ""))
    if node is not None:
        return float(figures.use(
            "share of the node", forms.node_overhead_watts, node_watts=node,
            gpus_per_node=gpus_per_node, full_watts=full, node_share=profile.node_share,
        ))  # fmt: skip
    source = profile.source_of("node_fraction") or ""
    return float(figures.note("share of the node", full * profile.node_fraction, "W", source))
