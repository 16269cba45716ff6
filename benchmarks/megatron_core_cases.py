"""The models and jobs that benchmarks/megatron_core.py records, each job in distsim's words."""

from __future__ import annotations

import itertools
from typing import Any

SEQ = 64
SHAPE = {"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 4, "num_attention_heads": 8,
         "max_position_embeddings": 512, "vocab_size": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-6,
         "tie_word_embeddings": False, "attention_bias": False}  # fmt: skip
GROUPED = {**SHAPE, "num_key_value_heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    "dense": {**GROUPED, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False},
    "tied": {**GROUPED, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16,
             "tie_word_embeddings": True},
    "biases": {**SHAPE, "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "intermediate_size": 512,
               "hidden_act": "gelu", "use_parallel_residual": False, "rotary_pct": 1.0, "layer_norm_eps": 1e-5,
               "attention_bias": True},
    "experts": {**GROUPED, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 16,
                "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "decoder_sparse_step": 1,
                "mlp_only_layers": [], "norm_topk_prob": True},
    "latents": {**SHAPE, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "head_dim": 8,
                "num_key_value_heads": 8, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
                "moe_intermediate_size": 96, "first_k_dense_replace": 1, "q_lora_rank": 48, "kv_lora_rank": 32,
                "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_group": 1, "topk_group": 1,
                "routed_scaling_factor": 1.0, "norm_topk_prob": True, "scoring_func": "sigmoid",
                "topk_method": "noaux_tc", "num_nextn_predict_layers": 1, "moe_layer_freq": 1},
}  # fmt: skip


def structure(model: dict[str, Any]) -> dict[str, Any]:
    """TransformerConfig's options for a network."""
    from torch.nn.functional import gelu, silu

    plain = model["model_type"] == "gpt_neox"
    found = {
        "num_layers": model["num_hidden_layers"], "hidden_size": model["hidden_size"],
        "num_attention_heads": model["num_attention_heads"], "ffn_hidden_size": model["intermediate_size"],
        "add_bias_linear": plain, "gated_linear_unit": not plain, "activation_func": gelu if plain else silu,
        "normalization": "LayerNorm" if plain else "RMSNorm", "qk_layernorm": "head_dim" in model,
    }  # fmt: skip
    if "q_lora_rank" not in model:
        found["num_query_groups"] = model.get("num_key_value_heads", model["num_attention_heads"])
    if experts := model.get("num_experts") or model.get("n_routed_experts"):
        found |= {
            "num_moe_experts": experts, "moe_router_topk": model["num_experts_per_tok"],
            "moe_ffn_hidden_size": model["moe_intermediate_size"], "moe_router_force_load_balancing": True,
            "moe_router_load_balancing_type": "none", "moe_token_dispatcher_type": "alltoall",
        }  # fmt: skip
    if "q_lora_rank" in model:
        first = model["first_k_dense_replace"]
        found |= {
            "q_lora_rank": model["q_lora_rank"], "kv_lora_rank": model["kv_lora_rank"], "rope_type": "rope",
            "qk_head_dim": model["qk_nope_head_dim"], "qk_pos_emb_head_dim": model["qk_rope_head_dim"],
            "v_head_dim": model["v_head_dim"], "multi_latent_attention": True,
            "moe_layer_freq": [int(layer >= first) for layer in range(model["num_hidden_layers"])],
            "moe_shared_expert_intermediate_size": model["n_shared_experts"] * model["moe_intermediate_size"],
            "moe_router_score_function": "sigmoid",
        }  # fmt: skip
    return found


def recomputation(job: dict[str, Any]) -> dict[str, Any]:
    """TransformerConfig's options for what a job computes again."""
    if modules := job.get("recompute_modules"):
        found = {"recompute_granularity": "selective", "recompute_modules": modules.split(",")}
        legacy = {"moe_grouped_gemm": True, "moe_use_legacy_grouped_gemm": True}
        return found | (legacy if "moe_act" in modules else {})
    if job.get("recompute") != "full":
        return {}
    block, group = job.get("recompute_layers"), job.get("recompute_group", 1)
    return {"recompute_granularity": "full", "recompute_method": "block" if block else "uniform",
            "recompute_num_layers": block or group}  # fmt: skip


STEPS: list[dict[str, Any]] = []
STATES: list[dict[str, Any]] = []
SAVED: list[dict[str, Any]] = []
HELD: list[dict[str, Any]] = []
MODULES: list[dict[str, Any]] = []


def _step(model: str, beside: dict[str, Any] | None = None, **job: Any) -> None:
    """A job with exchanges not overlapped unless it says so; ``beside`` are settings that no job has."""
    STEPS.append({"model": model, **(beside or {}), "job": {"zero": 1, "dp_comm_overlap": False, **job}})


SEQUENCE = {"tp": 2, "sequence_parallel": True}
FULL = {"recompute": "full"}
WIDE = {"moe_router_dtype": "fp32"}
BALANCED = {"moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 0.01}
for _model in ("dense", "tied", "biases"):
    for _parallel in (SEQUENCE, {"tp": 2, "sequence_parallel": False}, {"tp": 4, "sequence_parallel": True}, {}):
        _step(_model, gpus=8, **_parallel)
        _step(_model, gpus=8, micro_batch=2, global_batch=48, precision="bf16-fp32-grads", **_parallel)
    _step(_model, gpus=8, **{**SEQUENCE, "zero": 0})
_fused = {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"}
_step("dense", {"loss_exchange": "joined", "megatron": _fused}, gpus=8, **SEQUENCE)
FEWER_KEYS = {"tp": 8, "gpus": 8, "sequence_parallel": True}
for _again in ({}, FULL, {"sequence_parallel": False}):
    _step("dense", **{**FEWER_KEYS, **_again})
_step("tied", **FEWER_KEYS)
for _parallel in (SEQUENCE, {"tp": 2, "sequence_parallel": False}):
    for _again in (FULL, {**FULL, "recompute_layers": 2}, {**FULL, "recompute_group": 2}):
        _step("dense", gpus=4, **_parallel, **_again)
    for _again in ("core_attn", "mlp", "core_attn,mlp"):
        _step("dense", gpus=4, **_parallel, recompute_modules=_again)
for _model, _stages in itertools.product(("dense", "tied"), (2, 4)):
    for _stage in (0, 1, 3) if _stages == 4 else (0, 1):
        _step(_model, {"stage": _stage}, gpus=16, pp=_stages, **SEQUENCE, global_batch=16)
    for _stage in (0, _stages - 1):
        _step(_model, {"stage": _stage}, gpus=8, pp=_stages, global_batch=16, precision="bf16-fp32-grads")
    if _stages == 2:
        for _stage in (0, 1):
            _step(_model, {"stage": _stage}, gpus=8, pp=2, vpp=2, **SEQUENCE, global_batch=8)
for _overlapped in ({"gpus": 8}, {"gpus": 8, "zero": 0}, {"gpus": 8, "global_batch": 16}, {"gpus": 8, "zero_group": 4}):
    _step("dense", {"bucket": 50_000}, **_overlapped, dp_comm_overlap=True)
for _stage, _chunks in itertools.product((0, 1), (1, 2)):
    _step("dense", {"bucket": 50_000, "stage": _stage}, gpus=4, pp=2, vpp=_chunks, global_batch=8, dp_comm_overlap=True)
_step("dense", gpus=4, zero_group=2)
_step("dense", gpus=4, cp=2)
_step("tied", gpus=8, cp=2, **SEQUENCE)
_LATENT: dict[str, tuple[str, ...]] = {"experts": (), "latents": ("mlp", "mla_up_proj", "shared_experts")}
for _model in ("experts", "latents"):
    _step(_model, gpus=4, ep=1, etp=1)
    for _ep, _etp in ((4, 1), (2, 1), (2, 2)):
        _step(_model, gpus=4, ep=_ep, etp=_etp, global_batch=8)
    _step(_model, gpus=4, ep=4, etp=1, zero=0)
    for _ep, _etp in ((2, 1), (8, 1), (4, 2), (2, 2), (1, 2)):
        _step(_model, gpus=8, ep=_ep, etp=_etp, **SEQUENCE)
    _step(_model, gpus=8, tp=4, sequence_parallel=True, ep=2, etp=2)
    _step(_model, gpus=4, ep=4, etp=1, **SEQUENCE, **FULL)
    for _again in ("moe", "moe_act", "core_attn", *_LATENT[_model]):
        _step(_model, gpus=4, ep=2, etp=1, **SEQUENCE, recompute_modules=_again)
    for _stage in (0, 1):
        _step(_model, {"stage": _stage}, gpus=8, pp=2, ep=2, etp=1, **SEQUENCE, global_batch=4)
    _step(_model, gpus=4, ep=4, etp=1, capacity_factor=1.0)
    _step(_model, gpus=4, ep=2, etp=1, dp_comm_overlap=True)
_step("experts", gpus=8, cp=2, ep=4, etp=1, **SEQUENCE)
_step("latents", gpus=4, ep=2, etp=1, mtp=1)
for _again in ({}, FULL):
    _step("latents", gpus=4, ep=2, etp=1, mtp=1, **SEQUENCE, **_again)
    for _stage in (0, 1):
        _step("latents", {"stage": _stage}, gpus=8, pp=2, ep=2, etp=1, mtp=1, **SEQUENCE, global_batch=4, **_again)
for _model, _etp in itertools.product(("experts", "latents"), (1, 2)):
    _step(_model, {"megatron": WIDE}, gpus=4, ep=2, etp=_etp, **SEQUENCE)
    for _beside, _again in (({}, {}), ({"megatron": WIDE}, {}), ({}, FULL)):
        _step(_model, _beside, gpus=4, ep=2, etp=_etp, **SEQUENCE, **_again, expert_dispatcher="allgather")
    _step(_model, gpus=4, ep=2 * _etp, etp=1, expert_dispatcher="allgather")
_step("experts", gpus=4, ep=1, etp=2, **SEQUENCE, expert_dispatcher="allgather")

for _model in ("dense", "tied", "biases"):
    for _precision, _zero in itertools.product(("bf16", "bf16-fp32-grads"), (0, 1)):
        STATES.append({"model": _model, "job": {"gpus": 4, "zero": _zero, "precision": _precision}})
    STATES.append({"model": _model, "job": {"gpus": 8, **SEQUENCE, "zero": 1}})
    STATES.append({"model": _model, "job": {"gpus": 8, **SEQUENCE, "zero": 1, "zero_group": 2}})
STATES.append({"model": "tied", "job": {**FEWER_KEYS, "zero": 1}})
for _model in ("experts", "latents"):
    for _ep, _etp in ((1, 2), (2, 1), (4, 1), (2, 2)):
        STATES.append({"model": _model, "job": {"gpus": 8, "zero": 1, "ep": _ep, "etp": _etp, **SEQUENCE}})
for _stage in (0, 1):
    STATES.append({"model": "latents", "stage": _stage,
                   "job": {"gpus": 4, "pp": 2, "zero": 1, "ep": 2, "etp": 1, "mtp": 1, "global_batch": 8}})  # fmt: skip
    STATES.append({"model": "tied", "stage": _stage, "job": {"gpus": 4, "pp": 2, "zero": 1, "global_batch": 8}})

for _model in ("dense", "tied", "biases"):
    _whole = {"tp": 2, "gpus": 2, "sequence_parallel": False}
    SAVED += [{"model": _model, "job": job} for job in ({}, {"micro_batch": 2}, {**SEQUENCE, "gpus": 2}, _whole)]
    SAVED.append({"model": _model, "job": {}, "fused": False})
    SAVED.append({"model": _model, "job": {**SEQUENCE, "gpus": 2, "recompute_modules": "core_attn"}})
    SAVED.append({"model": _model, "job": {"recompute": "full"}})
    SAVED.append({"model": _model, "job": {**SEQUENCE, "gpus": 2, "recompute_modules": "mlp"}})
SAVED += [{"model": "dense", "job": {**FEWER_KEYS, **again}} for again in ({}, {"recompute_modules": "core_attn"})]
for _model, _loss in (("experts", BALANCED), ("latents", {})):
    for _fused, _router in itertools.product((True, False), ({}, WIDE)):
        SAVED.append({"model": _model, "job": {"etp": 1}, "fused": _fused, "megatron": _loss | _router})
    _shared = {**SEQUENCE, "gpus": 2, "ep": 2, "etp": 1}
    SAVED.append({"model": _model, "job": _shared, "megatron": _loss})
    for _again in ("moe", "core_attn", "layernorm", "layernorm,moe", "moe_act", *_LATENT[_model]):
        _own = {"fused": False} if _again == "moe_act" else {}  # Megatron's own grouped experts never are
        SAVED.append({"model": _model, **_own, "job": {**_shared, "recompute_modules": _again}, "megatron": _loss})

for _again, _shared in itertools.product(({}, FULL), ({"etp": 1}, {**SEQUENCE, "gpus": 2, "ep": 2, "etp": 1})):
    MODULES.append({"model": "latents", "job": {**_shared, **_again}})
for _stages, _chunks, _layers, _micro in ((2, 1, 4, 4), (4, 1, 8, 8), (2, 2, 8, 4), (4, 2, 16, 16), (2, 4, 8, 8)):
    for _stage in range(_stages):
        _job = {"gpus": _stages, "pp": _stages, "vpp": _chunks, "zero": 1, "global_batch": _micro}
        HELD.append({"model": "dense", "stage": _stage, "layers": _layers, "job": _job})
