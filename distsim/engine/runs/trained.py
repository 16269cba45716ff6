"""How a measured run trained where its cells leave it open: precision, optimizer, recomputation, unpacking."""

from __future__ import annotations

from dataclasses import replace

from distsim import catalog
from distsim.engine.jobs.offloading import in_fp32
from distsim.engine.jobs.profile import BY_DEFAULT
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.precision import AUTOCAST, recipe_named
from distsim.engine.runs.years import TODAY, before_torch_2, run_year
from distsim.interop.runs import Run, precision_notes, software_notes
from distsim.interop.runs.offloads import offloaded
from distsim.interop.runs.optimizers import fuses_update, loops_over_tensors, told_clipping
from distsim.interop.runs.own_modules import writes_update
from distsim.interop.runs.sharding import by_torch
from distsim.interop.runs.training import fine_tunes
from distsim.specs.framework import Framework

STATE_BYTES = 2
"""Of an element of states in bf16."""


def trained_whole(run: Run, setup: Setup) -> Setup:
    """The setup with the optimizer of scripts that fine-tune without DeepSpeed, and with their precision where
    everything trains in bf16, which is another where torch shards it."""
    sharded = bool(setup.layout.zero)
    scripted = software_notes.on_deepspeed(run) or (sharded and not by_torch(run))
    usual = setup.framework.usual_whole
    if not usual or not fine_tunes(run) or scripted:
        return setup
    precision, optimizer = usual.get("precision_sharded" if sharded else "precision"), usual.get("optimizer")
    if setup.tuning is not None or (recipe_named(run, setup.framework)[0] or "bf16") != "bf16":
        precision = None
    elif not sharded and precision_notes.weighs_32_bits(run):
        precision = AUTOCAST
    named = run.text("optimizer")
    newer = run_year(run) >= float(usual.get("optimizer_until", TODAY)) + 1 and (sharded or not named)
    if newer or (named and setup.optimizer.name != "adamw") or fuses_update(run):
        optimizer = None
    return replace(
        setup,
        precision=catalog.load("precisions", precision) if precision else setup.precision,
        optimizer=catalog.load("optimizers", optimizer) if optimizer else setup.optimizer,
    )


def with_states(run: Run, setup: Setup) -> Setup:
    """The setup with states of its optimizer in 16 bits, where notes say so and its recipe has wider ones."""
    own, wide = setup.optimizer, setup.precision.state_bytes > STATE_BYTES
    if not wide or in_fp32(setup.framework, setup.offload) or not precision_notes.keeps_16_bit_states(run):
        return setup
    states = tuple(
        one.model_copy(update={"bytes_per_element": STATE_BYTES})
        if one.bytes_per_element is None and one.shape == "full" else one for one in own.states
    )  # fmt: skip
    return replace(setup, optimizer=own.model_copy(update={"states": states}))


def updated_by(run: Run, framework: Framework, named: str | None) -> str | None:
    """The optimizer that a row names, or none, as torch made it then where that is left to torch (by a framework, or in
    a loop of one's own around transformers' models): its author's own or fused where the row says so, one tensor after
    the other before release 2.0 of March 2023 made foreach the default."""
    name, own = named or "adamw", framework.optimizers.get(named or "adamw", "")
    if framework.usual.get("trainer_or_loop") and software_notes.own_loop(run) and name in ("adam", "adamw"):
        own = f"{name}{BY_DEFAULT}"
    if not own.endswith(BY_DEFAULT) or "optimizer" in (offloaded(run) or ""):
        return named
    if name == "adamw" and writes_update(run):
        return "adamw-written"
    if fuses_update(run):
        return f"{name}-fused"
    return f"{name}-forloop" if before_torch_2(run) or loops_over_tensors(run) else own


def clips(run: Run) -> bool | None:
    """Whether gradients are clipped, where notes say so; a loop of one's own does not do by itself what trainers do."""
    told = told_clipping(run)
    return False if told is None and software_notes.own_loop(run) else told


def checkpointed(run: Run, setup: Setup) -> Setup:
    """The setup recomputing every layer, as the framework's trainers that fine-tune everything do, where the row does
    not say."""
    usual = setup.framework.usual_whole.get("recompute") == "full" and setup.tuning is None
    if not usual or not fine_tunes(run) or run.text("recompute") is not None or software_notes.own_loop(run):
        return setup
    return replace(setup, recompute="full", layout=setup.layout.with_(recompute_layers=-1, selective=0))


def unpacked_then(run: Run, setup: Setup) -> Setup:
    """The setup with the kernel that unpacked quantised weights in the year of the run."""
    tuning = setup.tuning
    packed = tuning.quantization if tuning is not None else None
    if tuning is None or packed is None or run_year(run) > packed.older_until:
        return setup
    packed = packed.model_copy(update={"unpack_flops": packed.older_unpack_flops})
    return replace(setup, tuning=tuning._replace(quantization=packed))
