"""The layout of a measured run: what its cells leave open and its batch closes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distsim import catalog
from distsim.engine.runs.odd_batches import Undivided, odd_batch
from distsim.engine.runs.years import micro_batches_per_stage
from distsim.formulas.compute import BUSIEST_RANK
from distsim.interop.runs import MissingCell, Run, expert_routing, software_notes
from distsim.interop.runs.context import context_mode
from distsim.interop.runs.models import model_of
from distsim.interop.runs.recipes import of_library
from distsim.interop.runs.release import stated_year
from distsim.interop.runs.training import fine_tunes
from distsim.specs.context_modes import RING, context_modes
from distsim.specs.framework import Framework
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.rules import divisors, trades_heads

WIDEST = 8
"""GPUs that a tensor parallel group is taken to have at most where only the size of a replica is known."""
LARGEST = 16
"""The largest micro-batch that tables of Megatron-LM name (those of 2021, with full recomputation)."""
TABLES = ("NVIDIA/Megatron-LM images/", "Megatron-LM README")
"""Sources of tables that were tuned: micro-batches as large as fit where nothing is pipelined (so those of April 2021,
which name them), and since 2024 interleaved pipelines (their README: transfers between stages overlap, which only
interleaved schedules do)."""
INTERLEAVED_SINCE = 2024
"""The year of that README."""
FULL_PIPELINE = 4
"""Micro-batches for a stage of a pipeline that is taken to be full."""
SHARDED = 2
"""ZeRO stage from which sharding, not pipelining, makes room for a model."""
LABEL = 1
"""The token past a sample's inputs, its last label."""
ENDS = 2
"""Embedding and loss, where a pipeline counts them as layers (account_for_embedding_in_pipeline_split and _loss_)."""
ENDS_CHUNK = 2
"""Layers of a chunk of such pipelines: Llama 3.1 405B's 126 on eight stages have eight chunks each
(INTERLEAVED_PIPELINE=8 with ASYM_PP_EMBED and ASYM_PP_LOSS in mlcommons/training_results_v5.1 and v6.0, NVIDIA
llama31_405b config_GB200_640x4x24xtp4pp8cp2_cg_fp4.sh; Megatron-Bridge's recipes alike)."""


def usual_chunks(options: dict[str, Any], model: Model) -> int | None:
    """A model chunk per layer, as recipes of deep pipelines have it, where layers and micro-batches divide; two layers
    to a chunk where those of a dense model divide only with embedding and loss counted as one each. None of hybrids,
    whose chunks Megatron asks to be marked in the pattern of layers."""
    stages, layers = options.get("pp") or 1, model.layers
    micro = options["global_batch"] // (options["micro_batch"] * options["dp"])
    if stages == 1 or micro % stages or model.pattern:
        return None
    if layers % stages == 0:
        return layers // stages
    slots = layers + ENDS
    whole = model.experts is None and slots % (ENDS_CHUNK * stages) == 0
    return slots // (ENDS_CHUNK * stages) if whole else None


def _tuned_table(run: Run) -> bool:
    return (run.text("source") or "").startswith(TABLES)


def interleaves(run: Run, framework: Framework) -> bool:
    """Whether a blank ``vpp`` means a chunk per layer, as tables of whom it is usual have it, not a library's recipes
    (virtual_pipeline_model_parallel_size = None)."""
    since = (stated_year(run) or 0) >= INTERLEAVED_SINCE
    usual = framework.usual.get("interleave") and not of_library(run)
    return run.count("vpp") is None and bool(usual or (since and _tuned_table(run)))


def batches_to_try(run: Run, framework: Framework) -> list[Run]:
    """The row with the micro-batches that it may have had, the largest first; nothing where cells tell it. Tuned tables
    had powers of two; software that accumulates only when told to, and whoever trains on images, has a rank's whole
    batch at once where it fits."""
    whole, tp, pp, cp = (run.count(name) for name in ("global_batch", "tp", "pp", "cp"))
    said = run.count("micro_batch") or run.count("grad_accum")
    if said or not whole:
        return []
    replica, left = divmod(whole * (tp or 1) * (pp or 1) * (cp or 1), run.count("n_gpus") or 1)
    replica = 1 if left else replica  # none divides it, and none is to be blamed that no cell has
    cut = "micro_batches_per_stage" in framework.usual and (pp or 1) > 1  # a pipeline cuts what a rank is given
    if (framework.usual.get("whole_batch") and not cut) or model_of(run).patches is not None:
        sizes = list(reversed(divisors(max(replica, 1))))
    elif tp and pp == 1 and _tuned_table(run):
        sizes = [2**n for n in range(LARGEST.bit_length() - 1, -1, -1) if replica % 2**n == 0]
    else:
        return []
    return [replace(run, cells={**run.cells, "micro_batch": str(size)}) for size in sizes]


def trains_whole(framework: Framework) -> bool:
    """Whether models train whole where nobody says that they are split: every GPU has a replica, or shards."""
    return bool(framework.usual.get("trains_whole"))


def unstated(run: Run, framework: Framework) -> list[str]:
    """Degrees that are blank where nothing else says how a model lies on GPUs: neither dp nor what is sharded."""
    sharded = run.text("fsdp_kind") or software_notes.zero_stage(run) is not None or "zero" in framework.usual
    return [] if sharded or run.count("dp") else [name for name in ("tp", "pp") if run.count(name) is None]


def cut_experts(options: dict[str, Any]) -> dict[str, Any]:
    """Experts cut like the rest, where nobody says how and there are ranks enough for that."""
    tp, ep = (options.get(name) or 1 for name in ("tp", "ep"))
    if "etp" in options:
        return {}
    each = options["gpus"] // (options.get("pp") or 1)
    return {"etp": 1 if each % (tp * ep) else options.get("tp")}


def fit_degrees(options: dict[str, Any], run: Run, degrees: dict[str, int], framework: Framework) -> None:
    """Close the arithmetic of degrees and batches: dp from the GPUs, the batch from its parts, the micro-batch as 1, or
    as large as the framework's usual micro-batches per pipeline stage make it."""
    blank = unstated(run, framework)
    if options["gpus"] > 1 and blank and not trains_whole(framework):
        raise MissingCell(f"{' and '.join(blank)} and dp are blank: the layout is unknown")
    options.update(degrees)
    parallel = math.prod(options.get(name) or 1 for name in ("tp", "pp", "cp"))
    if options["gpus"] % parallel:
        raise MissingCell(f"tp*pp*cp = {parallel} does not divide n_gpus {options['gpus']}")
    options["dp"] = options["gpus"] // parallel
    _fit_batch(options, run, framework)


def _fit_batch(options: dict[str, Any], run: Run, framework: Framework) -> None:
    """Close the arithmetic of a batch over the ``dp`` replicas; a pipeline whose batch is not told is taken to be full.
    Raises MissingCell where no part of it is told, Undivided where parts contradict the whole."""
    dp, stages, whole = options["dp"], options.get("pp") or 1, options.get("global_batch")
    per_stage = micro_batches_per_stage(run, framework.usual) if stages > 1 else None
    accumulate = run.count("grad_accum") or (per_stage or 0) * stages
    micro = options.get("micro_batch")
    if micro is None and whole is None:
        raise MissingCell("micro_batch and global_batch are blank")
    if micro is None:
        micro = whole // (dp * accumulate) if accumulate and whole % (dp * accumulate) == 0 else 1
    options["micro_batch"] = micro
    if whole is None:
        options["global_batch"] = micro * dp * (accumulate or (FULL_PIPELINE * stages if stages > 1 else 1))
    elif whole % (micro * dp):
        raise Undivided(whole, micro, dp)


def drop_idle(options: dict[str, Any], model: Model) -> list[str]:
    """Drop what launchers accept though it does nothing: chunks without stages, experts' degrees without experts,
    losses that are written for other families. Returns the options that said something."""
    idle = ["vpp"] if (options.get("pp") or 1) == 1 else []
    idle += ["etp"] if model.experts is None else []
    if name := options.get("loss"):
        loss = catalog.load("losses", name)
        if not loss.written_for(model.family) or loss.refuses(model):
            del options["loss"]
    return [f"{name} {value}" for name in idle if (value := options.pop(name, None) or 1) > 1]


def fit_context(options: dict[str, Any], run: Run, framework: Framework, model: Model) -> None:
    """How context parallel ranks exchange: as the row says, else as the framework does, else by ring; all-to-alls only
    where they divide the heads. Of samples with their last label, one token longer than a length that they cut, they
    cut the inputs."""
    cp = options.get("cp") or 1
    if options["seq"] % cp == LABEL:
        options["seq"] -= LABEL
    usual = context_modes(framework.supports, model)[0]
    mode = context_mode(run) or framework.defaults.get("cp_mode", usual)
    if cp > 1:
        options["cp_mode"] = mode if trades_heads(model, mode, options.get("tp") or 1, cp) else RING


def possible_degrees(run: Run, framework: Framework | None = None) -> list[dict[str, int]]:
    """Where a framework that splits models leaves only its stages open, as many as may be, the fewest first. Where no
    degree is told, what batch and accumulation say of a replica. Pre-training has tensor parallel ranks up
    to a node, and beyond it pipeline stages, or context parallel ranks where micro-batches are fewer; fine-tuning has
    context parallel ranks, and tensor parallel ones as far as memory needs them (as MLPerf's LoRA runs: their peaks of
    memory are those of it within 2%). One empty answer where a degree is told."""
    told = [run.count(name) for name in ("tp", "pp", "cp", "ep", "dp")]
    gpus, micro, accumulate, whole = (run.count(n) for n in ("n_gpus", "micro_batch", "grad_accum", "global_batch"))
    at_once = (micro or 1) * (accumulate or 1)
    if framework is not None and (stages := _possible_stages(run, framework)):
        return [{"pp": count} for count in stages]
    if any(told) or not (gpus and accumulate and whole) or whole % at_once or gpus % (whole // at_once):
        return [{}]
    ranks = gpus // (whole // at_once)
    if ranks == 1:
        return [{}]
    widest = math.gcd(ranks, WIDEST)
    if fine_tunes(run):
        return [{"tp": tp, "cp": ranks // tp} for tp in range(1, widest + 1) if widest % tp == 0]
    beyond = ranks // widest
    return [{"tp": widest, "pp" if accumulate >= beyond else "cp": beyond}]


def _possible_stages(run: Run, framework: Framework) -> list[int]:
    """Numbers of pipeline stages where tensor parallel groups are told and neither stages nor replicas."""
    tensor, gpus = run.count("tp") or 1, run.count("n_gpus") or 1
    others = [run.count(name) for name in ("pp", "cp", "ep", "dp", "zero_stage")]
    sharded = (framework.usual.get("zero") or 0) >= SHARDED or (software_notes.zero_stage(run) or 0) >= SHARDED
    if tensor == 1 or any(one is not None for one in others) or sharded or gpus % tensor:
        return []
    ranks, layers, whole = gpus // tensor, run.count("layers") or model_of(run).layers, run.count("global_batch")
    return [
        count
        for count in range(1, ranks + 1)
        if ranks % count == 0 and layers % count == 0 and (whole or 0) % (ranks // count) == 0
    ]


def assumed_layout(run: Run, layout: Layout, framework: Framework | None = None) -> str:
    """What is taken for granted of a layout that no cell tells."""
    if framework is not None and len(_possible_stages(run, framework)) > 1:
        return f"pp and dp are blank: assumed the fewest stages that fit{odd_batch(run)}, pp {layout.pp}"
    if layout.cp > 1 and run.count("seq_len") == layout.seq + LABEL:
        return f"seq_len {layout.seq + LABEL} is not divisible by cp: assumed {layout.seq} tokens and a last label"
    taken = possible_degrees(run)[0]
    told = ", ".join(f"{name} {degree}" for name in taken if (degree := getattr(layout, name)) > 1)
    return f"layout is blank: assumed {told} from batch and accumulation" if taken else ""


def idle_degrees(run: Run, model: Model, stages: int) -> str:
    """Which cells of a row say nothing for its layout of so many ``stages``."""
    dropped = drop_idle({"pp": stages, **{name: run.count(name) for name in ("vpp", "etp")}}, model)
    return f"{' and '.join(dropped)} has no effect here: ignored" if dropped else ""


def capacity_options(run: Run, framework: Framework, options: Mapping[str, Any]) -> dict[str, float | None]:
    """What a capacity factor in notes does: frameworks whose dispatch has slots compute empty ones too; elsewhere it is
    the most that a rank's experts are sent, or the room of static buffers (Megatron core's moe_expert_capacity_factor
    drops, moe_expert_rank_capacity_factor bounds; only --moe-pad-expert-input-to-capacity pads). One that is wider than
    the busiest rank needs changes nothing."""
    factor = expert_routing.capacity_factor(run)
    if framework.kernels.expert_slots == "one-hot":
        return {"capacity_factor": factor}
    if factor is None or factor >= BUSIEST_RANK or (options.get("ep") or 1) == 1:
        return {}
    return {} if expert_routing.forced_router(run, "balanced") else {"expert_imbalance": max(factor, 1.0)}
