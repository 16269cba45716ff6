"""Columns of measured runs under the names that tools and people give them: Megatron's, DeepSpeed's and transformers'
arguments, what training prints, and units in the heading."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from distsim.interop.runs.numbers import number_in, with_unit

_NAMES = {
    "id": "run_id run run_name name experiment job_id",
    "model": "model_name",
    "layers": "num_layers n_layers n_layer num_hidden_layers",
    "hidden": "hidden_size d_model n_embd model_dim",
    "heads": "num_heads n_heads n_head num_attention_heads attention_heads",
    "kv_heads": "num_kv_heads n_kv_heads num_key_value_heads num_query_groups",
    "head_dim": "kv_channels",
    "ffn_hidden": "ffn_hidden_size intermediate_size d_ff ffn_dim ffn",
    "vocab": "vocab_size padded_vocab_size vocabulary",
    "tied_embeddings": "tie_word_embeddings",
    "n_params_b": "params_b parameters_b num_params_b billions_of_parameters",
    "n_experts": "num_experts experts num_local_experts n_routed_experts",
    "top_k": "topk moe_router_topk num_experts_per_tok experts_per_token",
    "moe_ffn_hidden": "moe_ffn_hidden_size moe_intermediate_size expert_ffn_hidden",
    "shared_experts": "n_shared_experts num_shared_experts",
    "capacity_factor": "moe_capacity_factor moe_expert_capacity_factor expert_capacity_factor",
    "seq_len": "seq seqlen seq_length sequence_length max_seq_len max_seq_length context_length context_len block_size",
    "gpu": "gpu_type gpu_name gpu_model accelerator hardware device_name",
    "n_gpus": "gpus num_gpus ngpus ngpu gpu_count world_size num_devices n_devices n_chips num_chips",
    "gpus_per_node": "num_gpus_per_node nproc_per_node gpus_node devices_per_node",
    "internode_gbps_per_gpu": "gbps_per_gpu network_gbps_per_gpu",
    "gpu_power": "power_limit power_limit_w gpu_power_w gpu_power_watts",
    "tp": "tp_size tp_degree tensor_parallel tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size",
    "pp": "pp_size pp_degree pipeline_parallel pipeline_parallel_size pipeline_parallel_degree "
          "pipeline_model_parallel_size",
    "vpp": "vp vpp_size virtual_pipeline virtual_pipeline_model_parallel_size",
    "cp": "cp_size cp_degree context_parallel context_parallel_size context_parallel_degree",
    "ep": "ep_size ep_degree expert_parallel expert_parallel_size expert_parallel_degree expert_model_parallel_size",
    "etp": "expert_tensor_parallel expert_tensor_parallel_size expert_tensor_parallel_degree",
    "dp": "dp_size dp_degree data_parallel data_parallel_size data_parallel_degree",
    "cp_mode": "cp_comm_type",
    "zero_stage": "zero deepspeed_stage zero_optimization_stage",
    "fsdp_kind": "sharding sharding_strategy data_parallel_sharding_strategy",
    "micro_batch": "mbs micro_batch_size microbatch microbatch_size per_device_train_batch_size "
                   "train_micro_batch_size_per_gpu per_device_batch_size batch_size_per_gpu local_batch_size",
    "grad_accum": "gas ga gradient_accumulation gradient_accumulation_steps grad_accum_steps accumulation_steps",
    "global_batch": "gbs global_batch_size train_batch_size",
    "precision": "dtype mixed_precision",
    "recompute": "recomputation activation_checkpointing gradient_checkpointing activation_recomputation "
                 "activation_recompute recompute_granularity ac_mode",
    "attention": "attn attn_implementation attention_backend attention_kernel",
    "optimizer": "optim optimizer_type",
    "offload": "cpu_offload",
    "compile": "torch_compile compiled",
    "framework": "software library",
    "step_time_s": "step_time time_per_step iteration_time iter_time time_per_iteration step_s iteration_s s_step s_it "
                   "s_iter s_iteration step step_duration elapsed_time_per_iteration",
    "tokens_per_s_per_gpu": "tokens_s_gpu tokens_gpu_s tokens_s_device tokens_s_chip tgs tps_gpu "
                            "throughput_tokens_s_gpu",
    "samples_per_s": "samples_s train_samples_s sequences_s",
    "tflops_per_gpu_reported": "tflops tflops_gpu tflops_s_gpu tflop_s_gpu throughput_gpu_tflop_s_gpu "
                               "tflops_device achieved_tflops_gpu model_tflops model_tflops_gpu model_tflops_s_gpu "
                               "hardware_tflops hardware_tflops_gpu hardware_tflops_s_gpu",
    "mfu_pct": "mfu mfu_percent",
    "hfu_pct": "hfu hfu_percent",
    "mem_peak_gb_per_gpu": "peak_mem peak_memory max_mem max_memory peak_vram peak_gpu_memory max_gpu_memory "
                           "peak_mem_gpu peak_memory_gpu max_memory_gpu peak_memory_per_gpu mem_peak memory_peak "
                           "max_allocated max_reserved max_memory_allocated max_memory_reserved peak_memory_allocated "
                           "peak_memory_reserved peak_allocated peak_reserved peak allocated reserved",
    "lora_rank": "lora_r",
    "lora_targets": "lora_target_modules target_modules",
    "finetune_kind": "finetuning_type finetune_type",
    "notes": "note comment comments remark remarks",
}  # fmt: skip
"""Other names of each column, without units. A ``batch_size`` may be any of three, ``tokens_per_s`` of a GPU or of
all, ``memory`` the card's: such names mean nothing here."""
OTHER_NAMES = {other: column for column, others in _NAMES.items() for other in others.split()}
_SHORTER = ((r"(?:seconds|second|secs|sec)(?=_|$)", "s"), (r"(?<![a-z])(?:toks?|token)(?=_)", "tokens"),
            (r"(?<![a-z])(?:sample|seqs?)(?=_s$|_per_s$)", "samples"), (r"_per_", "_"))  # fmt: skip
"""How the same rate is spelled."""
_KINDS = (("allocated", "mem_kind", "allocated"), ("reserved", "mem_kind", "reserved"),
          ("model_tflops", "flops_kind", "model"), ("hardware_tflops", "flops_kind", "hardware"))  # fmt: skip
"""What headings say of how a figure was counted, and the column that says so."""
_AVERAGED = re.compile(r"[\W_]*\((?:avg|average|mean|median|measured)\)[\W_]*$", re.IGNORECASE)
"""A remark behind a heading that leaves its column what it is."""
UNIT_TELLS = ("step", "peak", "allocated", "reserved")
"""Names that mean a time or a peak of memory only beside its unit."""
AMBIGUOUS = {
    "batch": "micro_batch, grad_accum or global_batch", "batch_size": "micro_batch, grad_accum or global_batch",
    "tokens_s": "tokens_per_s_per_gpu, or tokens of the whole job over n_gpus",
    "throughput": "tokens_per_s_per_gpu, or samples_per_s of the whole job",
    "memory": "mem_peak_gb_per_gpu, or gpu_memory of the card", "mem": "mem_peak_gb_per_gpu, or gpu_memory of the card",
    **dict.fromkeys(("gpu_mem", "gpu_memory", "vram", "gpu_vram", "memory_used", "used_memory", "peak", "max_vram"),
                    "mem_peak_gb_per_gpu, or gpu_memory of the card"),
    **dict.fromkeys(("time", "it_s", "iter_s", "iterations_s", "steps_s"), "step_time_s, in seconds of one step"),
}  # fmt: skip
"""Headings that could be several columns, so that none of them is read, and what they may mean."""
_PERCENT = re.compile(r"%|per ?cent", re.IGNORECASE)
_MILLISECONDS, _MEMORY = ("_ms", "_milliseconds", "_msec"), ("gb", "gib", "mb", "mib")


class Column(NamedTuple):
    """Whose column a heading is, and the unit of its numbers where the heading has one."""

    name: str
    unit: str = ""


def column_of(heading: str, known: Collection[str] = ()) -> Column | None:
    """The column that another name stands for, or one of ``known`` with other marks; None where it is no such name."""
    plain = _plain(_AVERAGED.sub("", heading))
    if plain in known:
        return Column(plain)
    for name, unit in (_without_unit(plain), _without_unit(_shorter(plain))):
        if name in OTHER_NAMES and (name not in UNIT_TELLS or unit) and _fits(OTHER_NAMES[name], unit):
            return Column(OTHER_NAMES[name], unit)
    return None


def meant(heading: str) -> str:
    """What a heading may mean that could be several columns; nothing where it is no such name."""
    return AMBIGUOUS.get(_without_unit(_shorter(_plain(heading)))[0], "")


def _plain(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", heading.lower()).strip("_")


def _shorter(name: str) -> str:
    for words, short in _SHORTER:
        name = re.sub(words, short, name)
    return name


def _without_unit(name: str) -> tuple[str, str]:
    for unit in _MILLISECONDS:
        if name.endswith(unit) or name.startswith(f"{unit[1:]}_"):
            return (name.removesuffix(unit) if name.endswith(unit) else f"s_{name.split('_', 1)[1]}"), "ms"
    parts = name.split("_")
    if found := [unit for unit in _MEMORY if unit in parts]:
        return "_".join(part for part in parts if part not in _MEMORY), found[0]
    return name.removesuffix("_s") if name.endswith("time_s") else name, ""


def _fits(column: str, unit: str) -> bool:
    return not unit or column == ("step_time_s" if unit == "ms" else "mem_peak_gb_per_gpu")


def read_as(header: Sequence[str], known: Collection[str]) -> dict[str, Column]:
    """Headings that stand for a column of ``known`` which the table has not, the first of several."""
    found: dict[str, Column] = {}
    taken = set(header)
    for heading in header:
        column = None if heading in known else column_of(heading, known)
        if column and column.name not in taken:
            found[heading] = column
            taken.add(column.name)
    return found


def in_units(cells: Mapping[str, str], columns: Mapping[str, Column]) -> dict[str, str]:
    """A row whose cells stand under the columns that headings mean, with those in the units of the columns."""
    read = {column.name: _converted(cells[column.name].strip(), column) for column in columns.values()
            if column.name in cells}  # fmt: skip
    said = {column: kind for heading in columns for words, column, kind in _KINDS if words in _plain(heading)}
    return {**said, **cells, **read}


def _converted(cell: str, column: Column) -> str:
    """A time or peak with the unit of its heading, unless it has its own; an MFU below 1 as a share."""
    if column.unit:
        return with_unit(cell, column.unit)
    if column.name not in ("mfu_pct", "hfu_pct") or _PERCENT.search(cell):
        return cell
    value = number_in(column.name, cell)
    return repr(value * 100) if value and 0 < value < 1 else cell
