"""The options of ``distsim pipeline``, each with its type and help, stated once."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from distsim.cli.options import parameter
from distsim.preset_kinds import DEFAULT_GPU

Stages = Annotated[int | None, typer.Option(help="pipeline stages (devices)")]
Micro = Annotated[int | None, typer.Option(help="micro-batches; both directions together in bidirectional schedules")]
Schedule = Annotated[
    str | None, typer.Option(help="schedule name, see --list [default: 1f1b, or interleaved-1f1b with --chunks]")
]
Chunks = Annotated[int | None, typer.Option(help="model chunks per stage")]
Forward = Annotated[
    str | None, typer.Option(help="forward time: one number, or one per stage or chunk, e.g. 1,1,2 [default: 1]")
]
Backward = Annotated[str | None, typer.Option(help="full backward time [default: sum of its two halves]")]
InputGradient = Annotated[
    str | None, typer.Option(help="input-gradient time, the first half of a backward [default: 1]")
]
WeightGradient = Annotated[
    str | None, typer.Option(help="weight-gradient time, the second half of a backward [default: 1]")
]
Hop = Annotated[str | None, typer.Option(help="transfer delay: one number, or one per link [default: 0]")]
P2p = Annotated[str, typer.Option(help="async: pure delay; rendezvous: both ends must have posted")]
Blocking = Annotated[bool, typer.Option("--blocking", help="a stage cannot compute while it sends")]
Contention = Annotated[bool, typer.Option("--contention", help="a link carries one transfer per direction at a time")]
Order = Annotated[Path | None, typer.Option(help="file with one line of actions per stage, instead of a schedule")]
Placement = Annotated[str | None, typer.Option(help="with --order: the stage of each chunk, e.g. 0,1,1,0")]
Chains = Annotated[str | None, typer.Option(help="with --order: chains of chunks, e.g. 0,1,2,3;4,5,6,7")]
Fused = Annotated[
    str | None, typer.Option(help="fused pairs publish both results at their end (atomic) or one by one (split)")
]
FusedTime = Annotated[str | None, typer.Option(help="fused pair time [default: forward + backward]")]
MemoryLimit = Annotated[int | None, typer.Option(help="with zb-auto: micro-batches a stage may hold")]
WeightMemory = Annotated[
    float | None,
    typer.Option(help="with zb-auto: share of a micro-batch's memory that its weight gradient needs [default: 1]"),
]
Group = Annotated[int | None, typer.Option(help="with interleaved-1f1b-megatron: micro-batches per group")]
Balance = Annotated[
    str | None,
    typer.Option(
        help="forward times of layers to split over the stages, e.g. 0.5,1*32,2; backward ones are multiples of them"
    ),
]
Loss = Annotated[float, typer.Option(help="loss time, on the last chunk [default: 0]", show_default=False)]
Optimizer = Annotated[float | None, typer.Option(help="time of an optimizer step at the end [default: none]")]
Sync = Annotated[
    bool | None,
    typer.Option("--sync/--no-sync", help="optimizer step on all stages together, or on each as soon as it is done "
                 "[default: together]"),
]  # fmt: skip
Model = Annotated[str | None, typer.Option(help="use this model's times in seconds, as distsim step computes them")]
Compare = Annotated[bool, typer.Option("--compare", help="compare all schedules, best first")]
List = Annotated[bool, typer.Option("--list", help="list the schedules and their papers")]
Svg = Annotated[Path | None, typer.Option(help="write the chart as SVG to this file")]
Trace = Annotated[Path | None, typer.Option(help="write a trace for Perfetto or Chrome to this file")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead")]

OF_MODEL = {
    "gpu": (str, f"accelerator [default: {DEFAULT_GPU}]"),
    "tp": (int, "tensor parallel degree of a stage"),
    "cp": (int, "context parallel degree"),
    "ep": (int, "expert parallel degree, over as many replicas as it needs"),
    "etp": (int, "tensor parallel degree of experts"),
    "micro_batch": (int, "sequences per micro-batch [default: 1]"),
    "seq": (int, "tokens per sequence [default: the model's context]"),
    "images": (float, "images per sequence in the mean, for models with a vision tower"),
    "image_size": (str, "pixels of an image, height x width"),
    "vision": (str, "what of the vision part trains: trained, projector, frozen, projector-alone, adapters"),
    "recompute": (str, "none, selective or full"),
    "recompute_modules": (str, "Megatron's modules that selective recomputes: moe_act, layernorm ..."),
    "remat_policy": (str, "what selective keeps: a policy of maxtext or axlearn"),
    "framework": (str, "software profile [default: megatron-core; TPUs, Trainium and Gaudi have their own]"),
    "cuda_graphs": (str, "CUDA graphs: none, routers, modules, iteration (a whole step)"),
    "stage_layers": (str, "layers per stage or chunk, as distsim step takes them: 7,7,6,6,6"),
    "gpu_power": (str, "power limit of each accelerator in watts"),
    "lora_rank": (int, "rank of LoRA adapters; the model itself is frozen"),
    "quantize": (str, "how frozen weights are stored, e.g. nf4"),
}
"""Job options with which ``--model`` takes its times, by their names there."""


def of_model() -> list[inspect.Parameter]:
    """The job options of ``--model``, as options of the command."""
    return [parameter(name, kind, f"with --model: {text}") for name, (kind, text) in OF_MODEL.items()]
