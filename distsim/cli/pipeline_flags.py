"""The options of ``distsim pipeline``, each with its type and help, stated once."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from distsim.cli.options import parameter
from distsim.preset_kinds import DEFAULT_GPU

Stages = Annotated[int | None, typer.Option(help="stages (devices in a row)")]
Micro = Annotated[int | None, typer.Option(help="micro-batches, of both directions together")]
Schedule = Annotated[
    str | None, typer.Option(help="its name, see --list [default: 1f1b, or interleaved-1f1b with --chunks]")
]
Chunks = Annotated[int | None, typer.Option(help="model chunks per stage")]
Forward = Annotated[
    str | None, typer.Option(help="time of a forward: one number, or per stage or chunk: 1,1,2 [default: 1]")
]
Backward = Annotated[str | None, typer.Option(help="time of a full backward [default: sum of its halves]")]
InputGradient = Annotated[str | None, typer.Option(help="time of a backward's first half [default: 1]")]
WeightGradient = Annotated[str | None, typer.Option(help="time of a backward's second half [default: 1]")]
Hop = Annotated[str | None, typer.Option(help="delay of a transfer, one number or per link [default: 0]")]
P2p = Annotated[str, typer.Option(help="async: pure delay; rendezvous: both ends must have posted")]
Blocking = Annotated[bool, typer.Option("--blocking", help="a sender computes nothing while it sends")]
Contention = Annotated[bool, typer.Option("--contention", help="a link carries one transfer per direction")]
Order = Annotated[Path | None, typer.Option(help="file with a line of actions per stage, not a schedule")]
Placement = Annotated[str | None, typer.Option(help="with --order: the stage of each chunk, e.g. 0,1,1,0")]
Chains = Annotated[str | None, typer.Option(help="with --order: chains of chunks, e.g. 0,1,2,3;4,5,6,7")]
Fused = Annotated[str | None, typer.Option(help="fused pairs give results at their end (atomic) or singly (split)")]
FusedTime = Annotated[str | None, typer.Option(help="time of a fused pair [default: forward + backward]")]
MemoryLimit = Annotated[int | None, typer.Option(help="with zb-auto: micro-batches a stage may hold")]
WeightMemory = Annotated[
    float | None,
    typer.Option(help="with zb-auto: share of a micro-batch's memory that its weight gradient reads [default: 1]"),
]
Group = Annotated[int | None, typer.Option(help="with interleaved-1f1b-megatron: micro-batches per group")]
Balance = Annotated[str | None, typer.Option(help="layer times to split over the stages, e.g. 0.5,1*32,2")]
Loss = Annotated[float, typer.Option(help="time of the loss, on the last chunk [default: 0]", show_default=False)]
Optimizer = Annotated[float | None, typer.Option(help="time of the optimizer step at the end [default: none]")]
Sync = Annotated[bool, typer.Option("--sync/--no-sync", help="stages step together, or each when done")]
Model = Annotated[str | None, typer.Option(help="take the times of this model, in seconds, as distsim step has them")]
Compare = Annotated[bool, typer.Option("--compare", help="all schedules side by side, best first")]
List = Annotated[bool, typer.Option("--list", help="name the schedules and their papers")]
Svg = Annotated[Path | None, typer.Option(help="write the chart as SVG to this file")]
Trace = Annotated[Path | None, typer.Option(help="write a trace for Perfetto or Chrome to this file")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead")]

OF_MODEL = {
    "gpu": (str, f"accelerator [default: {DEFAULT_GPU}]"),
    "tp": (int, "tensor parallel degree of a stage"),
    "micro_batch": (int, "sequences per micro-batch [default: 1]"),
    "seq": (int, "tokens per sequence [default: the model's context]"),
    "recompute": (str, "none, selective or full"),
    "framework": (str, "software profile [default: megatron-core; of TPUs, Trainium and Gaudi their own]"),
    "cuda_graphs": (str, "CUDA graphs: none, modules, iteration"),
    "stage_layers": (str, "layers per stage or chunk, as distsim step takes them: 7,7,6,6,6"),
    "gpu_power": (str, "power limit of each accelerator in watts"),
    "lora_rank": (int, "rank of LoRA adapters; only they train"),
    "quantize": (str, "how frozen weights are stored, e.g. nf4"),
}
"""Job options with which ``--model`` takes its times, by their names there."""


def of_model() -> list[inspect.Parameter]:
    """The job options of ``--model``, as options of the command."""
    return [parameter(name, kind, f"with --model: {text}") for name, (kind, text) in OF_MODEL.items()]
