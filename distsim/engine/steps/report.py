"""What ``distsim step`` answers: the time of one optimizer step, where it goes, and how sure that is."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.corrections.correction import Correction, nearest_of
from distsim.engine.corrections.known_runs import unlike_own
from distsim.engine.corrections.own_peaks import own_peak_note
from distsim.engine.corrections.unfitted import unfitted
from distsim.engine.exchanges.profile_use import unused_by_job
from distsim.engine.exchanges.reach import straddling
from distsim.engine.footprint.host_share import sub_group_note
from distsim.engine.footprint.states import filled_experts
from distsim.engine.jobs.dispatch import dispatcher_note
from distsim.engine.jobs.dp_overlap import data_overlap_note
from distsim.engine.jobs.flops import flops_convention, least_flops, model_flops, peak_of
from distsim.engine.jobs.framework_notes import beyond_default, narrow_alone
from distsim.engine.jobs.lacking import lacking
from distsim.engine.jobs.no_effect import average_note, loss_note, sync_note
from distsim.engine.jobs.reference import pair_note, unmeasured_note
from distsim.engine.jobs.tp_overlap import overlap_note
from distsim.engine.jobs.words import few
from distsim.engine.kernels.alignment import odd_vocabulary
from distsim.engine.kernels.weights import few_threads
from distsim.engine.memory import MemoryReport
from distsim.engine.networks.unknown import unknown_links
from distsim.engine.steps.composed import ComposedStep, composed
from distsim.engine.steps.simulated import as_simulated, asynchronous_note, simulated_note
from distsim.engine.steps.work import recompute_factor
from distsim.formulas.flops import flops_utilisation
from distsim.units import duration

UNLIKELY_MFU = 0.75
"""Model FLOPs over the peak that no measured run sustains: beyond it the convention is told."""
COUNTED_ALIKE = 0.95
"""Share of the FLOPs that are required of those that count, above which the convention is not why."""


class Interval(NamedTuple):
    """Where the measured time will lie with probability ``level``, and where every second one lies."""

    level: float
    low: float
    high: float
    basis: str = ""
    half: tuple[float, float] | None = None
    """From the lower to the upper quartile of runs; None where a user's calibration of an older version has none."""

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract, and the quartiles."""
        return {"level": self.level, "low": self.low, "high": self.high, "half": self.half and list(self.half)}


@dataclass(frozen=True, repr=False, eq=False)
class StepReport(ComposedStep):
    """The answer of ``distsim step``."""

    interval: Interval
    memory: MemoryReport

    def __repr__(self) -> str:
        mfu = "" if self.mfu is None else f", mfu={self.mfu:.3f}"
        return f"StepReport({few(self.setup)}: seconds={self.seconds:.6g}{mfu}, fits={self.memory.fits})"

    @property
    def fits(self) -> bool:
        """Whether its memory does."""
        return self.memory.fits

    @property
    def peak_memory(self) -> int:
        """Bytes on the fullest GPU."""
        return self.memory.peak

    @property
    def tokens_per_second(self) -> float:
        """Over all GPUs."""
        return float(self.setup.layout.step_tokens / self.seconds)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """The same of one GPU."""
        return float(self.tokens_per_second / self.setup.layout.gpus)

    @property
    def model_flops_per_second_per_gpu(self) -> float:
        """By the 6 N + 12 L H S convention, attention dense, recomputation not counted."""
        layout = self.setup.layout
        return float(model_flops(self.setup) * self.tokens_per_second / layout.gpus)

    @property
    def peak(self) -> float | None:
        """The datasheet rate that utilisation refers to."""
        return peak_of(self.setup)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs over peak; None where the datasheet states no such rate."""
        return None if not self.peak else float(flops_utilisation(self.model_flops_per_second_per_gpu, self.peak))

    @property
    def hfu(self) -> float | None:
        """Like ``mfu``, with recomputed operations counted as work."""
        return None if self.mfu is None else self.mfu * recompute_factor(self.work)

    @functools.cached_property
    def evidence(self) -> Correction:
        """Its correction with the nearest of all measured runs, those that correct no job among them: only who reads
        about them waits for a search through all."""
        return nearest_of(self.setup, self.correction)

    @functools.cached_property
    def host_waits(self) -> dict[str, float]:
        """Seconds by which each part of a step is longer because the GPU waits for a host that issues kernels: what it
        would save if issuing took none; negative where something is hidden less by shorter computation."""
        free = self.timing.model_copy(update={"kernel_issue_seconds": 0.0})
        computed = as_simulated(composed(self.work, free, self.correction)).breakdown
        return {name: seconds - computed[name] for name, seconds in self.breakdown.items()}

    @functools.cached_property
    def host_wait_seconds(self) -> float:
        """Seconds of a step in which the GPU waits for a host that issues kernels."""
        return max(sum(self.host_waits.values()), 0.0)

    @functools.cached_property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of the job and the accelerator."""
        found = (
            odd_vocabulary(self.setup),
            self.beyond_peak(),
            unlike_own(self.setup),
            own_peak_note(self.setup, self.memory.peak),
            few_threads(self.setup),
            sub_group_note(self.setup),
            self.decomposing(),
            overlap_note(self.setup),
            dispatcher_note(self.setup.job, self.setup.layout),
            data_overlap_note(self.setup.job, self.setup.model, self.setup.layout),
            sync_note(self.setup),
            average_note(self.setup.job),
            loss_note(self.setup.job, self.setup.layout),
            unmeasured_note(self.setup.job),
            pair_note(self.setup.job, self.setup.layout.micro_batch),
            simulated_note(self),
            asynchronous_note(self),
        )
        of_links = unknown_links(self.setup.accelerator, self.setup.cluster, self.setup.layout.gpus)
        held = self.memory.worst.categories["gradients"]
        return (*self.setup.notes, *narrow_alone(self.setup, held, self.memory.headroom),
                *beyond_default(self.setup), *unfitted(self.setup), *lacking(self.setup),
                *filled_experts(self.setup), *filter(None, found), *straddling(self.setup), *of_links,
                *unused_by_job(self.setup))  # fmt: skip

    def decomposing(self) -> str:
        """How long the step takes that decomposes all gradients, where a mean of it is in each."""
        optimizer, each = self.setup.optimizer, max(float(one.compute.decomposing) for one in self.work.stages)
        if not each:
            return ""
        updates = self.setup.layout.micro_batches if optimizer.in_backward else 1
        return (
            f"every {optimizer.projection_steps:,} updates {optimizer.name} decomposes all gradients, which takes "
            f"about {duration(each * optimizer.projection_steps / updates)} (known within a factor of two): each step "
            f"counts {duration(each)} of it"
        )

    def beyond_peak(self) -> str:
        """Why utilisation is as high as no hardware's, where it is: the convention counts attention that is never
        computed."""
        if not self.mfu or self.mfu <= UNLIKELY_MFU:
            return ""
        least = self.mfu * least_flops(self.setup) / model_flops(self.setup)
        if least / self.mfu > COUNTED_ALIKE:
            return ""
        high = "over 100%" if self.mfu > 1 else f"{self.mfu:.0%}"
        return (
            f"MFU is {high} because it counts attention to all {self.setup.layout.together:,} tokens, as published "
            f"figures do; counting only the FLOPs that {self.setup.model.name} requires, it is {least:.0%}"
        )

    @catalog.settled()
    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract."""
        return {
            "schema": "distsim.step/1", "job": self.setup.written(), "seconds": self.seconds,
            "interval": self.interval.to_dict(), "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "model_flops_per_second_per_gpu": self.model_flops_per_second_per_gpu, "mfu": self.mfu, "hfu": self.hfu,
            "peak_flops_per_second": self.peak, "flops_convention": flops_convention(self.setup),
            "breakdown": dict(self.breakdown), "host_wait_seconds": self.host_wait_seconds,
            "peak_memory": self.peak_memory, "fits": self.fits,
            "evidence": {"interval": self.interval.basis, "correction": math.exp(self.correction.logarithm) - 1,
                         "nearest_likeness": self.evidence.nearest, "runs": list(self.evidence.runs)},
            "notes": list(self.notes),
        }  # fmt: skip
