"""Keys that change neither memory nor time: told apart from keys that a user should know were not used."""

from __future__ import annotations

import re

_PATTERNS = """
    _.* architectures auto_map id2label label2id problem_type model_type torch_dtype dtype transformers_version
    name_or_path finetuning_task task_specific.* tokenizer_class generation.* output_.* return_dict use_cache verbose
    is_encoder_decoder is_decoder add_cross_attention pruned_heads tie_encoder.* chunk_size_feed_forward onnx.*
    init_.* initializer_.* embedding_initializer.* .*_eps .*_epsilon .*token_id(s)? summary_.* classifier_dropout
    rope_.* rotary_emb_base .*theta no_rope.* original_max_position.* .*scal(e|ing|ar|ars).* .*_multiplier
    dim_model_base attn_temperature.* alibi_bias_max embedding_fraction mup_.* query_pre_attn.* logit_.*
    .*softcapping softmax_.* attention_softmax.* .*clip.* .*_limit swiglu_alpha hidden_act hidden_activation
    router_.* .*aux_loss.* norm_topk_prob topk_group topk_method n_group n_groups scoring_func seq_aux moe_norm_min
    expert_selection.* .*jitter.* ep_size pretraining_tp layerdrop slow_but_exact reorder_and_upcast.* norm_type
    attn_impl attn_type attn_uses_sequence_id prefix_lm use_bidirectional.* use_flash_attn use_dynamic_ntk
    use_logn_attn use_parallel_embedding bias_dropout_fusion directionality pooler_.* vocab_list token_dropout
    classifier_.* seq_classif_dropout qa_dropout deterministic.* sinusoidal_pos_embds reference_compile repad_.*
    (text|vision)_config_dict early_stopping num_beams no_repeat_ngram_size length_penalty (max|min)_length top_[kp]
    (begin_)?suppress_tokens mask_.* time_step_(floor|max|min|init.*) classif_dropout
    mla_use_nope moe_renormalize moe_router_.* num_expert_group(s)? normalization_function num_logits_to_keep
    linear_(a_log_max|allow_neg_eigval|dt_(init_floor|max|min)) num_image_tokens use_expert_bias
    hc_magnitude learnable_sink_init logits_soft_cap w_init_variance_scale .*_(alpha|beta)_factor
    use_mamba_kernels mamba_hidden_act moe_gate moe_capacity moe_use_aux_free route_norm score_func(tion)? unsloth_.*
    initial_context_length load_balance_coeff num_limited_groups use_grouped_(mm|topk) use_routing_bias lm_head
    use_rotary_pos_emb (im|text)_((start|end)_)?id num_media_embeds org_vocab_size pool_type cla_share_factor
    use_mixed_mlp_moe use_rmsnorm use_mtp
    shared_moe_mode cache_implementation order_of_interleaved_layers attn_implementation tokenizer_name
    layernorm_.*_(alpha|beta) initializer_cutoff.* gradient_checkpointing fp16 bf16 fp32 unk_.*
"""
_HARMLESS = re.compile(rf"(.*\.)?({'|'.join(_PATTERNS.split())})(\..*)?")


def matters(key: str) -> bool:
    """Whether leaving this dotted key unread could change memory or time."""
    return _HARMLESS.fullmatch(key) is None
