"""The job options that memory, comm, step, search and plan share, stated once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer

from distsim.cli.signatures import with_signature
from distsim.errors import DistsimError
from distsim.preset_kinds import DEFAULT_GPU
from distsim.specs.flags import flag, switch

# name -> (type, help). The names are Job's fields; the flags follow from them.
JOB_OPTIONS: dict[str, tuple[Any, str]] = {
    "gpu": (str, f"accelerator preset (distsim show gpus) [default: {DEFAULT_GPU}]"),
    "gpus": (int, "number of accelerators [default: one node]"),
    "cluster": (str, "cluster preset or TOML, instead of the GPU's usual node and network"),
    "gpu_power": (str, "power limit of each accelerator in watts: 500 or 500W [default: the cluster's, or none]"),
    "profile": (str, "network profile written by distsim calibrate --nccl-tests"),
    "framework": (
        str,
        "software profile: kernels, overheads, defaults [default: megatron-core; TPUs, Trainium, Gaudi: their own]",
    ),
    "tp": (int, "tensor parallel degree"),
    "pp": (int, "pipeline parallel degree (stages)"),
    "cp": (int, "context parallel degree"),
    "ep": (int, "expert parallel degree, inside data parallel: divides dp*cp*tp"),
    "etp": (int, "tensor parallel degree of the experts"),
    "dp": (int, "data parallel degree [default: --gpus / (tp*pp*cp)]"),
    "vpp": (int, "model chunks per pipeline stage (interleaving) [default: 1, or the schedule's own]"),
    "schedule": (str, "pipeline schedule [default: 1f1b, or interleaved-1f1b with --vpp]"),
    "stage_layers": (
        str,
        "layers per stage or chunk: 7,8,8,9; 4*15,1; 3,...,2; balanced; or Megatron's Et*3|(tt|)*9|L",
    ),
    "vocab_parallel": (
        str,
        "vocabulary shared by all stages: vocab-1, vocab-2, interlaced [default: first and last hold it]",
    ),
    "zero": (
        int,
        "ZeRO stage: 0 shards nothing, 1 optimizer, 2 + gradients, 3 + parameters [default: the framework's, or 0]",
    ),
    "zero_group": (int, "ranks per sharding group if fewer than dp (HSDP) [default: dp*cp]"),
    "sequence_parallel": (bool, "Megatron sequence parallelism [default: the framework's, or on with tp > 1]"),
    "seq": (int, "tokens per sequence [default: the model's context length]"),
    "decoder_seq": (
        int,
        "decoder tokens per sequence in an encoder-decoder, whose encoder reads --seq [default: the model's]",
    ),
    "sample_tokens": (
        int,
        "mean tokens per packed sample, each attending only to itself [default: one sample per sequence]",
    ),
    "micro_batch": (int, "sequences per data-parallel rank per micro-step [default: 1]"),
    "global_batch": (int, "sequences per optimizer step over all ranks [default: micro-batch * dp]"),
    "recompute": (str, "activation recomputation: none, selective, full [default: the framework's, or none]"),
    "recompute_layers": (int, "layers per stage that recompute under full [default: all]"),
    "recompute_group": (int, "layers that one checkpoint covers under full [default: 1]"),
    "recompute_modules": (
        str,
        "what selective recomputes (Megatron): core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, shared_experts",
    ),
    "remat_policy": (str, "what selective keeps: a policy of maxtext or axlearn, e.g. minimal_offloaded"),
    "attention": (str, "attention kernel: flash or eager [default: the framework's, or flash]"),
    "compile": (
        bool,
        "torch.compile, if the framework profile states what it fuses [default: the framework's, or off]",
    ),
    "cuda_graphs": (str, "CUDA graphs: none, modules, iteration (a whole step) [default: the framework's recipe]"),
    "expert_overlap": (
        bool,
        "overlap expert all-to-all with the compute of another micro-batch [default: the framework's recipe]",
    ),
    "expert_dispatcher": (
        str,
        "what sends tokens to experts: alltoall, deepep, hybridep [default: the framework's recipe]",
    ),
    "tp_comm_overlap": (
        bool,
        "overlap tensor parallel communication with matrix products [default: the framework's recipe]",
    ),
    "dp_comm_overlap": (
        bool,
        "overlap gradient reductions and parameter gathers with computation [default: what the framework does]",
    ),
    "dropout": (bool, "the model's dropout [default: on, at the model's own rates]"),
    "precision": (str, "precision recipe (distsim show precisions) [default: the framework's, or bf16]"),
    "optimizer": (str, "optimizer (distsim show optimizers) [default: adamw]"),
    "offload": (str, "what to offload from the GPU: none, optimizer, parameters, activations"),
    "offload_to": (str, "where offloaded states go: cpu, or further to nvme drives (DeepSpeed, ZeRO 3)"),
    "offload_modules": (
        str,
        "offload only these (Megatron): attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act",
    ),
    "mtp": (int, "multi-token prediction layers to train with the model [default: none]"),
    "lora_rank": (int, "rank of LoRA adapters; the model itself is frozen"),
    "lora_targets": (
        str,
        "modules with an adapter: q,k,v,o,gate,up,down,head, in_proj ...; attention, mlp, mixers, all-linear",
    ),
    "lora_dropout": (float, "dropout on the adapters' inputs [default: 0]"),
    "lora_whole": (str, "modules trained in full besides the adapters: embedding, head, norms"),
    "dora": (bool, "weight-decomposed adapters (DoRA), which scale each output [default: off]"),
    "quantize": (str, "how frozen weights are stored (distsim show quantizations): none, nf4, nf4+experts ..."),
    "reference": (str, "frozen reference beside the model (DPO): none, copy of the weights, base without adapters"),
    "loss": (str, "loss that replaces the framework's: chunked, fused-linear, liger, cut (distsim show losses)"),
    "loss_parallel": (bool, "keep logits sharded over tp through the loss [default: the framework's, or on]"),
    "tp_mode": (str, "tensor parallel grid: 1d (row), 2d (square), 2.5d (stacked squares), 3d (cube) [default: 1d]"),
    "tp_depth": (int, "number of stacked squares in a 2.5d grid"),
    "cp_mode": (
        str,
        "context parallel communication: ring, all_gather, all_to_all (Ulysses) [default: the framework's]",
    ),
    "expert_imbalance": (
        float,
        "tokens on the busiest expert rank relative to the mean [default: 1.2 for time, else 1]",
    ),
    "capacity_factor": (
        float,
        "slots per expert relative to its mean tokens: excess tokens are dropped, empty slots computed",
    ),
    "no_sync": (bool, "reduce gradients after the last micro-batch only [default: what the framework does]"),
    "clip": (bool, "gradient clipping by the norm over all ranks [default: what the framework does]"),
    "compress": (str, "gradient compression: none, fp16, bf16, 1bit, powersgd-r4 [default: none]"),
    "zeropp": (str, "parts of ZeRO++, e.g. qwz,hpz,qgz"),
    "sync": (str, "how replicas synchronise: allreduce, parameter-server or local-sgd [default: allreduce]"),
    "sync_every": (int, "steps between synchronisations with local-sgd (DiLoCo)"),
    "sync_gbps": (float, "Gb/s of each replica's link to the others with local-sgd, shared by its ranks"),
    "servers": (int, "number of parameter servers [default: each worker serves its share]"),
}


def parameter(name: str, kind: Any, text: str) -> inspect.Parameter:
    """One job option as a parameter of a command."""
    typed = switch(name) if kind is bool else flag(name)
    annotation = Annotated[kind | None, typer.Option(typed, help=text, show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _own(name: str, typed: str, kind: Any, text: str) -> inspect.Parameter:
    option = typer.Option(typed, help=text, show_default=False)
    default = False if kind is bool else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


MODEL = inspect.Parameter(
    "model", inspect.Parameter.KEYWORD_ONLY, default=None,
    annotation=Annotated[
        str | None, typer.Argument(metavar="MODEL", help="preset, TOML or Hugging Face config.json", show_default=False)
    ],
)  # fmt: skip
JOB_FILE = _own(
    "job", "--job", Path | None,
    "TOML file of MODEL and job options, one value each, as distsim step takes them; the command line wins",
)  # fmt: skip
SHOW_CONFIG = _own("show_config", "--show-config", bool, "print every option and where it comes from, then exit")


JOBLESS = ("collective", "bytes", "sweep_from")
"""Options of a command that answers without a job, too."""


def job_command(function: Callable[..., None]) -> Callable[..., None]:
    """Give ``function(job, **own)`` the MODEL argument and all job options; it is called with a Job and its own.

    A function that takes ``origins`` is also told where each stated option comes from. One that takes ``stated`` also
    answers without a job, when one of its options ``JOBLESS`` is given: then it gets None and the options as stated.
    """
    taken = inspect.signature(function, eval_str=True).parameters
    own = [p.replace(kind=p.KEYWORD_ONLY) for name, p in taken.items() if name not in ("job", "origins", "stated")]
    own_names = {p.name for p in own}

    def command(**values: Any) -> None:
        from distsim import catalog

        with catalog.settled():  # one look at each preset for all that a command does
            answer(values)

    def answer(values: dict[str, Any]) -> None:
        mine = {name: value for name, value in values.items() if name in own_names}
        rest = {name: value for name, value in values.items() if name not in own_names}
        show = rest.pop("show_config", False)
        if "stated" in taken and any(mine.get(name) is not None for name in JOBLESS):
            if show:
                raise DistsimError("--show-config shows a job, but a single collective has none", "leave it out")
            function(None, {}, rest, **mine)
            return
        job, origins = stated_job(rest)
        if show:
            _show_config(job, origins, bool(mine.get("json")))
            return
        if "origins" in taken:
            mine["origins"] = origins
        if "stated" in taken:
            mine["stated"] = {}
        function(job, **mine)

    shared = [parameter(name, kind, text) for name, (kind, text) in JOB_OPTIONS.items()]
    parameters = [MODEL, *shared, JOB_FILE, SHOW_CONFIG, *own]
    return with_signature(command, parameters, function)


def with_places(typed: dict[str, Any], file: Path | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Job options as typed, under them those of a job file, the environment, the project's file and the user's; and
    where each comes from."""
    from distsim.cli import config, places

    known = {"model": str, **{name: kind for name, (kind, _) in JOB_OPTIONS.items()}}
    under = config.places(known, file)
    merged, origins = config.merge(typed, under)
    places.remember(merged, origins)
    if file is not None:
        _tell_replaced(under[0].options, merged, file)
    return merged, origins


def _tell_replaced(stated: dict[str, Any], merged: dict[str, Any], file: Path) -> None:
    """Note a job file's number of GPUs or replicas that gives way to the other as typed, where they disagree."""
    from distsim.report import talk

    for name, typed in (("dp", "gpus"), ("gpus", "dp")):
        if stated.get(name) is None or name in merged or typed not in merged:
            continue
        degrees = [one for one in (merged.get(degree) for degree in ("tp", "pp", "cp")) if isinstance(one, int)]
        replicas, gpus = (stated[name], merged[typed]) if name == "dp" else (merged[typed], stated[name])
        if str(gpus) != str(replicas * prod(degrees)):
            talk.note(f"{name} {stated[name]} of {file} gives way to {flag(typed)} {merged[typed]}")


def tell_unused(origins: dict[str, str], command: str) -> None:
    """Note options of files and variables that one of the commands that read them does not have."""
    from distsim.report import talk

    for name, origin in origins.items():
        talk.note(f"{name} ({origin}) was ignored: distsim {command} has no such option")


def refuse_others(origins: dict[str, str], command: str) -> None:
    """Raise options of a job file, which is of one command, that this command does not have; note those of files and
    variables that all commands read."""
    from distsim.cli import places

    if own := {name: origin for name, origin in origins.items() if origin.startswith("job file")}:
        raise DistsimError(
            f"a {command} does not take {', '.join(own)}",
            "leave it out; distsim step takes it for one layout",
            where=places.place_of(next(iter(own.values()))),
        )
    tell_unused(origins, command)


def unnamed() -> DistsimError:
    """That no model is named."""
    return DistsimError(
        "no model named", "give one after the command, e.g. llama-7b", "list them with: distsim show models"
    )


def stated_job(values: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """A Job from the command line and what lies under it, and where each stated option comes from."""
    from distsim.specs.job import Job

    options = dict(values)
    file = options.pop("job", None)
    merged, origins = with_places(options, Path(file) if file is not None else None)
    if "model" not in merged:
        raise unnamed()
    try:
        return Job.read(merged), origins
    except DistsimError as error:
        raise as_typed(error, options) from None


def as_typed(error: DistsimError, typed: dict[str, Any]) -> DistsimError:
    """An error that begins with an option of the command line, with its flag as it was typed."""
    first, _, rest = error.problem.partition(" ")
    name = first.rstrip(":")
    if name not in JOB_OPTIONS or typed.get(name) is None:
        return error
    return DistsimError(f"{flag(name, typed[name])}{first[len(name) :]} {rest}", *error.hints)


def _show_config(job: Any, origins: dict[str, str], json: bool) -> None:
    from distsim.engine.jobs.resolve import resolve
    from distsim.report import explain

    setup = resolve(job)
    if json:
        import json as jsonlib

        typer.echo(jsonlib.dumps(explain.options_data(setup, origins)))
        return
    for line in explain.option_lines(setup, origins):
        typer.echo(line)
