"""A measured run as a setup: the job that its cells, its notes and its framework's habits tell of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from distsim.engine.jobs.profile import least_zero
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.tiling import has_dense_mlp
from distsim.engine.memory import memory_of
from distsim.engine.runs.adapters import counted_targets, decomposed, unasked_recompute, undropped
from distsim.engine.runs.attention import attention_of
from distsim.engine.runs.card_memory import of_other_size
from distsim.engine.runs.cluster import cluster_of
from distsim.engine.runs.contradictions import too_large
from distsim.engine.runs.degrees import first_that_fits, open_degrees
from distsim.engine.runs.evaluation import evaluating
from distsim.engine.runs.kernels import exchanging_as_recipes, recomputing_as_recipes, with_kernels_of
from distsim.engine.runs.layout import (
    batches_to_try,
    capacity_options,
    cut_experts,
    drop_idle,
    fit_context,
    fit_degrees,
    interleaves,
    possible_degrees,
    usual_chunks,
)
from distsim.engine.runs.odd_batches import refuse_odd_batch
from distsim.engine.runs.offload import offload_of, partly_offloaded, to_drives
from distsim.engine.runs.precision import precision_of
from distsim.engine.runs.profile import assumed_profile, framework_of, usual_of
from distsim.engine.runs.published_layouts import with_chosen_layout
from distsim.engine.runs.recompute_to_fit import as_it_ran, fitting, recomputes_until_fits
from distsim.engine.runs.reductions_to_fit import EACH_MICRO_BATCH, whole_gradients_too_large
from distsim.engine.runs.scripts import scripted, unsaid_micro_batch, usual_length
from distsim.engine.runs.software import compiled_zero, recomputation_of, sharding_group
from distsim.engine.runs.trained import checkpointed, clips, trained_whole, unpacked_then, updated_by, with_states
from distsim.engine.runs.weights_to_fit import as_taken, with_narrow_weights
from distsim.engine.runs.years import run_year
from distsim.engine.runs.zero_stage import stage_under
from distsim.engine.runs.zeropp import compressed
from distsim.interop.runs import MissingCell, Run, gpu_notes, loss_notes, pipeline_notes, sample_lengths, software_notes
from distsim.interop.runs.blanks import filled
from distsim.interop.runs.chips import with_chip
from distsim.interop.runs.image_notes import image_options
from distsim.interop.runs.models import model_of
from distsim.interop.runs.offloads import modules_offloaded
from distsim.interop.runs.optimizers import optimizer_named, update_options
from distsim.interop.runs.pipeline_notes import placed_by_notes
from distsim.interop.runs.predicting_layers import layers_predicting
from distsim.interop.runs.sample_lengths import lengths_of, packed_options, target_options, unpadded_tokens
from distsim.interop.runs.sharding import reduces_once
from distsim.interop.runs.tile_notes import mlp_tiles
from distsim.interop.runs.training import kind_of
from distsim.interop.runs.tuning import spread_options, tuning_options
from distsim.schedules.registry import find
from distsim.specs.cluster import Cluster
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.layout import SHARDS_ALL
from distsim.specs.model import Model

TOLD_OF_SETUP: tuple[Callable[[Run, Setup], Setup], ...] = (
    of_other_size, exchanging_as_recipes, with_kernels_of, trained_whole, with_states, checkpointed,
    recomputing_as_recipes, unpacked_then, partly_offloaded, to_drives, compressed,
)  # fmt: skip
"""What a row tells of a setup that no option of a job holds, in this order: each builds on those before it."""


def setup_of(run: Run, more: Mapping[str, Any] | None = None) -> Setup:
    """The row as a setup, with ``more`` options than its columns hold; blank cells take the framework's usual setting.
    Of layouts that a row leaves open, the first that fits. Raises MissingCell or DistsimError."""
    run = filled(with_chip(run))
    setup = as_it_ran(run, _laid_out(run, more))
    if whole_gradients_too_large(setup):
        each = {**(more or {}), **EACH_MICRO_BATCH}
        reduced = as_it_ran(run, _laid_out(run, each))
        setup, more = (setup, more) if too_large(reduced, memory_of(reduced).peak) else (reduced, each)
    if (narrow := with_narrow_weights(run, setup)) is not None:
        held = as_taken(as_it_ran(narrow, _laid_out(narrow, more)))
        setup = held if memory_of(held).fits else setup
    return evaluating(run, setup)


def _laid_out(run: Run, more: Mapping[str, Any] | None) -> Setup:
    """The setup in the layout that the row states, or in the first that fits of those that it leaves open."""
    framework = framework_of(run)
    run = with_chosen_layout(run, framework)
    *others, last = possible_degrees(run, framework)
    ways = [] if last or others else open_degrees(run, framework)
    if last or others or ways:
        refuse_odd_batch(run, partial(_setup_of, run, more))
    for row, degrees in (
        *((row, last) for row in batches_to_try(run, framework)),
        *((run, degrees) for degrees in others),
    ):
        setup = _setup_of(row, more, degrees)
        if memory_of(setup).fits:
            return setup
    return first_that_fits(ways, partial(_setup_of, run, more)) if ways else _setup_of(run, more, last)


def _setup_of(run: Run, more: Mapping[str, Any] | None, degrees: dict[str, int]) -> Setup:
    """The row as a setup, with ``degrees`` that it does not tell."""
    framework = framework_of(run)
    model = model_of(run)
    run = scripted(run, framework, model)
    tuned = _tuned(run, framework, model)
    again = recomputation_of(run, framework, model.layers // (run.count("pp") or degrees.get("pp", 1))).options
    options = _options(run, framework, model, {**tuned, **again}, more or {})
    fit_degrees(options, run, degrees, framework)
    options |= _expert_degrees(options, run, framework)
    drop_idle(options, model)
    fit_context(options, run, framework, model)
    if model.experts is not None:
        options |= {name: factor for name, factor in capacity_options(run, framework, options).items() if factor}
    cluster = cluster_of(run)
    _settle_shards(options, run, framework, cluster)
    _settle_layers(options, run, framework, model)
    job = Job.read({**options, "model": model, "framework": framework.name})
    setup = resolve(job, {"cluster": cluster, "framework": framework}, replayed=True)
    for told in TOLD_OF_SETUP:
        setup = told(run, setup)
    return fitting(setup) if not again and recomputes_until_fits(setup) else setup


def _tuned(run: Run, framework: Framework, model: Model) -> dict[str, Any]:
    """Job options of what fine-tunes, and of samples and of layers that lie one after another on the GPUs."""
    tuned = tuning_options(run, framework.usual_tuning) | spread_options(run)
    tuned |= packed_options(run, framework.usual_samples) | target_options(run, bool(model.encoder_layers))
    tuned |= counted_targets(run, model, tuned) | unasked_recompute(run, framework, tuned)
    return tuned | decomposed(run, framework, model, tuned)


def _options(
    run: Run, framework: Framework, model: Model, tuned: Mapping[str, Any], more: Mapping[str, Any]
) -> dict[str, Any]:
    """Job options as the row and the habits of its framework tell them, of which degrees and batch may still lack;
    those ``tuned`` stand before what is usual, what the row states before them, and ``more`` before all."""
    lengths = lengths_of(run)
    tokens = unpadded_tokens(run, model.causal) or (lengths.mean if lengths and not run.count("seq_len") else None)
    more = {**({"seq": tokens} if tokens else {}), **more}
    stated = _stated(run, framework, more.get("seq"), model)
    options = {**usual_of(run, framework, model.causal), **tuned, **stated, **more}
    options |= image_options(run, model, "lora_rank" in options)
    options |= undropped(run, framework, model, options)
    options = {name: value for name, value in options.items() if name in Job.model_fields and value is not None}
    options["precision"] = precision_of(run, framework, options.get("precision", "bf16"))
    options.setdefault("micro_batch", unsaid_micro_batch(run, framework))
    if options.get("attention") == "eager":  # composed, it makes the scores of whole packs and masks them
        options.pop("sample_tokens", None)
    return options


def _expert_degrees(options: dict[str, Any], run: Run, framework: Framework) -> dict[str, Any]:
    """Degrees of experts in software that cuts them like the rest of a layer unless told: what launchers around it
    state is 1."""
    alike = framework.usual.get("experts_like_tp")
    own = alike and not assumed_profile(run)
    if own or run_year(run) < framework.usual.get("experts_like_tp_until", 0) + 1:
        return cut_experts(options)
    return {"etp": 1} if alike and "etp" not in options else {}


def _settle_shards(options: dict[str, Any], run: Run, framework: Framework, cluster: Cluster | None) -> None:
    """Fill what the row leaves open of what is sharded, over how many ranks; drop what then has no effect."""
    if cluster is not None and "zero_group" not in options:
        tp = options.get("tp") or 1
        node, domain = (max(size // tp, 1) for size in (cluster.gpus_per_node, cluster.domain))
        options["zero_group"] = sharding_group(run, options["dp"], domain, node)
        if framework.usual.get("shards_in_node") and node < options["dp"] and options["dp"] % node == 0:
            options["zero_group"] = options["zero_group"] or node
    if (options.get("pp") or 1) > 1 and options.get("zero") == SHARDS_ALL:
        options["zero"] = framework.usual.get("pipelined_zero", SHARDS_ALL)
    least = least_zero(framework, options["precision"], options.get("pp") or 1, run_year(run))
    if least := max(least, compiled_zero(run, framework)):
        options["zero"] = max(options.get("zero") or 0, least)
    zero = options.get("zero") or 0
    if options.get("no_sync") and zero > framework.supports.no_sync_zero:
        options.pop("no_sync")  # what the row's software cannot do, its words do not mean
    if not zero:
        options.pop("zero_group", None)


def _settle_layers(options: dict[str, Any], run: Run, framework: Framework, model: Model) -> None:
    """Fill what the row leaves open of chunks, layers that predict further tokens, tiles and placement; drop what has
    no effect without full recomputation. Raises MissingCell for chunks that the software has not."""
    _refuse_chunks(options, run, framework)
    if interleaves(run, framework):
        options["vpp"] = usual_chunks(options, model)
    if options.get("recompute") != "full":
        options.pop("recompute_layers", None)
        options.pop("recompute_group", None)
    if "lora_rank" not in options:  # adapters beside either are not described
        own = model.mtp_layers if framework.usual.get("trains_mtp") else 0
        tiles = mlp_tiles(run) if framework.supports.tiles_mlp and has_dense_mlp(model) else None
        told = {"mtp": layers_predicting(run, own), "mlp_tiles": tiles}
        options |= {name: value for name, value in told.items() if value}
    options |= placed_by_notes(run, options.get("pp") or 1, model.layers)


def _refuse_chunks(options: dict[str, Any], run: Run, framework: Framework) -> None:
    """Raise MissingCell for chunks of software that is known to have one on each stage."""
    schedules, chunks = framework.supports.schedules, options.get("vpp") or 1
    if chunks == 1 or not schedules or assumed_profile(run):
        return
    if all(find(name).most == 1 for name in schedules):
        raise MissingCell(f"vpp {chunks}: {framework.name} has no schedule that interleaves chunks")


def _stated(run: Run, framework: Framework, seq: int | None, model: Model) -> dict[str, Any]:
    """What the row says, as job options; ``seq`` where its notes tell lengths that its cell does not."""
    gpus = run.need("n_gpus")
    if run.text("gpu") is None:
        raise MissingCell("gpu is blank")
    seq = run.count("seq_len") or seq or usual_length(run, framework) or run.need("seq_len")
    sample_lengths.check_lengths(run)
    options: dict[str, Any] = {
        "gpu": gpu_notes.gpu_of(run), "gpus": gpus, "seq": seq, "micro_batch": run.count("micro_batch"),
        "global_batch": run.count("global_batch"), "zero": stage_under(run, framework),
        "sequence_parallel": run.flag("sequence_parallel"),
    }  # fmt: skip
    options["gpu_power"] = gpu_notes.power_of(run)
    if framework.compiled and (software_notes.compiled(run) or run.flag("compile") is False):
        options["compile"] = software_notes.compiled(run)
    options.update({name: run.count(name) for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")})
    if attention := attention_of(run, framework, model.causal, model.positions == "relative"):
        options["attention"] = attention
    options.update(pipeline_notes.pipeline_options(run))
    options["loss"] = loss_notes.loss_of(run, framework.supports.losses)
    named = optimizer_named(run.text("optimizer"))
    options["offload"], options["no_sync"] = offload_of(run, framework), reduces_once(run)
    options["offload_modules"] = modules_offloaded(run)
    options["optimizer"] = updated_by(run, framework, framework.usual.get(f"optimizer_{named}", named))
    options["clip"] = clips(run)
    options |= update_options(run, kind_of(run))
    return {name: value for name, value in options.items() if value is not None}
