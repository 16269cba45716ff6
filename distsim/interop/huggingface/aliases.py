"""Names that configurations give to one thing, in the order in which they are looked for."""

from __future__ import annotations

NAMES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "dim", "model_dim", "embed_dim", "hidden_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "decoder_attention_heads"),
    "kv_heads": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_kv_heads",
        "n_head_kv",
        "multi_query_group_num",
        "num_query_groups",
        "attn_config.kv_n_heads",
    ),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim", "attn_config.head_dim"),
    "ffn": (
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        "ffn_config.ffn_hidden_size",
        "decoder_ffn_dim",
        "feed_forward_size",
    ),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "max_sequence_length",
        "n_ctx",
        "model_max_length",
    ),
    "activation": (
        "hidden_act",
        "hidden_activation",
        "activation_function",
        "activation",
        "ffn_config.ffn_act_fn.name",
        "ffn_act_fn.name",
    ),
    "tied": ("tie_word_embeddings", "tie_embeddings", "share_embeddings_and_output_weights"),
    "rotary_fraction": (
        "partial_rotary_factor",
        "rope_parameters.partial_rotary_factor",
        "rotary_pct",
        "rope_pct",
        "rotary_percentage",
    ),
    "attention_dropout": (
        "attention_dropout",
        "attn_pdrop",
        "attn_dropout",
        "attn_config.attn_pdrop",
        "attention_dropout_prob",
        "attention_probs_dropout_prob",
        "attn_dropout_prob",
    ),
    "hidden_dropout": (
        "resid_pdrop",
        "hidden_dropout",
        "resid_dropout",
        "residual_dropout",
        "dropout",
        "hidden_dropout_prob",
    ),
    "embedding_dropout": ("embd_pdrop", "embed_dropout", "emb_pdrop", "embedding_dropout", "emb_dropout_prob"),
    "window": ("sliding_window", "attention_window_size", "sliding_window_size"),
    "window_every": ("sliding_window_pattern", "_sliding_window_pattern"),
    "layer_types": ("layer_types", "attention_layers"),
    "experts": (
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "moe_num_experts",
        "ffn_config.moe_num_experts",
    ),
    "experts_per_token": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "moe_topk",
        "moe_k",
        "num_selected_experts",
        "ffn_config.moe_top_k",
    ),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    "shared_experts": (
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
        "num_shared_expert",
    ),
    "shared_ffn": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "shared_each": (),
    "mtp_layers": (
        "num_nextn_predict_layers",
        "num_mtp_layers",
        "mtp_num_layers",
        "mtp_num_hidden_layers",
        "num_mtp_modules",
    ),
}

_ACTIVATIONS = """
    gelu gelu_10 gelu_accurate gelu_erf gelu_fast gelu_new gelu_python gelu_python_tanh gelu_pytorch_tanh gelu_tanh
    geglu laplace leaky_relu linear mish prelu quick_gelu relu relu2 relu6 relu_squared sigmoid silu swiglu swish tanh
    xielu
"""
ACTIVATIONS = tuple(_ACTIVATIONS.split())
"""Names of activations (transformers activations.py, ACT2FN), and those that distsim's own presets use beside them."""
