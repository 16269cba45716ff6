"""Measured runs replayed: the prediction for a row, made into a setup, stands beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from distsim import catalog
from distsim.engine.corrections.correction import Publication, peak_correction_of
from distsim.engine.corrections.documents import published_as
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.attention import assumed_kernel
from distsim.engine.runs.cluster import assumed_node
from distsim.engine.runs.contradictions import believed_peak, overruled, too_large
from distsim.engine.runs.degrees import assumed_degrees
from distsim.engine.runs.evaluation import told_evaluation
from distsim.engine.runs.layout import assumed_layout, idle_degrees
from distsim.engine.runs.measured import assumed_counts, measured_seconds, small_share
from distsim.engine.runs.memory import peak_of_run
from distsim.engine.runs.passes_alone import assumed_part, timed_layer, timed_passes
from distsim.engine.runs.profile import assumed_software
from distsim.engine.runs.published_layouts import assumed_choice
from distsim.engine.runs.recompute_to_fit import assumed_loss, assumed_to_fit
from distsim.engine.runs.reductions_to_fit import assumed_reductions
from distsim.engine.runs.scripts import assumed_batch, assumed_experts, assumed_sequence, scripted
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.software import assumed_recompute
from distsim.engine.runs.time_units import beyond, time_cell
from distsim.engine.runs.too_fast import check_possible
from distsim.engine.runs.weights_to_fit import assumed_weights
from distsim.engine.runs.years import run_year
from distsim.engine.runs.zero_stage import assumed_stage
from distsim.engine.runs.zeropp import assumed_zeropp
from distsim.errors import DistsimError
from distsim.interop.runs import MissingCell, Run
from distsim.interop.runs.attention import assumed_attention
from distsim.interop.runs.blanks import assumed_gpus, filled
from distsim.interop.runs.chips import assumed_chip, with_chip
from distsim.interop.runs.context import assumed_context
from distsim.interop.runs.models import assumed_model, layer_alone
from distsim.interop.runs.numbers import dropped, suffixes_read
from distsim.interop.runs.offloads import assumed_offload
from distsim.interop.runs.optimizers import assumed_optimizer
from distsim.interop.runs.peaks import assumed_unit
from distsim.interop.runs.precision_notes import rounds_products
from distsim.interop.runs.sample_lengths import slowest_tokens
from distsim.interop.runs.sharding import assumed_sharding
from distsim.interop.runs.training import without_update
from distsim.interop.runs.tuning import assumed_kind, assumed_rank


@dataclass(frozen=True)
class Replay:
    """One run: measured and predicted, or the reason why its cells do not say enough."""

    run: Run
    reason: str = ""
    setup: Setup | None = None
    measured_seconds: float | None = None
    measured_peak: float | None = None
    predicted_peak: float | None = None
    peak_alone: float | None = None
    """The same without what other runs of the source say of peaks."""
    predicted_seconds: float | None = None
    interval: dict[str, float] | None = None
    assumed: str = ""
    """What no cell says and the prediction takes for granted."""

    @property
    def error(self) -> float | None:
        """Predicted over measured step time, less one."""
        if self.reason or not self.measured_seconds or self.predicted_seconds is None:
            return None
        return self.predicted_seconds / self.measured_seconds - 1

    @property
    def ratio(self) -> float | None:
        """Measured over predicted step time, also of a row that is skipped because they contradict each other."""
        if not self.measured_seconds or self.predicted_seconds is None:
            return None
        return self.measured_seconds / self.predicted_seconds

    @property
    def covered(self) -> bool | None:
        """Whether the measured step time lies inside the predicted interval."""
        if not self.measured_seconds or self.interval is None:
            return None
        return self.interval["low"] <= self.measured_seconds <= self.interval["high"]

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured peak, less one."""
        if self.measured_peak is None or self.predicted_peak is None:
            return None
        return self.predicted_peak / self.measured_peak - 1


@catalog.settled()
def replay(run: Run, strange: bool = False) -> Replay:
    """Predict one run, a ``strange`` one as if nobody had measured others of its source but those that are fitted to.
    Never raises for what a row says or leaves out."""
    found = _replayed(run, strange)
    return (_rounded(found, strange) if found.reason and found.setup is not None else None) or found


def _rounded(found: Replay, strange: bool) -> Replay | None:
    """The replay with products on TF32 units of a run that is beyond the chip's peak in fp32 and possible so; None for
    any other, and where a row says that it had none. NVIDIA's containers set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1, so
    that torch rounds fp32 products there whatever its default."""
    setup, run = found.setup, found.run
    if setup is None or setup.precision.math != "fp32" or setup.accelerator.peak.tf32 is None:
        return None
    if rounds_products(run.text("precision"), run.notes) is False:
        return None
    told = f"precision {run.text('precision')!r} would exceed the chip's fp32 peak: timed as tf32"
    again = _replayed(replace(run, cells={**run.cells, "precision": "tf32"}), strange)
    return None if again.reason else replace(again, assumed="; ".join(filter(None, (told, again.assumed))))


def _replayed(run: Run, strange: bool) -> Replay:
    written = run
    try:
        run.refuse_slips()
        run = filled(with_chip(run))
        setup = setup_of(run)
        published = published_as(run, run_year(run), strange)
        peak = None if layer_alone(run) else peak_of_run(run, setup, run_year(run))
        timed = _timed(setup, run, published)
    except MissingCell as missing:
        return Replay(run, reason=str(missing))
    except DistsimError as error:
        return Replay(run, reason="; ".join(filter(None, (error.problem, error.near))))
    if not math.isfinite(timed[0]):
        return Replay(run, reason="its sizes give no finite step time")
    seconds = measured_seconds(run, setup)
    try:
        check_possible(written, setup, seconds)
    except MissingCell as contradiction:
        return Replay(run, str(contradiction), setup, seconds, predicted_seconds=timed[0])
    measured = believed_peak(run, setup)
    predicted = None if peak is None else peak * math.exp(peak_correction_of(setup, published).logarithm)
    odd_time = beyond(time_cell(run), seconds / timed[0]) if seconds else ""
    said = (assumed_of(run, setup), told_evaluation(run, setup),
            idle_degrees(run, setup.model, setup.layout.pp), overruled(run, setup),
            small_share(run, setup), assumed_unit(run, setup.accelerator.capacity), too_large(setup, peak or 0.0),
            odd_time)  # fmt: skip
    told = "; ".join(words for words in said if words)
    return Replay(run, "", setup, seconds, measured, predicted, peak, *timed, told)


def assumed_of(run: Run, setup: Setup, software: bool = True) -> str:
    """What a replay takes for granted that no cell says; nothing where the cells say it all. Without ``software``, what
    it takes for granted of the job alone, not how cells were spelt and whose profile stands for what ran it."""
    told = (
        *(_spelt(run, setup) if software else ()),
        dropped(run.cells), assumed_gpus(run), assumed_part(run), assumed_node(run), assumed_model(run),
        assumed_attention(run), assumed_sequence(run, setup),
        assumed_kernel(run, setup.framework),
        assumed_recompute(run, setup.framework), assumed_offload(run, bool(setup.drives)),
        assumed_kind(run, bool(setup.job.dora)),
        assumed_rank(run, setup.framework.usual_tuning),
        assumed_choice(run, setup.framework)
        or assumed_layout(run, setup.layout, setup.framework)
        or assumed_degrees(scripted(run, setup.framework, setup.model), setup.layout, setup.framework),
        assumed_experts(run, setup),
        assumed_stage(run, setup.framework),
        assumed_sharding(run, setup.layout.zero, setup.layout.zero_group, setup.layout.dp * setup.layout.cp),
        assumed_zeropp(run, setup), assumed_context(run, setup.layout.cp, setup.layout.cp_mode),
        assumed_batch(run, setup), assumed_to_fit(run, setup), assumed_loss(setup),
        assumed_weights(setup), assumed_reductions(run, setup),
    )  # fmt: skip
    return "; ".join(words for words in told if words)


def _spelt(run: Run, setup: Setup) -> tuple[str, ...]:
    """How cells were spelt, and what stands for software and an optimizer that nothing describes."""
    return (
        suffixes_read(run.cells), assumed_chip(run), assumed_software(run, setup),
        assumed_optimizer(run, setup.optimizer.name), assumed_counts(run, setup),
    )  # fmt: skip


def _timed(setup: Setup, run: Run, published: Publication) -> tuple[float, dict[str, float]]:
    """Predicted step time and its interval; a shipped run is predicted as if it had not been measured."""
    from distsim.engine.step import timed

    if layer_alone(run):
        predicted, interval = timed_layer(run, setup, published)
    else:
        setup = as_timed(run, setup)
        predicted, interval = (timed_passes if without_update(run) else timed)(setup, published)
    return predicted, {"low": interval.low, "high": interval.high}


def as_timed(run: Run, setup: Setup) -> Setup:
    """A setup whose samples are as long as those that a run's step waits for, where these are longer than the mean."""
    tokens = slowest_tokens(run, int(setup.layout.micro_batch), int(setup.layout.dp))
    return replace(setup, layout=setup.layout.with_(seq=tokens)) if tokens else setup


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that more than ``share`` of the values do not exceed, or the largest: the tenth of ten for
    0.9. All that is said of runs has this one, whoever holds predictions against them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
