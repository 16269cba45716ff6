"""The options of ``distsim pipeline``, each with its type and help, stated once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Stages = Annotated[int | None, typer.Option(help="stages (devices in a row)")]
Micro = Annotated[int | None, typer.Option(help="micro-batches, of both directions together")]
Schedule = Annotated[str | None, typer.Option(help="schedule's name, see --list [default: 1f1b]")]
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
Group = Annotated[int | None, typer.Option(help="with interleaved-1f1b-megatron: micro-batches per group")]
Balance = Annotated[str | None, typer.Option(help="layer times to split over the stages, e.g. 0.5,1*32,2")]
Loss = Annotated[float, typer.Option(help="time of the loss, on the last chunk [default: 0]", show_default=False)]
Optimizer = Annotated[float | None, typer.Option(help="time of the optimizer step at the end [default: none]")]
Sync = Annotated[bool, typer.Option("--sync/--no-sync", help="stages step together, or each when done")]
Model = Annotated[str | None, typer.Option(help="take the times of this model, in seconds, as distsim step has them")]
Gpu = Annotated[str | None, typer.Option(help="with --model: accelerator [default: a100-sxm4-80gb]")]
GpuPower = Annotated[str | None, typer.Option(help="with --model: power limit of each accelerator in watts")]
Tp = Annotated[int | None, typer.Option(help="with --model: tensor parallel degree of a stage")]
MicroBatch = Annotated[int | None, typer.Option(help="with --model: sequences per micro-batch [default: 1]")]
Seq = Annotated[int | None, typer.Option(help="with --model: tokens per sequence [default: the model's context]")]
Recompute = Annotated[str | None, typer.Option(help="with --model: none, selective or full")]
LoraRank = Annotated[int | None, typer.Option(help="with --model: rank of LoRA adapters; only they train")]
Quantize = Annotated[str | None, typer.Option(help="with --model: how frozen weights are stored, e.g. nf4")]
StageLayers = Annotated[
    str | None, typer.Option(help="with --model: layers per stage or chunk, as distsim step takes them: 7,7,6,6,6")
]
CudaGraphs = Annotated[str | None, typer.Option(help="with --model: CUDA graphs: none, modules, iteration")]
Framework = Annotated[str | None, typer.Option(help="with --model: software profile [default: megatron-core]")]
Compare = Annotated[bool, typer.Option("--compare", help="all schedules side by side, best first")]
List = Annotated[bool, typer.Option("--list", help="name the schedules and their papers")]
Svg = Annotated[Path | None, typer.Option(help="write the chart as SVG to this file")]
Trace = Annotated[Path | None, typer.Option(help="write a trace for Perfetto or Chrome to this file")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead")]
