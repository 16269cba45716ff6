"""Configurations that makers' own code writes: Mistral's params.json, OLMo's, switches of Hunyuan and DeepSeek, keys
that say again what is known."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.jobs.models import load_model
from distsim.errors import DistsimError
from distsim.interop.huggingface import Reading, read_config

MISTRAL = {"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "n_heads": 32, "n_kv_heads": 8,
           "norm_eps": 1e-5, "vocab_size": 131072, "max_seq_len": 32768}  # fmt: skip
OCR = {"architectures": ["DeepseekV2ForCausalLM"], "first_k_dense_replace": 1, "hidden_size": 1280, "use_mla": False,
       "intermediate_size": 6848, "kv_lora_rank": None, "lm_head": True, "max_position_embeddings": 8192,
       "moe_intermediate_size": 896, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "q_lora_rank": None,
       "num_attention_heads": 10, "num_experts_per_tok": 6, "num_hidden_layers": 12, "num_key_value_heads": 10,
       "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 0,
       "vocab_size": 129280}  # fmt: skip
LING = {"first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512,
        "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 20,
        "num_key_value_heads": 4, "head_dim": 128, "num_shared_experts": 1, "partial_rotary_factor": 0.5,
        "n_group": 8, "topk_group": 4, "score_function": "sigmoid", "moe_shared_expert_intermediate_size": 512,
        "use_qk_norm": True, "use_rmsnorm": True, "vocab_size": 157184}  # fmt: skip
GROK = {"model_type": "grok-1", "vocab_size": 131072, "hidden_size": 8192, "intermediate_size": 32768,
        "moe_intermediate_size": 16384, "num_experts_per_tok": 2, "num_local_experts": 8, "num_attention_heads": 64,
        "num_key_value_heads": 8, "num_hidden_layers": 64, "head_dim": 128, "tie_word_embeddings": False}  # fmt: skip
OLMO = {"model_type": "hf_olmo", "activation_type": "swiglu", "alibi": False, "d_model": 4096, "n_heads": 32,
        "n_layers": 32, "mlp_hidden_size": 22016, "mlp_ratio": 4, "max_sequence_length": 2048, "vocab_size": 50280,
        "embedding_size": 50304, "weight_tying": False, "include_bias": False, "rope": True}  # fmt: skip
M1 = {"model_type": "minimax_m1", "attn_type_list": ([0] * 7 + [1]) * 10, "head_dim": 128, "hidden_size": 6144,
      "intermediate_size": 9216, "num_attention_heads": 64, "num_experts_per_tok": 2, "num_hidden_layers": 80,
      "num_key_value_heads": 8, "num_local_experts": 32, "vocab_size": 200064}  # fmt: skip
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
         "max_position_embeddings": 16, "head_dim": 16, "intermediate_size": 32}  # fmt: skip


def read(config: dict[str, Any], **more: Any) -> Reading:
    return read_config({**config, **more})


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (MISTRAL, 23_572_403_200),
        ({**MISTRAL, "model_type": "llama"}, 23_572_403_200),
        (OLMO, 6_888_095_744),
        (M1, 456_089_655_296),
        (GROK, 217_975_889_920),
        ({**GROK, "residual_moe": True}, 269_515_497_472),  # xAI: 270B
        ({**LING, "model_type": "bailing_moe"}, 16_255_638_528),
        ({**LING, "model_type": "bailing_moe_v2"}, 16_255_638_528),
        ({"model_type": "deepseek_vl_v2", "language_config": OCR}, 2_934_734_080),
        ({"model_type": "deepseek_vl_v2", "language_config": {**OCR, "model_type": "deepseek_v2"}}, 2_934_734_080),
    ],
)
def test_counts(config: dict[str, Any], parameters: int) -> None:
    reading = read(config)
    assert load_model(reading.model).parameters == parameters
    assert not reading.unused


def test_mistral_s_own_file_states_its_window_and_its_experts() -> None:
    plain, windowed = read(MISTRAL), read(MISTRAL, sliding_window=4096)
    assert (plain.model.window, windowed.model.window) == (None, 4096)
    mixture = read(MISTRAL, moe={"num_experts": 8, "num_experts_per_tok": 2}, vision_encoder={"hidden_size": 1024})
    assert mixture.family.name == "mixtral" and mixture.model.experts is not None
    assert mixture.derived == ("only the text decoder is read, without vision_encoder",)
    with pytest.raises(DistsimError, match="latent attention and experts of other widths"):
        read(MISTRAL, moe={"num_experts": 128, "expert_hidden_dim": 4096})


def test_another_name_that_says_otherwise_is_told() -> None:
    assert read(SMALL, model_type="llama", ffn_dim=48).unused == ("ffn_dim",)
    assert read(SMALL, model_type="llama", ffn_dim=32).unused == ()


@pytest.mark.parametrize(("sparse", "hinted"), [(False, False), (True, True)])
def test_hints_are_of_families_that_have_experts_or_not_as_the_file(sparse: bool, hinted: bool) -> None:
    experts = {"num_experts": 8} if sparse else {}
    with pytest.raises(DistsimError, match="'flex_olm' is not supported") as caught:
        read(SMALL, model_type="flex_olm", **experts)
    assert any("flex_olmo" in hint for hint in caught.value.hints) is hinted


@pytest.mark.parametrize("none", [False, 0, None])
def test_a_router_without_groups(none: Any) -> None:
    experts = {"num_experts": 4, "moe_topk": [2, 2], "num_shared_expert": [1, 1], "moe_intermediate_size": [8, 8]}
    model = read(SMALL, model_type="hunyuan_v1_moe", n_group=none, topk_group=none, **experts).model
    assert model.experts is not None and model.experts.groups == 1


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
          "llm_config": {**SMALL, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}}, ""),
        ({"architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
          "llm_config": {**SMALL, "model_type": "qwen3", "architectures": ["Qwen3Model"]}}, "Qwen3Model"),
        ({**SMALL, "architectures": ["ChatGLMModel"], "model_type": "chatglm", "padded_vocab_size": 100}, ""),
    ],
)  # fmt: skip
def test_whether_there_are_logits_is_for_the_network_with_the_vocabulary(config: dict[str, Any], told: str) -> None:
    assert read(config).other_output == told


@pytest.mark.parametrize(
    ("family", "key", "field", "on", "off"),
    [
        ("minimax_m2", "use_qk_norm", "qk_norm", "full", "none"),
        ("hunyuan_v1_dense", "use_qk_norm", "qk_norm", "head", "none"),
        ("qwen3_omni_moe_text", "use_qk_norm", "qk_norm", "head", "none"),
        ("apertus", "qk_norm", "qk_norm", "head", "none"),
        ("qwen3_5_text", "attn_output_gate", "attention_gate", True, False),
        ("cohere2", "use_gated_activation", "gated", True, False),
        ("cohere2", "use_parallel_block", "norms_per_layer", 1, 2),
    ],
)
def test_a_switch_that_says_what_is_known_is_read(family: str, key: str, field: str, on: Any, off: Any) -> None:
    for stated, meant in (({}, on), ({key: True}, on), ({key: False}, off)):
        reading = read(SMALL, model_type=family, **stated)
        assert getattr(reading.model, field) == meant
        assert key not in reading.unused


@pytest.mark.parametrize("key", ["mtp_num_hidden_layers", "num_mtp_modules"])
def test_modules_of_multi_token_prediction(key: str) -> None:
    assert read(SMALL, model_type="llama", **{key: 1}).model.mtp_layers == 1


@pytest.mark.parametrize(
    ("family", "stated", "share"),
    [("glm", {}, 0.5), ("glm4", {}, 0.5), ("glm4_moe", {}, 0.5), ("nemotron", {}, 0.5), ("persimmon", {}, 0.5),
     ("phi", {}, 0.5), ("stablelm", {}, 0.25), ("gpt_neox", {}, 0.25), ("gpt_neox", {"rotary_pct": 1.0}, 1.0),
     ("nemotron", {"rope_parameters": {"partial_rotary_factor": 1.0}}, 1.0), ("stablelm_epoch", {"rope_pct": 1.0}, 1.0),
     ("phi-msft", {"rotary_dim": 4, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 16}, 0.25),
     ("llama", {}, 1.0)],
)  # fmt: skip
def test_the_part_of_a_head_that_rotates_is_the_familys_where_no_key_says(
    family: str, stated: dict[str, Any], share: float
) -> None:
    assert read_config({"model_type": family, **SMALL, **stated}).model.rotary_fraction == share


def test_jamba_with_one_expert_has_an_mlp() -> None:
    config = {"model_type": "jamba", "hidden_size": 2560, "num_hidden_layers": 28, "num_attention_heads": 20,
              "num_key_value_heads": 1, "vocab_size": 65536, "intermediate_size": 8192, "attn_layer_offset": 12,
              "attn_layer_period": 14, "num_experts": 1, "num_experts_per_tok": 1,
              "tie_word_embeddings": True}  # fmt: skip
    reading = read_config(config)
    assert reading.model.experts is None and not reading.unused
    assert load_model(reading.model).parameters == 3_029_337_472  # safetensors of AI21-Jamba-Reasoning-3B


def test_every_fourth_layer_of_cwm_sees_all_where_no_key_says() -> None:
    config = {"model_type": "cwm", **SMALL, "num_hidden_layers": 8}
    model = read_config(config).model
    assert [layer for layer in range(8) if not model.is_windowed(layer)] == [0, 4]
    assert read_config({**config, "layer_types": ["sliding_attention"] * 8}).model.window_pattern == ()
