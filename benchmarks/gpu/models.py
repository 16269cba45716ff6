"""Networks that the GPU benchmarks train: transformers' own, with random weights, at their published shapes.

Built by ``python benchmarks/gpu/steps.py FOLDER``, whose cases name them; needs torch, transformers and a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

LLAMA3 = {"vocab_size": 128256, "rope_theta": 500000.0, "num_key_value_heads": 8, "max_position_embeddings": 131072}
# Kind of configuration and of model, and what differs from the configuration's defaults.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama-3.2-1b": ("LlamaConfig", "LlamaForCausalLM", LLAMA3 | {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "head_dim": 64, "tie_word_embeddings": True}),
    "llama-3-8b": ("LlamaConfig", "LlamaForCausalLM", LLAMA3 | {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}),
    "llama-2-7b": ("LlamaConfig", "LlamaForCausalLM", {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "max_position_embeddings": 4096}),
    "tinyllama-1.1b": ("LlamaConfig", "LlamaForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4}),
    "qwen2.5-0.5b": ("Qwen2Config", "Qwen2ForCausalLM", {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}),
    "qwen2.5-1.5b": ("Qwen2Config", "Qwen2ForCausalLM", {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}),
    "gemma-2-2b": ("Gemma2Config", "Gemma2ForCausalLM", {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000, "query_pre_attn_scalar": 256}),
    "olmoe-1b-7b": ("OlmoeConfig", "OlmoeForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "vocab_size": 50304}),
    "mixtral-8x7b": ("MixtralConfig", "MixtralForCausalLM", {}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {}),
    "gpt2-xl": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "bert-large-uncased": ("BertConfig", "BertForMaskedLM", {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}),
    "vit-large-patch16-224": ("ViTConfig", "ViTForImageClassification", {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_labels": 1000}),
    "t5-base": ("T5Config", "T5ForConditionalGeneration", {
        "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "decoder_start_token_id": 0}),
}  # fmt: skip
SEQ2SEQ = {"t5-base": 128}
"""Tokens that the decoder of such a model reads."""


def config_of(name: str, changes: dict[str, Any]) -> Any:
    """The configuration of a model with some of its arguments changed."""
    kind, _, arguments = MODELS[name]
    return getattr(transformers, kind)(**{**arguments, "use_cache": False, **changes})


def build(name: str, attention: str, dtype: torch.dtype, changes: dict[str, Any]) -> Any:
    """The network on the GPU, with random weights of ``dtype``."""
    config = config_of(name, changes)
    config._attn_implementation = attention
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            return getattr(transformers, MODELS[name][1])(config)
    finally:
        torch.set_default_dtype(before)


def inputs_of(name: str, rows: int, seq: int, dtype: torch.dtype, changes: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Random inputs and labels of ``rows`` samples."""
    config = config_of(name, changes)
    if name.startswith("vit"):
        pixels = torch.randn(rows, 3, config.image_size, config.image_size, device="cuda", dtype=dtype)
        return {"pixel_values": pixels, "labels": torch.randint(config.num_labels, (rows,), device="cuda")}
    tokens = torch.randint(config.vocab_size, (rows, seq), device="cuda")
    if name in SEQ2SEQ:
        return {"input_ids": tokens, "labels": torch.randint(config.vocab_size, (rows, SEQ2SEQ[name]), device="cuda")}
    return {"input_ids": tokens, "labels": tokens.clone()}


def shape_of(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Cells that tell the shape of a decoder that no preset describes (docs/runs.md)."""
    config = config_of(name, changes)
    family = MODELS[name][0].removesuffix("Config").lower()
    experts = getattr(config, "num_local_experts", 0) or getattr(config, "num_experts", 0) or ""
    return {
        "model": f"{name} with {config.num_hidden_layers} layers", "family": family,
        "layers": config.num_hidden_layers, "hidden": config.hidden_size, "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads, "ffn_hidden": config.intermediate_size, "gated_mlp": 1,
        "vocab": config.vocab_size, "tied_embeddings": int(bool(config.tie_word_embeddings)),
        "n_experts": experts, "top_k": config.num_experts_per_tok if experts else "",
        "moe_ffn_hidden": config.intermediate_size if experts else "",
    }  # fmt: skip
