"""What failures, checkpoints and pauses leave of a campaign's time: the closed form, every term noted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from distsim.arrays import ceil_div
from distsim.engine.campaigns.pace import pace_source
from distsim.engine.figures import Figures
from distsim.engine.plans.repairs import enough_spares, repair_seconds, waits
from distsim.errors import DistsimError
from distsim.formulas import goodput as forms
from distsim.specs.cluster import USUAL_NODE
from distsim.specs.failures import Failures
from distsim.specs.limits import LARGEST_DEGREE
from distsim.specs.storage import Storage
from distsim.units import DAY, MINUTE, duration

NEVER = 1e18
"""Bytes a second of links that limit nothing."""
PAUSE_SECONDS = 10 * MINUTE
"""A planned pause, where nobody says: a restart like any other (MegaScale, arXiv:2402.15627, section 6.3)."""
LEAST_INTERVAL_SECONDS = 5 * MINUTE
"""Nobody saves more often than this, however cheap the optimum thinks it is; an assumption of the planner."""


SPOKEN = {"interval_seconds": "--checkpoint-every: seconds between checkpoints", "spares": "--spares: spare nodes",
          "pace": "--pace", "straggler_spread": "spread of GPU speeds",
          "node_preempted_every": "--preempted-every: seconds that a spot node lasts",
          "pause_seconds": "seconds of a planned pause", "pauses_per_day": "planned pauses per day"}  # fmt: skip
"""Names of a policy's fields in messages to users."""


@dataclass(frozen=True)
class Policy:
    """How a campaign guards itself. No ``interval_seconds`` means Daly's optimum, or the least interval if longer."""

    asynchronous: bool = True
    interval_seconds: float | None = None
    least_interval_seconds: float = LEAST_INTERVAL_SECONDS
    spares: int | None = None
    """Spare nodes; None for as many as leave at most one failure in a hundred without one."""
    pauses_per_day: float = 0.0
    pause_seconds: float = PAUSE_SECONDS
    straggler_spread: float = 0.0
    pace: float = 1.0
    """Steps of campaigns over those of benchmark runs (engine/campaigns/pace.py); 1 where step times are a
    campaign's."""
    node_preempted_every: float | None = None
    """Mean seconds until a node of a spot cluster is taken away; None for never."""

    def __post_init__(self) -> None:
        """Absurd numbers are named here, where they enter."""
        for name, least, most in (
            ("interval_seconds", 1e-3, 1e9), ("least_interval_seconds", 0, 1e9), ("spares", 0, LARGEST_DEGREE),
            ("pauses_per_day", 0, 1000), ("pause_seconds", 0, DAY), ("straggler_spread", 0, 1),
            ("pace", 0.5, 10),
            ("node_preempted_every", MINUTE, 1e12),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                told = SPOKEN.get(name, name)
                raise DistsimError(f"{told} {value:g} is out of range", f"valid: {least:,.10g} to {most:,.10g}")


@dataclass(frozen=True)
class Checkpoint:
    """What one checkpoint is: all its bytes, the bytes that one accelerator holds of it, and the way to host memory."""

    total_bytes: float
    bytes_per_gpu: float
    host_rate: float
    writers_rate: float = NEVER
    """All links to the storage together, one direction."""


@dataclass(frozen=True)
class Goodput:
    """Terms of the closed form. ``fraction`` is training time over all time."""

    gpus: int
    mean_time_between_failures: float
    interval: float
    blocking: float
    drain: float
    """From the end of the blocking part until the checkpoint can be restored."""
    restart: float
    failure_stretch: float
    planned_stretch: float
    straggler_stretch: float
    figures: Figures
    notes: tuple[str, ...] = ()
    spares: int = 0
    pace: float = 1.0
    work: float = math.inf
    """Seconds of undisturbed training, where it is known how long that is."""
    waits: float = 0.0
    """Share of the stops after which the job waits for a node in repair."""
    wait: float = 0.0
    """Mean seconds of such a wait, in which nothing fails; ``restart`` comes on top."""
    wait_stretch: float = 1.0
    preempted: bool = False
    """Whether nodes that are taken away are among the failures; others take their place, with no wait for a repair."""

    @property
    def checkpoints(self) -> float:
        """How many a campaign writes: one after each interval, and one at the end."""
        return math.ceil(self.work / self.interval) if self.work < math.inf else math.inf

    @property
    def stretch(self) -> float:
        """All time over the time that undisturbed steps would take, stragglers and the pace of campaigns included."""
        return self.failure_stretch * self.wait_stretch * self.planned_stretch * self.slow_steps

    @property
    def slow_steps(self) -> float:
        """Steps as they are taken over steps as a benchmark takes them."""
        return self.straggler_stretch * self.pace

    @property
    def fraction(self) -> float:
        """Training time over all time; slow steps are training."""
        return 1 / (self.failure_stretch * self.wait_stretch * self.planned_stretch)

    def interruptions(self, work_seconds: float) -> float:
        """Failures that a campaign of so much undisturbed training expects."""
        return work_seconds * self.failure_stretch * self.slow_steps / self.mean_time_between_failures

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers in seconds."""
        return {
            "goodput": self.fraction, "mean_time_between_failures_seconds": self.mean_time_between_failures,
            "checkpoint_interval_seconds": self.interval, "checkpoint_blocking_seconds": self.blocking,
            "checkpoint_drain_seconds": self.drain, "restart_seconds": self.restart,
            "failure_stretch": self.failure_stretch, "planned_stretch": self.planned_stretch,
            "wait_stretch": self.wait_stretch, "waiting_share": self.waits, "wait_seconds": self.wait,
            "straggler_stretch": self.straggler_stretch, "pace": self.pace, "spare_nodes": self.spares,
            "notes": list(self.notes),
        }  # fmt: skip


def rate_per_gpu_hour(failures: Failures, figures: Figures) -> float:
    """Failures per accelerator-hour, whichever way the source counted."""
    if failures.per_node_day is not None:
        rate = figures.use(
            "failure rate", forms.failures_per_gpu_hour_of_node_days,
            failures_per_node_day=failures.per_node_day, gpus_per_node=failures.gpus_per_node,
        )  # fmt: skip
    elif failures.hours_per_failure is not None:
        source = failures.source_of("hours_per_failure") or ""
        rate = figures.note("failure rate", 1 / failures.hours_per_failure, "1/GPU-h", source)
    else:
        rate = figures.use(
            "failure rate", forms.failures_per_gpu_hour,
            failures=failures.unplanned, gpus=failures.gpus, window_seconds=failures.window,
        )  # fmt: skip
    if not rate > 0:
        raise DistsimError(
            f"failures {failures.name} counts no failures: no checkpoint interval follows", "give a rate"
        )
    return float(rate)


def goodput(
    gpus: int, failures: Failures, checkpoint: Checkpoint, storage: Storage, policy: Policy,
    gpus_per_node: int = USUAL_NODE, work_seconds: float = math.inf,
) -> Goodput:  # fmt: skip
    """The closed form for a job that needs all its accelerators, and ``work_seconds`` of undisturbed training: no more
    than that is lost to a failure."""
    if gpus < 1:
        raise DistsimError(f"{gpus} GPUs cannot train", "give at least 1")
    figures = Figures()
    broken = figures.use("time between failures", forms.seconds_between_failures, gpus=gpus,
                         gpu_failures_per_hour=rate_per_gpu_hour(failures, figures))  # fmt: skip
    mean = _with_preemptions(broken, ceil_div(gpus, gpus_per_node), policy, figures)
    blocking, drain = _checkpoint_times(gpus, checkpoint, storage, policy, figures)
    interval, notes = _interval(policy, blocking, drain, mean, figures)
    if interval > work_seconds:
        figures.note("checkpoint interval, the whole run", work_seconds, "s", "one checkpoint, at the end")
        interval, notes = work_seconds, ()
    repair = repair_seconds(failures, figures)
    spares = policy.spares if policy.spares is not None else enough_spares(repair, broken, figures)
    restart = _restart(gpus, failures, checkpoint, storage, figures)
    stretch = figures.use(
        "time factor of failures and checkpoints", forms.wall_over_work, interval_seconds=interval,
        blocking_seconds=blocking, drain_seconds=drain, restart_seconds=restart, mean_time_between_failures=mean,
    )  # fmt: skip
    short, wait, waiting = waits(repair, spares, broken, figures)
    planned = figures.use("time factor of planned maintenance", forms.planned_stretch,
                          pauses_per_day=policy.pauses_per_day, seconds_per_pause=policy.pause_seconds)  # fmt: skip
    slow = figures.use(
        "time factor of stragglers", forms.straggler_stretch, workers=gpus, spread_fraction=policy.straggler_spread
    )
    if policy.pace != 1:
        figures.note("step time of campaigns over that of benchmarks", policy.pace, "1", pace_source(policy.pace))
    figures.use("first-order check (Kokolis et al.)", forms.expected_ettr, gpu_or_node_count=1,
                failures_per_second=1 / mean, restart_seconds=restart + short * wait * mean / broken,
                interval_seconds=interval, write_seconds=blocking)  # fmt: skip
    return Goodput(gpus, mean, interval, blocking, drain, restart, stretch, planned, slow, figures, notes, spares,
                   policy.pace, work_seconds, short * mean / broken, wait, waiting,
                   policy.node_preempted_every is not None)  # fmt: skip


def _with_preemptions(broken: float, nodes: int, policy: Policy, figures: Figures) -> float:
    """Mean time between stops, of machines that break and of spot machines that are taken away."""
    if policy.node_preempted_every is None:
        return broken
    taken = figures.use("time between preemptions", forms.seconds_between_preemptions, nodes=nodes,
                        seconds_per_node=policy.node_preempted_every)  # fmt: skip
    return float(figures.use("time between stops", forms.seconds_between_stops, seconds_between_failures=broken,
                             seconds_between_preemptions=taken))  # fmt: skip


def storage_rate(gpus: int, storage: Storage, figures: Figures) -> float:
    """Write rate of the storage for a cluster of a size."""
    if storage.write_rate is not None:
        source = storage.source_of("write_rate") or ""
        return float(figures.note("storage write rate", storage.write_rate, "B/s", source))
    return float(figures.use(
        "storage write rate", forms.assumed_storage_rate, gpus=gpus, rate_per_gpu=storage.write_rate_per_gpu,
        least=storage.least_write_rate or 0.0, most=storage.most_write_rate or NEVER,
    ))  # fmt: skip


def _checkpoint_times(
    gpus: int, checkpoint: Checkpoint, storage: Storage, policy: Policy, figures: Figures
) -> tuple[float, float]:
    write = figures.use("checkpoint write", forms.checkpoint_write_seconds, checkpoint_bytes=checkpoint.total_bytes,
                        storage_rate=storage_rate(gpus, storage, figures),
                        writers_rate=checkpoint.writers_rate)  # fmt: skip
    if not policy.asynchronous:
        figures.note("checkpoint pause", write, "s", "definition: training stops for a blocking write")
        return float(write), 0.0
    copy = figures.use("checkpoint pause", forms.checkpoint_copy_seconds, bytes_per_gpu=checkpoint.bytes_per_gpu,
                       host_rate=checkpoint.host_rate)  # fmt: skip
    return float(copy), float(write)


def _interval(
    policy: Policy, blocking: float, drain: float, mean: float, figures: Figures
) -> tuple[float, tuple[str, ...]]:
    """Training time between checkpoints; never less than a checkpoint takes to drain."""
    if policy.interval_seconds is not None:
        if policy.interval_seconds + blocking < drain:
            raise DistsimError(
                f"a checkpoint every {duration(policy.interval_seconds)} is still being written when the next is due: "
                f"writing takes {duration(drain)}", f"use at least {duration(drain)}",
            )  # fmt: skip
        return float(figures.note("checkpoint interval", policy.interval_seconds, "s", "as stated")), ()
    best = figures.use("checkpoint interval", forms.daly_interval_seconds, blocking_seconds=blocking,
                       mean_time_between_failures=mean)  # fmt: skip
    if best + blocking < drain:
        longer = figures.note("checkpoint interval, as the storage allows", drain - blocking, "s", "write time")
        return float(longer), (f"the storage allows a checkpoint only every {duration(drain)}",)
    if best < policy.least_interval_seconds:
        least = figures.note("checkpoint interval, at least", policy.least_interval_seconds, "s", "checkpoint policy")
        return float(least), (f"the optimal checkpoint interval is {duration(best)}; {duration(least)} is used",)
    return float(best), ()


def _restart(
    gpus: int, failures: Failures, checkpoint: Checkpoint, storage: Storage, figures: Figures
) -> float:  # fmt: skip
    """Detection, replacement by a node that is there, and loading."""
    reads = storage.read_rate or storage_rate(gpus, storage, Figures())
    base = failures.restart if failures.restart is not None else PAUSE_SECONDS
    load = checkpoint.total_bytes / min(reads, checkpoint.writers_rate)
    figures.note("detection and replacement", base, "s", failures.source_of("restart") or "assumed: PAUSE_SECONDS")
    figures.note("loading the checkpoint", load, "s", "checkpoint bytes over the read rate; shards read once")
    return float(figures.note("restart", base + load, "s", "sum of the two"))
