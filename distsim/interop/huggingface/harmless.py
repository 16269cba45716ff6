"""Keys that change neither memory nor time: told apart from keys that a user should know were not used."""

from __future__ import annotations

import re

_HARMLESS = re.compile(
    r"^_|(^|\.)(_|architectures$|auto_map|id2label|label2id|problem_type|torch_dtype|dtype$|transformers_version|"
    r"model_type|use_cache|output_|return_dict|is_encoder_decoder|is_decoder|chunk_size_feed_forward|task_specific|"
    r"initializer_range|init_|.*token_id|.*_eps(ilon)?$|rope_|rotary_emb_base|.*theta|.*scal(e|ing|ar|ars).*|"
    r"pretraining_tp|summary_|tokenizer_class|.*softcapping|.*_multiplier|router_|.*aux_loss.*|norm_topk_prob|"
    r"topk_(group|method)|n_group|n_groups|scoring_func|seq_aux|quantization_config|.*clip.*|embedding_fraction|"
    r"logit_|norm_type|attn_impl|attn_type|finetuning_task|name_or_path|prefix_lm|softmax_|unk_|classifier_dropout|"
    r"use_bidirectional|generation|.*jitter.*|verbose|bias_dropout_fusion|original_max_position|ep_size|"
    r"gradient_checkpointing|transformers\.|query_pre_attn|hidden_act|cla_share|tie_encoder|pruned_heads|"
    r"use_parallel_embedding|onnx|use_flash_attn|use_dynamic_ntk|use_logn_attn|fp16|bf16|fp32|no_rope)"
)


def matters(key: str) -> bool:
    """Whether leaving this dotted key unread could change memory or time."""
    return _HARMLESS.search(key) is None
