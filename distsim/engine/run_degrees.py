"""Degrees and batches of a measured run: what follows from its other cells, and what does nothing."""

from __future__ import annotations

from typing import Any

from distsim.interop.runs import MissingCell, Run
from distsim.specs.model import Model


def fit_degrees(options: dict[str, Any], run: Run) -> None:
    """Close the arithmetic of degrees and batches: dp from the GPUs, the batch from its parts, the micro-batch as 1."""
    unstated = [name for name in ("tp", "pp") if name not in options]
    if options["gpus"] > 1 and unstated and "dp" not in options and "zero" not in options and not run.text("fsdp_kind"):
        raise MissingCell(f"{' and '.join(unstated)} and dp are blank: the layout is not stated")
    parallel = 1
    for name in ("tp", "pp", "cp"):
        parallel *= options.get(name) or 1
    gpus = options["gpus"]
    if gpus % parallel:
        raise MissingCell(f"tp*pp*cp = {parallel} does not divide n_gpus {gpus}")
    dp = gpus // parallel
    options["dp"] = dp
    micro = options.get("micro_batch")
    accumulate = run.count("grad_accum")
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


def drop_idle(options: dict[str, Any], model: Model) -> None:
    """Drop what launchers accept though it does nothing: chunks without stages, experts' degrees without experts."""
    if (options.get("pp") or 1) == 1:
        options.pop("vpp", None)
    if model.experts is None:
        options.pop("etp", None)
