"""The NVMe drives of a job's nodes: what they take, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distsim.arrays import Number, minimum
from distsim.errors import DistsimError
from distsim.specs.accelerator import of_generation
from distsim.specs.cluster import Cluster
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.layout import SHARDS_ALL
from distsim.specs.support import Supports

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup

DRIVEN = ("optimizer", "parameters")
"""What software writes to drives; activations stay in host memory."""


def goes_to(offload: str | None, place: str | None) -> bool:
    """Whether some of what is offloaded goes to a place that somebody named: what is to leave at all, and of it to
    drives what software writes there."""
    words = (offload or "none").split(",")
    return any(word in DRIVEN if place == "nvme" else word != "none" for word in words)


def needs_shards(job: Job, supports: Supports) -> bool:
    """Whether what a job offloads is shards of ZeRO 3: parameters, sub-groups, and whatever goes to drives."""
    in_groups = job.offload_fraction is not None and supports.offload_fraction == "sub-groups"
    return in_groups or "parameters" in (job.offload or "") or job.offload_to == "nvme"


def lowest_stage(job: Job, supports: Supports) -> int:
    """The lowest ZeRO stage at which what a job offloads leaves the GPU; states do at any where nobody named the
    framework."""
    if needs_shards(job, supports):
        return SHARDS_ALL
    return supports.offload_zero if job.names_framework and "optimizer" in (job.offload or "") else 0


def refuse_drives(filled: Mapping[str, Any], framework: Framework | None, cluster: Cluster) -> None:
    """Raise what keeps offloaded states from going on to drives: the software that somebody named, the layout, or nodes
    without any."""
    if filled["offload_to"] != "nvme":
        return
    if framework is not None and not framework.supports.drives:
        source = framework.source.get("supports.offload")
        raise DistsimError(
            f"{framework.name} does not offload to NVMe drives", "use --offload-to cpu, or --framework deepspeed",
            *([f"source: {source}"] if source else []),
        )  # fmt: skip
    if not goes_to(filled["offload"], "nvme"):
        raise DistsimError(
            f"--offload-to nvme has no effect on {filled['offload']}, which stay in host memory",
            "add optimizer or parameters to --offload, or leave --offload-to out",
        )
    if filled["zero"] != 3:
        raise DistsimError(
            f"--offload-to nvme needs ZeRO 3, but --zero is {filled['zero']}",
            "add --zero 3: only ZeRO 3 swaps states to drives",
        )
    if None in node_rates(cluster):
        raise DistsimError(
            f"cluster {cluster.name} does not state its NVMe drives",
            "name a --cluster that does, or your own TOML file with [storage]: drives, capacity, or read_rate and "
            "write_rate of all drives of a node",
        )


def node_rates(cluster: Cluster, generation: int | None = None) -> tuple[float | None, float | None]:
    """Bytes per second that all drives of a node are rated to read and to write: as stated, or by their number and the
    generation of PCIe of the host; the last that is known where none is stated (a Grace's)."""
    storage = cluster.storage
    if storage is None:
        return None, None
    from distsim.formulas.drives import READ_RATES, WRITE_RATES

    reads, writes = (
        of_generation(table, max(table) if generation is None else generation) for table in (READ_RATES, WRITE_RATES)
    )
    drives = storage.drives or 0
    rated = storage.read_rate or drives * reads
    return rated or None, storage.write_rate or min(drives * writes, rated) or None


def drive_rates(setup: Setup) -> tuple[Number, Number]:
    """Bytes per second that one rank reads from drives, and writes to them, while all of its node do."""
    from distsim.formulas.drives import REACHED_SHARE, drive_rate

    host = setup.accelerator.host
    reads, writes = node_rates(setup.cluster, None if host is None else host.generation)
    assert reads is not None and writes is not None  # refuse_drives has seen to it
    sharers = minimum(setup.layout.gpus, setup.cluster.gpus_per_node)
    return drive_rate(reads, REACHED_SHARE, sharers), drive_rate(writes, REACHED_SHARE, sharers)
