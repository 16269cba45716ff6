"""What the arguments of Megatron and the YAML of NeMo come to beyond their degrees. Keys and defaults as in
NVIDIA/Megatron-LM megatron/training/arguments.py and NVIDIA/NeMo megatron_gpt_config.yaml (recalled)."""

from __future__ import annotations

from distsim.interop.other_precisions import BRIDGE, nemo_bf16, sixteen_beside_narrow, sums_in_fp32
from distsim.interop.other_stated import PER_NODE, Stated, last_of, ranks_of
from distsim.interop.other_switches import STATES_AWARE, megatron_switches, states_aware

_SUMMED = (
    "num_nodes nnodes n_nodes dp data_parallel_size num_layers_per_virtual_pipeline_stage "
    "num_distributed_optimizer_instances data_parallel_sharding_strategy recompute_num_layers recompute_method "
    "recompute_modules decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
    "pipeline_model_parallel_layout bf16 fp16 fp8_format fp8_recipe precision overlap_grad_reduce "
    "overlap_param_gather grad_reduce_in_bf16 sequence_parallel use_distributed_optimizer "
    "moe_token_dispatcher_type moe_enable_deepep moe_flex_dispatcher_backend fp8_param_gather "
    "activations_checkpoint_num_layers activations_checkpoint_method recompute_layer tp_mode pp_engine "
    "accumulate_grad_in_fp32 dtype grad_sync_dtype grad_reduce_in_fp32 megatron_amp_o2 overlap_grad_sync "
    "fp8_params fp8_param cp_comm_type overlap_moe_expert_parallel_comm moe_expert_capacity_factor "
    "moe_pad_expert_input_to_capacity cuda_graph_impl cuda_graph_scope enable_cuda_graph external_cuda_graph "
    "num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage account_for_embedding_in_pipeline_split "
    "account_for_loss_in_pipeline_split moe_layer_recompute fp4_format fp4_recipe fp4 offload_modules"
)
SHARDED = ("distributed_fused_adam", "distributed_adam", "mcore_distributed_optim")
"""Optimizers of apex and NeMo whose states are sharded."""
ADAMS = (*SHARDED, "fused_adam", "adam", "adamw")
"""Optimizers that are what is taken anyway."""
CONSUMED = frozenset((*PER_NODE, *STATES_AWARE, *_SUMMED.split()))
"""Keys of Megatron and NeMo that are read together with others, beside those that are options by themselves."""


OF_ACCELERATE = "megatron_lm_"
"""How accelerate's keys begin that are arguments of Megatron."""


def by_megatron(stated: Stated) -> Stated:
    """A configuration of accelerate whose steps Megatron runs, in Megatron's own keys; others as they are."""
    if f"{stated.of('distributed_type')}".upper() != "MEGATRON_LM":
        return stated
    keys = {key.replace(OF_ACCELERATE, ""): value for key, value in stated.keys.items()}
    return stated._replace(framework="megatron-lm", keys=keys)


def megatron(told: dict[str, str], stated: Stated) -> None:
    """Switches that are on here where nothing is said, and off on Megatron's command line."""
    off = stated.of("sequence_parallel")
    if int(told.get("tp", 1)) > 1 and (off is False or (stated.arguments and off is None)):
        told["no_sequence_parallel"] = ""
    named = nemo_optimizer(stated)
    if named in SHARDED:
        told.setdefault("zero", "1")
    other_optimizer(told, named)
    dispatcher = f"{stated.of('moe_token_dispatcher_type')}"
    if dispatcher == "allgather":
        told.setdefault("expert_dispatcher", dispatcher)
    if dispatcher == "flex":
        backend = f"{stated.of('moe_flex_dispatcher_backend') or 'deepep'}".lower()
        told.setdefault("expert_dispatcher", "hybridep" if backend == "hybridep" else "deepep")
    narrow, half = told.get("precision"), sums_in_fp32(stated) is False
    if stated.of("fp8_param_gather", "fp8_params", "fp8_param") is True and narrow in ("fp8", "mxfp8"):
        told["precision"] = f"{narrow}-parameters{'' if half else '-fp32-grads'}"
    if told.get("precision") == "fp8-parameters" and stated.framework == BRIDGE and sums_in_fp32(stated):
        told["precision"] = "fp8-parameters-fp32-grads"
    sixteen_beside_narrow(told, stated)
    megatron_switches(told, stated)
    if not stated.arguments:
        nemo_bf16(told, stated)
        if stated.of("overlap_grad_reduce", "overlap_grad_sync") is False:
            told["no_dp_comm_overlap"] = ""
    else:
        if ranks_of(told) > 1 and not any(map(stated.of, ("overlap_grad_reduce", "use_megatron_fsdp"))):
            told["no_dp_comm_overlap"] = ""
        if stated.of("bf16") is True:
            told.setdefault("precision", "bf16" if half else "bf16-fp32-grads")
    states_aware(told, stated)


def nemo_optimizer(stated: Stated) -> str:
    """The optimizer that a YAML of NeMo or nanotron names in a section of its own, in small letters; empty where it
    names none."""
    named = (value for key, value in stated.keys.items() if names_optimizer(key) and isinstance(value, str))
    return next(named, "").lower()


def names_optimizer(key: str) -> bool:
    """Whether a key's value is an optimizer's name (optim.name, optimizer_factory.name)."""
    return last_of(key) == "name" and key.lower().split(".")[-2:-1] in (["optim"], ["optimizer_factory"])


def other_optimizer(told: dict[str, str], named: str) -> None:
    """Put an optimizer into ``told`` that is known and not what is taken anyway."""
    from distsim import catalog

    if named and named not in ADAMS and catalog.knows("optimizers", named):
        told.setdefault("optimizer", named)
