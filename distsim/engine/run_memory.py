"""Peak memory of a measured run, in the way in which its source counts it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from distsim import catalog
from distsim.engine.likeness import correction_of
from distsim.engine.memory import StageMemory, memory_of
from distsim.engine.profile import with_kernels
from distsim.engine.resolve import Setup
from distsim.interop.run_notes import ON_DEEPSPEED
from distsim.interop.run_tuning import lengths_of
from distsim.interop.runs import Run
from distsim.specs.timing import STATE_NAMES

CHUNKS = 8
"""Of a chunked cross entropy: torchtune and torchtitan (num_output_chunks, num_chunks)."""
STEPWISE = "sequential technique:"
"""Notes of torchtune's README, which adds one technique after another; a chunked loss follows the first three."""
CHUNKED = re.compile(rf"{STEPWISE} \+ (?!packed|compile)|(?<!{STEPWISE} \+ )chunked cross entropy")
FUSED = "liger kernel"
"""Notes of a loss whose logits live a chunk at a time (linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py)."""
COMPILED, COMPILED_TRANSIT_BYTES = re.compile(r"cross-entropy-loss-fusion=true(?!.*fusion-impl=te)"), 6.0
"""Megatron-LM's flag for a loss that torch compiles, and what it has in transit per logit: one in bf16, one in fp32
(NVIDIA/Megatron-LM core/fusions/fused_cross_entropy.py, on in-place semantics under torch.compile)."""
OWN_SUM = "params+grads+optimizer + activations"
"""What a source adds up itself."""


def peak_of_run(run: Run, setup: Setup, year: float) -> float:
    """Predicted peak in bytes of the rank that the framework reports, for the longest sample."""
    lengths = None if run.count("seq_len") else lengths_of(run)
    longest = setup.layout.with_(seq=lengths.longest) if lengths else setup.layout
    report = memory_of(held_by(run, replace(setup, layout=longest), year))
    if OWN_SUM in (run.text("mem_kind") or ""):
        return max(_states_and_activations(stage) for stage in report.stages)
    ranks = {"first": report.stages[0], "last": report.stages[-1], "largest": report.worst}
    return float(ranks[setup.framework.memory_rank].counted(counts_of(run, setup)))


def _states_and_activations(stage: StageMemory) -> float:
    kinds = ("parameters", "gradients", "optimizer", "activations")
    return float(sum(stage.categories[kind] for kind in kinds))


def counts_of(run: Run, setup: Setup) -> str:
    """What the run's figure counts: as its row says, else as its framework prints it."""
    kind = (run.text("mem_kind") or "").lower()
    return next((word for word in ("allocated", "reserved") if word in kind), setup.framework.memory_counts)


def held_by(run: Run, setup: Setup, year: float) -> Setup:
    """The setup with what the run held in memory by its year, its notes, and the state of software (specs/timing.py)
    that all other runs give this one. Step times do not see these."""
    framework = setup.framework
    kernels: dict[str, Any] = {}
    if setup.job.compile:
        kernels |= next((own for last, own in framework.until.items() if year < last + 1), {})
    if framework.states:
        kernels |= framework.states.get(STATE_NAMES[correction_of(setup, run.id, year, run.source).state], {})
    kernels |= _loss_of(run, setup)
    if kernels:
        where = f"framework {framework.name}, states and until"
        setup = replace(setup, kernels=with_kernels(setup.kernels, kernels, where))
    return setup


def _loss_of(run: Run, setup: Setup) -> dict[str, Any]:
    """Kernels of a loss in chunks or of one that is compiled, where the notes tell of it."""
    notes = (run.text("notes") or "").lower()
    tokens = setup.layout.micro_batch * setup.layout.seq // setup.layout.cp
    if FUSED in notes:  # as many chunks as words per hidden width, so that their logits are as large as the input
        return {"loss_chunk_tokens": -(-tokens * setup.model.hidden // setup.model.vocab)}
    if COMPILED.search(notes):
        return {"loss_transit_bytes": COMPILED_TRANSIT_BYTES}
    recipe = setup.framework.usual_loss_chunks and run.text("finetune_kind") and STEPWISE not in notes
    if recipe or CHUNKED.search(notes):
        return {"loss_chunk_tokens": -(-tokens // CHUNKS), "loss_keeps_chunks": True}
    return {}


def trained_whole(run: Run, setup: Setup) -> Setup:
    """The setup in the precision and with the optimizer of scripts that fine-tune everything without DeepSpeed."""
    scripted = ON_DEEPSPEED in (run.text("notes") or "").lower()
    if run.text("finetune_kind") != "full" or setup.layout.zero or scripted:
        return setup
    usual = setup.framework.usual_whole
    if not usual:
        return setup
    precision, optimizer = usual.get("precision"), usual.get("optimizer")
    if run.text("optimizer") and setup.optimizer.name != "adamw":
        optimizer = None
    return replace(
        setup,
        precision=catalog.load("precisions", precision) if precision else setup.precision,
        optimizer=catalog.load("optimizers", optimizer) if optimizer else setup.optimizer,
    )
