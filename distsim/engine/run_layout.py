"""The layout of a measured run: what its cells leave open and its batch closes."""

from __future__ import annotations

import math
from typing import Any

from distsim.interop.runs import MissingCell, Run
from distsim.specs.framework import Framework
from distsim.specs.model import Model

WIDEST = 8
"""GPUs that a tensor parallel group is taken to have at most where only the size of a replica is known."""


def usual_chunks(options: dict[str, Any], layers: int) -> int | None:
    """A model chunk per layer, as recipes of deep pipelines have it, where layers and micro-batches divide."""
    stages = options.get("pp") or 1
    micro = options["global_batch"] // (options["micro_batch"] * options["dp"])
    return layers // stages if stages > 1 and layers % stages == 0 and micro % stages == 0 else None


def fit_degrees(options: dict[str, Any], run: Run, per_stage: int | None) -> None:
    """Close the arithmetic of degrees and batches: dp from the GPUs, the batch from its parts, the micro-batch as 1, or
    as large as ``per_stage`` micro-batches per pipeline stage make it."""
    unstated = [name for name in ("tp", "pp") if name not in options]
    if options["gpus"] > 1 and unstated and "dp" not in options and "zero" not in options and not run.text("fsdp_kind"):
        raise MissingCell(f"{' and '.join(unstated)} and dp are blank: the layout is not stated")
    options.update(_replica_degrees(run))
    parallel = 1
    for name in ("tp", "pp", "cp"):
        parallel *= options.get(name) or 1
    gpus = options["gpus"]
    if gpus % parallel:
        raise MissingCell(f"tp*pp*cp = {parallel} does not divide n_gpus {gpus}")
    dp = gpus // parallel
    options["dp"] = dp
    micro = options.get("micro_batch")
    accumulate = run.count("grad_accum") or (per_stage and (options.get("pp") or 1) > 1 and per_stage * options["pp"])
    whole = options.get("global_batch")
    if micro is None and whole is not None:
        micro = whole // (dp * accumulate) if accumulate and whole % (dp * accumulate) == 0 else 1
    if micro is None:
        raise MissingCell("micro_batch and global_batch are blank")
    options["micro_batch"] = micro
    if whole is None:  # a pipeline whose batch is not told is taken to be full
        stages = options.get("pp") or 1
        options["global_batch"] = micro * dp * (accumulate or (4 * stages if stages > 1 else 1))
    elif whole % (micro * dp):
        raise MissingCell(f"global_batch {whole} is not a multiple of micro_batch {micro} * dp {dp}")


def drop_idle(options: dict[str, Any], model: Model) -> list[str]:
    """Drop what launchers accept though it does nothing: chunks without stages, experts' degrees without experts.
    Returns the options that said something."""
    idle = ["vpp"] if (options.get("pp") or 1) == 1 else []
    idle += ["etp"] if model.experts is None else []
    return [f"{name} {value}" for name in idle if (value := options.pop(name, None) or 1) > 1]


def unsaid_micro_batch(run: Run, framework: Framework) -> int | None:
    """Sequences per replica where no cell of the batch says anything and the framework has a usual number: what it
    reports is throughput, which hardly depends on it."""
    said = any(run.count(name) for name in ("micro_batch", "global_batch", "step_time_s", "samples_per_s"))
    return None if said else framework.usual.get("unsaid_micro_batch")


def assumed_batch(run: Run, framework: Framework) -> str:
    """What is taken for granted of a batch that no cell tells."""
    micro = unsaid_micro_batch(run, framework)
    return f"batch is blank: taken as {micro} sequences per replica" if micro else ""


def _replica_degrees(run: Run) -> dict[str, int]:
    """Where no degree is told, what a replica has by batch and accumulation: tensor parallel ranks up to a node; beyond
    it pipeline stages, or context parallel ranks where micro-batches are fewer. Nothing where one is told."""
    told = [run.count(name) for name in ("tp", "pp", "cp", "ep", "dp")]
    gpus, micro, accumulate, whole = (run.count(n) for n in ("n_gpus", "micro_batch", "grad_accum", "global_batch"))
    at_once = (micro or 1) * (accumulate or 1)
    if any(told) or not (gpus and accumulate and whole) or whole % at_once:
        return {}
    replicas = whole // at_once
    if replicas >= gpus or gpus % replicas:
        return {}
    tp = math.gcd(gpus // replicas, WIDEST)
    beyond = gpus // replicas // tp
    return {"tp": tp, "pp" if accumulate >= beyond else "cp": beyond}


def assumed_degrees(run: Run) -> str:
    """What is taken for granted of a layout that no cell tells."""
    degrees = _replica_degrees(run)
    told = ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
    return f"layout is blank: taken as {told} from batch and accumulation" if degrees else ""


def idle_degrees(run: Run, model: Model) -> str:
    """Which cells of a row say nothing for its layout."""
    dropped = drop_idle({name: run.count(name) for name in ("pp", "vpp", "etp")}, model)
    return f"{' and '.join(dropped)} says nothing here: left out" if dropped else ""
