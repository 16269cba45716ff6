"""Files of Megatron, NeMo and nanotron that state a network by its sizes, which is enough to read them: as a model, and
as a job of that model and of the options that the file comes to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distsim.interop.megatron_network import ELSEWHERE, Network, lacks, read_network
from distsim.interop.nanotron_network import nanotron_network
from distsim.interop.other_files import READ, Kind, found_kind, keys_and_text, stated_twice
from distsim.interop.other_megatron import CONSUMED
from distsim.interop.other_options import batch_of_ranks, left_of, meant_by, whole_of
from distsim.interop.other_precisions import unstated_o2
from distsim.interop.other_stated import Stated, last_of, ranks_of
from distsim.interop.other_structure import yaml_fault
from distsim.interop.other_unread import not_understood
from distsim.other_names import Here, without_effect
from distsim.plain_files import text_of

MOST_NAMED = 12
"""Keys of a file that are named one by one as not read."""
MOST_UNREAD = 60
"""Beyond so many they are only counted."""
ELSE = re.compile(r"\bpretrain_(?:bert|t5|ict|mamba|vision\w*|vlm|hybrid)\b")
"""Scripts of Megatron that train no decoder of these sizes."""
_HARMLESS = (
    "master_addr master_port node_rank rdzv_id rdzv_endpoint vocab_file merge_file split mock_data manual_gc "
    "manual_gc_interval accelerator mcore_gpt layernorm_epsilon tokenizer optim data log_throughput timing_log_level "
    "tensorboard_dir wandb_project wandb_exp_name wandb_save_dir exp_manager name clip_grad distributed_backend "
    "no_load_optim no_load_rng exit_duration_in_mins transformer_impl explicit_log_dir log_every_n_steps "
    "val_check_interval limit_val_batches limit_test_batches logger enable_checkpointing benchmark sched betas "
    "checkpoint_callback_params resume_if_exists resume_ignore_no_checkpoint create_checkpoint_callback "
    "create_wandb_logger create_tensorboard_logger use_distributed_sampler do_layer_norm_weight_decay warmup_steps "
    "constant_steps min_lr weight_decay lr data_impl splits_string index_mapping_dir no_seqlen_plus_one_input_tokens "
    "pad_with_space reset_position_ids reset_attention_mask eod_mask_loss dataloader_type num_workers ckpt_format "
    "language_model use_cpu_initialization bias_activation_fusion gradient_clip_val run results_dir time_limit "
    "dependency data_cache_path no_create_attention_mask_in_dataloader no_mmap_bin_files log_params_norm "
    "log_num_zeros_in_grad log_timers_to_tensorboard log_memory_to_tensorboard log_validation_ppl_to_tensorboard "
    "log_progress eval_global_batch_size distributed_timeout_minutes override_opt_param_scheduler group_name "
    "init_method init_method_std model_type moe_router_load_balancing_type moe_aux_loss_coeff test_mode "
    "torch_adam_is_fused tokenizer_name_or_path tokenizer_revision tokenizer_max_length tp_linear_async_communication "
    "accumulate_allreduce_grads_in_fp32 bert_binary_head encoder_num_layers add_position_embedding moe_layer_freq "
    "restore_from_path use_scaled_init_method apply_query_key_layer_scaling pre_process post_process headscale "
    "persist_layer_norm normalize_attention_scores native_amp_init_scale native_amp_growth_interval transformer_engine "
    "grad_allreduce_chunk_size_mb resume_from_checkpoint reduce_amax use_emha fp8_e4m3 fp8_hybrid fp8_margin "
    "fp8_interval fp8_amax_history_len fp8_amax_compute_algo contiguous_grad_buffer contiguous_param_buffer "
    "lr_decay_samples lr_warmup_samples decoupled_lr decoupled_min_lr tiktoken_pattern calculate_per_token_loss "
    "average_in_collective apply_layernorm_1p moe_router_score_function moe_router_enable_expert_bias "
    "moe_router_bias_update_rate moe_router_topk_scaling_factor mtp_loss_scaling_factor _target_ _call_ _args_"
)
HARMLESS = frozenset(_HARMLESS.split())
"""Keys that change neither memory nor time, or that only head a section (recalled)."""
_SECTIONS = "checkpoints general logging exp_manager data data_stages profiler s3_upload lighteval init_method"
SECTIONS = frozenset((*_SECTIONS.split(), "learning_rate_scheduler"))
"""Sections of YAML files that change neither."""
_OFF = (False, "0.0")
UNSAID = {"gpus": "how many accelerators there are", "seq": "the length of a sequence"}
"""Options that a job of such a file needs, and what they say."""


class Read(NamedTuple):
    """A file's job: options by name, and what to say of how it was read."""

    options: dict[str, Any]
    notes: tuple[str, ...]


def states_network(path: Path) -> bool:
    """Whether a file states a network by its sizes."""
    return _network_file(path) is not None


def network_in(path: Path) -> Network | None:
    """The network whose sizes a file states; None where it is no such file."""
    found = _network_file(path)
    return _network(found[1], path) if found is not None else None


def network_notes(path: Path) -> Iterator[str]:
    """What to say of a model that was read from such a file."""
    found = _network_file(path)
    if found is None:
        return
    kind, stated = found
    network = _network(stated, path)
    if network.assumed:
        yield f"{path}: the model is that of {kind.called}; not stated and assumed: {'; '.join(network.assumed)}"
    if twice := [key for key in stated_twice(path) if last_of(key) in network.used]:
        yield f"{path}: {', '.join(twice)} stated more than once: the last value is taken"


def job_in(path: Path, kinds: Mapping[str, Any]) -> Read | None:
    """The job that a file states; None where it does not state a network. ``kinds`` has the type of each option."""
    found = _network_file(path)
    if found is None:
        return None
    kind, stated = found
    told, each, framework = whole_of(stated, kind.rank, dict(kind.silent))
    _defaults(told, stated)
    notes = [*batch_of_ranks(told, each), *left_of(stated.keys, told)]
    if each and (ranks := ranks_of(told)):
        told.setdefault("global_batch", f"{ranks * each}")
    options = dict(_typed(told, kinds))
    typed = " ".join(Here(name, text).as_option() for name, text in told.items())
    lines = [f"{path}: read as {kind.called}: --framework {framework} {typed}"]
    lines += [f"{path}: {what} is not stated there: {Here(name).as_option()} says it"
              for name, what in UNSAID.items() if name not in told]  # fmt: skip
    if path.suffix.lower() in (".yaml", ".yml") and (fault := yaml_fault(text_of(path))):
        lines.append(f"{path}: malformed YAML, read line by line all the same: {fault}")
    if off := unstated_o2(told, stated):
        lines.append(f"{path}: {off}")
    if notes:
        lines.append(f"{path}: to be stated besides: {'; '.join(notes)}")
    unread = [*not_understood(stated, told), *_unread(stated.keys, _network(stated, path).used)]
    if len(unread) > MOST_UNREAD:  # a log has all arguments, most as they are by default
        lines.append(f"{path}: {len(unread)} other arguments are not read")
    elif unread:
        more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
        lines.append(f"{path}: not read: {', '.join(unread[:MOST_NAMED])}{more}")
    return Read({"model": str(path), "framework": framework, **options}, tuple(lines))


def _network_file(path: Path) -> tuple[Kind, Stated] | None:
    """What a file is and says, where it is one of those that are read."""
    if path.suffix.lower() == ".py":
        return None  # recipes name their models
    keys, text = keys_and_text(path)
    kind = found_kind(keys, text)
    if kind is None or not kind.framework.startswith(READ) or ELSE.search(text):
        return None
    stated = Stated(keys, kind.framework, path.parent)
    return None if lacks(stated) else (kind, stated)


def _network(stated: Stated, path: Path) -> Network:
    return nanotron_network(stated, path) if stated.framework == "nanotron" else read_network(stated, path)


def _defaults(told: dict[str, str], stated: Stated) -> None:
    """What Megatron's command line does where nothing is said, and distsim does not."""
    if not stated.arguments:
        return
    if "precision" not in told and not any(stated.of(name) for name in ("bf16", "fp16", "fp8_format", "fp8")):
        told["precision"] = "fp32"
    if not stated.number("num_experts"):
        told.pop("etp", None)
    elif "tp" in told:
        told["etp"] = f"{stated.number('expert_tensor_parallel_size') or told['tp']}"


def _typed(told: Mapping[str, str], kinds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Options with values of their types."""
    for name, text in told.items():
        if name not in kinds and (positive := name.removeprefix("no_")) in kinds:
            yield positive, False
        elif kinds.get(name) is bool:
            yield name, True
        else:
            number = kinds.get(name) if kinds.get(name) in (int, float) else None
            yield name, number(text) if number is not None else text


def _unread(keys: Mapping[str, Any], used: frozenset[str]) -> list[str]:
    """Keys that nothing here read, by themselves or their last parts, and that may change an answer; not those that
    head others or say nothing. What is switched off comes last."""
    known, heads = used | CONSUMED | HARMLESS | {*ELSEWHERE}, {key[:place] for key in keys for place in _dots(key)}
    left = [key for key, value in keys.items()
            if value not in (None, "null", "~") and not {key, last_of(key)} & known and key not in heads
            and not SECTIONS & set(key.split(".")) and meant_by(key) is None
            and not without_effect(last_of(key))]  # fmt: skip
    return sorted(left, key=lambda key: keys[key] in _OFF)


def _dots(key: str) -> Iterator[int]:
    return (place for place, letter in enumerate(key) if letter == ".")
