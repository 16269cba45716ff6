"""Bytes on each GPU, per pipeline stage, at the moment of the peak."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from distsim import catalog
from distsim.arrays import Number
from distsim.engine.exchanges.memory_notes import with_notes
from distsim.engine.figures import Figures
from distsim.engine.footprint.buffers import buffer_bytes
from distsim.engine.footprint.fragmentation import fragmentation_bytes, idle_blocks, slack_of
from distsim.engine.footprint.host import NodeBytes, beyond_drives, beyond_host, drive_capacity, node_bytes
from distsim.engine.footprint.in_flight_bytes import weighed
from distsim.engine.footprint.kept import kept_bytes, pool_bytes
from distsim.engine.footprint.moment import Idle, Moment, highest, with_overheads
from distsim.engine.footprint.moments import moments_of
from distsim.engine.footprint.offloaded import Offloaded
from distsim.engine.footprint.overhead import overhead_bytes
from distsim.engine.footprint.peak_error import PeakError, peak_error
from distsim.engine.footprint.saved import Saved, saved_of
from distsim.engine.footprint.states import States, states, stored
from distsim.engine.footprint.weight_passes import Waiting, waiting_at_peak
from distsim.engine.jobs.framework_notes import narrow_alone
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import Stage, stage_at
from distsim.engine.jobs.words import few
from distsim.specs.job import Job
from distsim.specs.named import Named, job_of

CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "buffers", "framework")


class StageMemory(NamedTuple):
    """One stage: bytes by category at its peak, what one micro-batch keeps, and the moments that were compared."""

    stage: int
    ranks: int
    layers: int
    in_flight: Number
    categories: dict[str, Number]
    saved: Saved
    peak: Number
    peak_moment: str
    moments: tuple[Moment, ...]
    states: States
    fragmentation: Number
    figures: Figures
    waiting: Waiting
    weight_versions: Number
    node: NodeBytes = NodeBytes()
    """What offloading needs of one node, where all of its ranks are of this stage."""

    def counted(self, by: str) -> Number:
        """The peak as a counter sees it: ``allocated`` and ``reserved`` are torch's, ``device`` is nvidia-smi's."""
        if by == "device":
            return self.peak
        if by == "allocated":  # of a moment whose allocator may hold less than at another
            return max(map(self.at, self.moments))
        return self.peak - self.categories["framework"] + self.fragmentation

    def at(self, moment: Moment) -> Number:
        """What the program asks for at a moment: all but overhead."""
        return moment.total + self.categories["buffers"]

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract; the categories add up to the peak, to the byte."""
        whole = {name: round(value) for name, value in self.categories.items()}
        whole["framework"] += round(self.peak) - sum(whole.values())
        return {
            "stage": self.stage, "ranks": self.ranks, "layers": self.layers, "in_flight": self.in_flight,
            "awaiting_weight_gradient": self.waiting.flight.waiting, "awaiting_bytes": round(self.waiting.each),
            "weight_versions": self.weight_versions,
            "categories": whole,
            "saved": self.saved.to_dict(), "peak": round(self.peak), "peak_moment": self.peak_moment,
            "moments": [one.told(self.at(one)) for one in self.moments],
        }  # fmt: skip


class Moments(NamedTuple):
    """How a stage's peak came about."""

    held: States
    saved: Saved
    top: Moment
    compared: tuple[Moment, ...]
    idle: Idle


@dataclass(frozen=True, repr=False, eq=False)
class MemoryReport:
    """The answer of ``distsim memory``."""

    setup: Setup
    stages: tuple[StageMemory, ...]

    def __repr__(self) -> str:
        return f"MemoryReport({few(self.setup)}: peak={self.peak:,}, capacity={self.capacity:,}, fits={self.fits})"

    @property
    def worst(self) -> StageMemory:
        """The stage with the highest peak."""
        return max(self.stages, key=lambda stage: stage.peak)

    @property
    def peak(self) -> int:
        """Bytes on the fullest GPU."""
        return int(round(self.worst.peak))  # noqa: RUF046 (numpy rounds to floats)

    @property
    def capacity(self) -> int:
        """Bytes a program can have on one GPU."""
        return self.setup.accelerator.capacity

    @property
    def headroom(self) -> int:
        """Capacity less peak; negative when the job does not fit."""
        return self.capacity - self.peak

    @property
    def node_bytes(self) -> int:
        """Bytes that offloading needs of the fullest node's memory."""
        return int(max(stage.node.memory for stage in self.stages))

    @property
    def drive_bytes(self) -> int:
        """Bytes that offloading needs on the fullest node's drives."""
        return int(max(stage.node.drives for stage in self.stages))

    @property
    def fits_hosts(self) -> bool:
        """Whether nodes have the memory and drives that offloading needs; True where their cluster does not say what
        they have."""
        return not (beyond_host(self.setup, self.node_bytes) or beyond_drives(self.setup, self.drive_bytes))

    @property
    def fits(self) -> bool:
        """Whether every stage fits, on its GPUs and in the memory of their hosts."""
        return self.headroom >= 0 and self.fits_hosts

    @property
    def known(self) -> PeakError:
        """How far measured runs were from their predicted peaks, and so whether this one fits."""
        return peak_error(self.peak, self.capacity)

    @property
    def notes(self) -> tuple[str, ...]:
        """What stderr says of it."""
        return (*self.setup.notes, *narrow_alone(self.setup, self.worst.categories["gradients"], self.headroom))

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract."""
        return {
            "schema": "distsim.memory/1", "job": self.setup.written(),
            "stages": [stage.to_dict() for stage in self.stages], "peak": self.peak, "capacity": self.capacity,
            "headroom": self.headroom, "fits": self.fits, "peak_interval": self.known.to_dict(),
            **self._hosts(), "notes": list(self.notes),
        }  # fmt: skip

    def _hosts(self) -> dict[str, Any]:
        if not self.setup.offload:
            return {}
        found = {"node_bytes": self.node_bytes, "node_capacity": self.setup.cluster.host_memory}
        if self.setup.drives:
            found |= {"drive_bytes": self.drive_bytes, "drive_capacity": drive_capacity(self.setup)}
        return found


@catalog.settled()
def memory(job: Job | Named | None = None, /, **options: Any) -> MemoryReport:
    """Where every byte goes for a job, given as a Job, or as its fields, the model first: ``peak`` and ``capacity`` in
    bytes, and each of its ``stages``. Raises DistsimError for what does not exist or does not fit together."""
    return memory_of(resolve(job_of(job, options)))


@catalog.settled()
def memory_of(setup: Setup, only: Sequence[int] | None = None) -> MemoryReport:
    """Where every byte goes for a resolved setup, or on the stages of it that ``only`` names."""
    noted, stages = with_notes(setup), range(setup.layout.pp) if only is None else only
    return MemoryReport(noted, tuple(_stage(setup, stage_at(setup, index)) for index in stages))


def memory_unless(setup: Setup, hopeless: Callable[[Number], bool]) -> MemoryReport | None:
    """The same, or None as soon as no more can be left of the fullest GPU than is ``hopeless``: the ends are asked
    first, and before them what the first stage's states alone leave."""
    capacity, figures, first = setup.accelerator.capacity, Figures(), stage_at(setup, 0)
    held = _held(stored(setup), first, figures)
    if hopeless(capacity - held.parameters - held.gradients - held.optimizer):  # all there at the optimizer's step
        return None
    found = [_stage(setup, first, (held, figures))]
    for index in range(setup.layout.pp - 1, -1, -1):
        if hopeless(capacity - found[-1].peak):
            return None
        if index:
            found.append(_stage(setup, stage_at(setup, index)))
    return MemoryReport(with_notes(setup), (found[0], *found[:0:-1]))


def _held(setup: Setup, stage: Stage, figures: Figures) -> States:
    return states(setup, stage.held(), figures, stage.weight_versions)


def stage_parts(
    setup: Setup, stage: Stage, figures: Figures, known: States | None = None
) -> tuple[dict[str, Number], Moments]:
    """What a stage's program itself asks for at its peak, by category, and blocks that its allocator keeps."""
    parts, held, saved, moments = stage_moments(setup, stage, figures, known)
    idle = idle_blocks(setup, stage, held, parts)
    top = highest(moments, slack_of(setup), idle)
    return {**parts, "activations": top.activations}, Moments(held, saved, top, tuple(moments), idle)


def stage_moments(
    setup: Setup, stage: Stage, figures: Figures, known: States | None = None
) -> tuple[dict[str, Number], States, Saved, list[Moment]]:
    """A stage's bytes by category without activations, states, saved tensors, and moments that have activations."""
    setup = stored(setup)
    held = _held(setup, stage, figures) if known is None else known
    saved = saved_of(setup, stage)
    moments = moments_of(setup, stage, held, saved)
    buffers = buffer_bytes(setup, stage, held, figures)
    kept = kept_bytes(setup, stage, held, figures) + pool_bytes(setup, moments, figures)
    return {
        "parameters": held.parameters, "gradients": held.gradients, "optimizer": held.optimizer, "activations": 0,
        "buffers": buffers, "framework": kept,
    }, held, saved, moments  # fmt: skip


def with_overhead(
    setup: Setup, stage: Stage, parts: dict[str, Number], top: Moment, idle: Idle, figures: Figures
) -> tuple[dict[str, Number], Number]:
    """All categories, and of the framework's what its allocator holds beyond what is allocated at the ``top``; ``idle``
    is what is known of that."""
    overhead = overhead_bytes(setup, stage, figures)
    least, apart = idle.beside(top.activations), top.apart(idle)
    lost = fragmentation_bytes(setup, top.churning, figures, least, parts["buffers"], apart)
    fragmentation = parts["framework"] + lost
    return {**parts, "framework": overhead + fragmentation}, fragmentation


def _filled(categories: dict[str, Number], fragmentation: Number) -> tuple[dict[str, Number], Number]:
    """Categories and fragmentation where activations are negative, since they lie where gradients will: the lack is
    taken first from what the allocator lost, then from gradients, which are not all there yet."""
    lack = -categories["activations"]
    if not isinstance(lack, (int, float)) or lack <= 0:
        return categories, fragmentation
    lost = min(lack, fragmentation)
    own = {"activations": 0, "framework": categories["framework"] - lost,
           "gradients": categories["gradients"] - (lack - lost)}  # fmt: skip
    return {**categories, **own}, fragmentation - lost


def _stage(setup: Setup, stage: Stage, known: tuple[States, Figures] | None = None) -> StageMemory:
    """One stage, whose states may be ``known`` with their figures."""
    stage, (states_known, figures) = weighed(setup, stage), known or (None, Figures())
    parts, (held, saved, top, moments, idle) = stage_parts(setup, stage, figures, states_known)
    categories, fragmentation = with_overhead(setup, stage, parts, top, idle, figures)
    moments = tuple(with_overheads(moments, top, categories["framework"], slack_of(setup), idle))
    categories, fragmentation = _filled(categories, fragmentation)
    layout = setup.layout
    return StageMemory(
        stage.index, layout.tp * layout.cp * layout.dp, stage.layer_count, stage.in_flight, categories, saved,
        sum(categories.values()), top.name, moments, held, fragmentation, figures,
        waiting_at_peak(setup, stage, Offloaded(setup, saved).stays + saved.embedding), stage.weight_versions,
        node_bytes(setup, held, saved.leaving, stage.in_flight),
    )  # fmt: skip
