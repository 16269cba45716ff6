"""Peak memory of a measured run, in the way in which its source counts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distsim import catalog
from distsim.engine.corrections.correction import correction_of
from distsim.engine.corrections.documents import published_as
from distsim.engine.footprint.moment import AT_LOSS
from distsim.engine.jobs.placement import by_compute
from distsim.engine.jobs.profile import with_kernels
from distsim.engine.jobs.resolve import Setup
from distsim.engine.memory import StageMemory, memory_of
from distsim.engine.runs.losses import loss_of
from distsim.engine.runs.years import before_torch_2, in_force, recipe_year
from distsim.interop.runs import Run
from distsim.interop.runs.peak_notes import (
    clears_late,
    composes_asked_flash,
    counter_told,
    pages_states,
    rank_told,
    reads_narrow_gradients,
    steps_in_backward,
    summed_by_source,
)
from distsim.interop.runs.sample_lengths import lengths_of
from distsim.interop.runs.software_notes import deterministic, on_deepspeed, qlora_on_deepspeed
from distsim.interop.runs.training import fine_tunes, without_update
from distsim.layers.head import head
from distsim.specs.timing import CHECKED, PLAIN, STATE_NAMES

HIDDEN = 0.18
"""Share of a step that a host's checks may add and still be called hidden, since near balance both show
(formulas/step.py): of nanotron's runs those up to 0.17 hold exchanges, those from 0.28 on do not
(docs/findings/nanotron.md)."""
DETERMINISTIC_WORKSPACE_BYTES = 71.3e6
"""Workspaces before Hopper of runs with CUBLAS_WORKSPACE_CONFIG=:4096:8, as deterministic ones have it: 32 MiB for each
of two handles of cuBLAS, which newer chips have anyway, and 4 MiB of Transformer Engine."""
LOADED_WHOLE_UNTIL, LOADED_WHOLE_BYTES = 2024.0, 1.0e9
"""Software before this year has all kernels of its libraries in a larger context: 1.5 GB on an A100, of which the chip
takes 0.5, as nvidia-smi showed in 52 runs of BLOOM's layout scan (presets/frameworks/megatron-deepspeed.toml)."""
QLORA_BUCKETS_BYTES = 2 * 2e8 * 2
"""Two buckets of QwenLM/Qwen's ds_config_zero2.json, which overlap_comm and contiguous_gradients make on one GPU as
well."""


def peak_of_run(run: Run, setup: Setup, year: float) -> float:
    """Predicted peak in bytes of the rank that the framework reports, for the longest sample."""
    lengths = None if run.count("seq_len") else lengths_of(run)
    longest = setup.layout.with_(seq=lengths.longest) if lengths else setup.layout
    counts = counts_of(run, setup)
    held = held_by(run, _as_counted(run, replace(setup, layout=longest), counts), year)
    rank = rank_told(run) or setup.framework.memory_rank
    summed, ends = summed_by_source(run), {"first": 0, "last": setup.layout.pp - 1}
    report = memory_of(held, None if summed or rank not in ends else (ends[rank],))
    if summed:
        return max(_states_and_activations(stage) for stage in report.stages)
    peak = float(report.worst.counted(counts))
    if lengths and lengths.each and counts != "allocated":
        last = memory_of(held, (ends["last"],)).worst
        return max(peak, _with_kept_samples(setup, last, lengths.each, counts))
    return peak


def _as_counted(run: Run, setup: Setup, counts: str) -> Setup:
    """The setup without states that a paged optimizer keeps in unified memory, where torch's allocator counts; without
    any, and master copies, where there is no update."""
    stateless = replace(setup, optimizer=setup.optimizer.model_copy(update={"states": ()}))
    if without_update(run):
        return replace(stateless, precision=setup.precision.model_copy(update={"master_bytes": 0}))
    return setup if counts == "device" or not pages_states(run) else stateless


def _with_kept_samples(setup: Setup, last: StageMemory, mean: int, counts: str) -> float:
    """The last stage's peak at the loss with what the allocator's cache keeps of logits of other lengths; it gives them
    back before it fails."""
    loss = head(setup.context()._replace(layout=setup.layout.with_(seq=mean)))[-1]
    kept = sum(tensor.size_bytes for tensor in (*loss.saved, *loss.transient_forward))
    during = max(moment.total for moment in last.moments if moment.name in AT_LOSS)
    highest = next(moment.total for moment in last.moments if moment.name == last.peak_moment)
    grown = float(last.counted(counts) - highest + during + kept * setup.framework.overhead.kept_samples)
    return min(grown, setup.accelerator.capacity)


def _states_and_activations(stage: StageMemory) -> float:
    kinds = ("parameters", "gradients", "optimizer", "activations")
    return float(sum(stage.categories[kind] for kind in kinds))


def counts_of(run: Run, setup: Setup) -> str:
    """What the run's figure counts: as its row says, else its notes, else as its framework prints it."""
    return counter_told(run) or setup.framework.memory_counts


def held_by(run: Run, setup: Setup, year: float) -> Setup:
    """The setup with what the run held in memory by its year, its notes, and the state of software (specs/timing.py)
    that all other runs give this one. Step times do not see these."""
    setup = _beside(run, setup, year)
    framework = setup.framework
    kernels: dict[str, Any] = {}
    if setup.compiled:
        kernels |= in_force(framework.until, recipe_year(run))
    if framework.states:
        state = correction_of(setup, published_as(run, year)).state
        own = dict(framework.states.get(STATE_NAMES[state], {}))
        if state == CHECKED and host_ahead(setup, state):
            own.pop("host_ahead", None)
        if not own.pop("closes_ties", True) and setup.layout.pp > 1:
            setup = replace(setup, chunk_layers=by_compute(setup.model, setup.layout.pp, closes_ties=False))
        kernels |= own
    kernels |= loss_of(run, setup)
    if composes_asked_flash(run):
        setup = replace(setup, layout=setup.layout.with_(attention="eager"))
    if kernels:
        where = f"framework {framework.name}, states and until"
        setup = replace(setup, kernels=with_kernels(setup.kernels, kernels, where))
    told = framework.usual_whole and fine_tunes(run) and run.number("zero_stage") is None
    return _scripted(setup) if told and on_deepspeed(run) else setup


def host_ahead(setup: Setup, state: int) -> bool:
    """Whether the host is ahead of the GPU in spite of what it checks: its checks then hide behind the GPU's work."""
    from distsim.engine.steps.breakdown import breakdown_of, timing_of
    from distsim.engine.steps.work import work_of

    work, timing = work_of(setup), timing_of(setup)
    seconds, plain = (sum(breakdown_of(work, timing, one).values()) for one in (state, PLAIN))
    return seconds < plain * (1 + HIDDEN)


def _beside(run: Run, setup: Setup, year: float) -> Setup:
    """The setup with the workspaces, buckets and context that its notes and year tell of."""
    framework = setup.framework
    buffers: dict[str, Any] = {}
    if deterministic(run) and framework.buffers.older_workspace_bytes is not None:
        buffers["older_workspace_bytes"] = DETERMINISTIC_WORKSPACE_BYTES
    if qlora_on_deepspeed(run):
        buffers["workspace_bytes"] = framework.buffers.workspace_bytes + QLORA_BUCKETS_BYTES
    context = LOADED_WHOLE_BYTES if year < LOADED_WHOLE_UNTIL else 0.0
    if steps_in_backward(run):
        buffers["steps_in_backward"] = True
    # zero_grad filled gradients with zeros before torch 2.0; Lightning's Trainer calls it behind the next forward pass
    if before_torch_2(run) or clears_late(run):
        buffers["gradients_grow"] = False
    if reads_narrow_gradients(run):
        buffers["shard_gradients"] = False
    overhead = {"context_bytes": max(framework.overhead.context_bytes, context)}
    update = {
        "buffers": framework.buffers.model_copy(update=buffers),
        "overhead": framework.overhead.model_copy(update=overhead),
    }
    return replace(setup, framework=framework.model_copy(update=update))


def _scripted(setup: Setup) -> Setup:
    """The setup as a script that fine-tunes with DeepSpeed has it: its step's copies in fp32 are as large as the root
    that torch's foreach optimizer makes."""
    optimizer = setup.framework.usual_whole.get("optimizer", setup.optimizer.name)
    return replace(setup, optimizer=catalog.load("optimizers", optimizer))
