"""Vision towers of presets and configurations, held against exact counts of parameters."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.jobs.models import LoadedModel, load_model
from distsim.errors import DistsimError
from distsim.interop.huggingface.reader import Reading, read_config
from distsim.interop.huggingface.towers import FOLDER

# Parameters of tower and projector of the modules of transformers 5.24 on the meta device, but where a comment says
# otherwise; those of published models are also what safetensors have besides the decoder (see the presets' sources).
PRESETS = {
    "qwen2-vl-2b": 665_271_296, "qwen2-vl-7b": 675_759_104, "qwen2-vl-72b": 699_356_672,
    "qwen2.5-vl-3b": 668_684_288, "qwen2.5-vl-7b": 676_550_144, "qwen2.5-vl-32b": 688_841_984,
    "qwen2.5-vl-72b": 704_573_696, "mimo-vl-7b": 683_598_080, "qwen2.5-omni-7b": 676_550_144,
    "qwen3-vl-2b": 406_957_056, "qwen3-vl-4b": 415_347_712, "qwen3-vl-8b": 576_388_336, "qwen3-vl-32b": 595_266_800,
    "qwen3-vl-30b-a3b": 538_631_408, "qwen3-vl-235b-a22b": 576_388_336, "qwen3-omni-30b-a3b": 538_631_408,
    "qwen3.5-0.8b": 100_592_896, "qwen3.5-2b": 331_416_576, "qwen3.5-4b": 333_514_240, "qwen3.5-9b": 456_010_480,
    "qwen3.5-27b": 460_730_096, "qwen3.5-35b-a3b": 446_571_248, "qwen3.5-122b-a10b": 451_290_864,
    "qwen3.5-397b-a17b": 456_010_480, "qwen3.8-flash-next": 448_931_056,
    "gemma-3-4b": 419_816_304, "gemma-3-12b": 421_290_864, "gemma-3-27b": 423_060_336,
    "gemma-4-26b-a4b": 572_792_112, "gemma-4-31b": 575_741_232,
    "paligemma-3b": 414_803_696, "paligemma-3b-448": 415_688_432, "paligemma2-3b": 415_098_864,
    "paligemma2-3b-448": 415_983_600, "paligemma2-10b": 416_574_704, "paligemma2-28b": 417_755_376,
    "llava-1.5-7b": 324_487_168, "llava-1.5-13b": 334_974_976, "llava-v1.6-mistral-7b": 324_491_264,
    "llava-v1.6-34b": 362_249_216,
    "minimax-vl-01": 347_564_032,  # its safetensors less MiniMax-Text-01's
    "internvl2.5-2b": 316_607_488, "internvl2.5-4b": 316_607_488, "internvl2.5-8b": 337_583_104,
    "internvl2.5-26b": 5_652_925_824, "internvl3-1b": 308_495_104, "internvl3-2b": 312_674_304,
    "internvl3-8b": 331_552_768, "internvl3-14b": 351_216_640, "internvl3-38b": 5_628_282_240,
    "internvl3-78b": 5_708_504_448,
    # safetensors less those of the decoders
    "internvl3.5-1b": 309_265_408, "internvl3.5-2b": 316_607_488, "internvl3.5-4b": 321_064_960,
    "internvl3.5-8b": 337_583_104, "internvl3.5-14b": 351_216_640, "internvl3.5-38b": 5_628_282_240,
    "internvl3.5-30b-a3b": 316_607_488, "internvl3.5-241b-a28b": 5_605_735_808,
    "intern-s1": 5_605_735_808, "intern-s1-mini": 337_583_104,
    "apriel-1.5-15b": 434_957_312, "idefics3-8b": 431_800_560,
    "granite-docling-258m": 93_510_912, "llava-onevision-7b": 414_732_320, "llava-onevision-0.5b": 399_585_440,
    "mistral-small-3.1-24b": 438_958_080, "mistral-small-4-119b": 428_472_320, "ministral-3-3b": 420_083_712,
    "ministral-3-8b": 428_472_320, "ministral-3-14b": 438_958_080, "pixtral-12b": 434_957_312,
    "pixtral-large-124b": 1_524_800_896, "llama-4-scout": 871_932_416, "llama-4-maverick": 871_932_416,
    "smolvlm-256m": 93_510_912, "smolvlm-500m": 98_229_504, "smolvlm2-2.2b": 434_220_912,
    "glm-4.1v-9b": 892_498_432, "glm-4.6v-flash": 892_498_432, "glm-4.5v": 858_681_856, "glm-4.6v": 858_681_856,
    "kimi-vl-a3b": 447_545_840,  # its safetensors less Moonlight's
    "kimi-k2.5": 471_143_920,
}  # fmt: skip

SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
          "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14}  # fmt: skip
CLIP = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
        "num_hidden_layers": 24, "patch_size": 14, "image_size": 336}  # fmt: skip
PIXTRAL = {"model_type": "pixtral", "image_size": 1024}
QWEN25 = {"hidden_size": 1280, "intermediate_size": 3420}
INTERN6B = {"hidden_size": 3200, "intermediate_size": 12800, "num_attention_heads": 25, "num_hidden_layers": 45,
            "norm_type": "rms_norm", "use_qk_norm": True}  # fmt: skip
WHOLE: dict[str, Any] = {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"}
Row = tuple[str, int, dict[str, Any], dict[str, Any], int]
# model_type, decoder's width, vision_config, further keys, parameters (transformers 5.24 on the meta device)
CONFIGS: dict[str, Row] = {
    "qwen2_vl": ("qwen2_vl", 1536, {"hidden_size": 1536}, {}, 665_271_296),
    "qwen2_vl of other shape": (
        "qwen2_vl", 512,
        {"depth": 3, "embed_dim": 320, "hidden_size": 512, "num_heads": 5, "mlp_ratio": 3, "patch_size": 16,
         "spatial_merge_size": 3, "temporal_patch_size": 1, "in_channels": 4}, {}, 13_184_192,
    ),
    "qwen2_5_vl": ("qwen2_5_vl", 2048, {**QWEN25, "out_hidden_size": 2048}, {}, 668_684_288),
    "qwen2_5_vl as it is saved": (
        "qwen2_5_vl", 3584, {**QWEN25, "model_type": "qwen2_5_vl_vision", "in_chans": 3, "spatial_patch_size": 14},
        {}, 676_550_144,
    ),
    "qwen3_vl": ("qwen3_vl", 4096, {"out_hidden_size": 4096}, {}, 576_388_336),
    "qwen3_vl_moe": ("qwen3_vl_moe", 2048, {"out_hidden_size": 2048}, {}, 538_631_408),
    "qwen3_5": (
        "qwen3_5", 1024,
        {"depth": 12, "hidden_size": 768, "intermediate_size": 3072, "num_heads": 12, "out_hidden_size": 1024,
         "deepstack_visual_indexes": []}, {}, 100_592_896,
    ),
    "qwen3_5_moe": ("qwen3_5_moe", 2048, {"out_hidden_size": 2048}, {}, 446_571_248),
    "qwen4_exp": ("qwen4_exp", 2560, {"out_hidden_size": 2560}, {}, 448_931_056),
    "gemma3": ("gemma3", 2560, {**SIGLIP, "image_size": 896, "vision_use_head": False}, {}, 419_816_304),
    "gemma3 with a pooling head": ("gemma3", 2560, {**SIGLIP, "image_size": 896}, {}, 435_054_656),
    "gemma4": (
        "gemma4", 2816,
        {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
         "num_key_value_heads": 16, "head_dim": 72, "standardize": True}, {}, 572_792_112,
    ),
    "paligemma": (
        "paligemma", 3584, {**SIGLIP, "image_size": 448, "vision_use_head": False}, {"projection_dim": 3584},
        417_459_440,
    ),
    "llava": ("llava", 4096, CLIP, {}, 324_487_168),
    "llava with SigLIP": (
        "llava", 1024, {**SIGLIP, "image_size": 384}, {**WHOLE, "multimodal_projector_bias": False}, 430_453_824,
    ),
    "llava with Pixtral": ("llava", 5120, PIXTRAL, WHOLE, 434_957_312),
    "llava_next": ("llava_next", 7168, CLIP, {}, 362_249_216),
    "llava_next_video": ("llava_next_video", 4096, CLIP, {}, 324_491_264),
    "shieldgemma2": ("shieldgemma2", 2560, {**SIGLIP, "image_size": 896, "vision_use_head": False}, {}, 419_816_304),
    "lighton_ocr": ("lighton_ocr", 1024, PIXTRAL, {}, 409_782_272),
    "glmga": ("glmga", 4096, {}, {}, 892_498_432),
    "llava_onevision": (
        "llava_onevision", 3584, {**SIGLIP, "image_size": 384, "num_hidden_layers": 26, "vision_use_head": False}, {},
        414_732_320,
    ),
    "internvl": ("internvl", 3584, {"attention_bias": True, "image_size": [448, 448]}, {}, 331_552_768),
    "internvl 6B": ("internvl", 8192, INTERN6B, {}, 5_708_504_448),
    "internvl of other shape": (
        "internvl", 512,
        {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
         "use_mean_pooling": False, "use_absolute_position_embeddings": False}, {}, 2_521_600,
    ),
    "mistral3": ("mistral3", 5120, {**PIXTRAL, "patch_size": 14, "hidden_act": "silu"}, {}, 438_958_080),
    "mistral3 with biases": (
        "mistral3", 512, {**PIXTRAL, "patch_size": 14, "hidden_size": 512, "num_hidden_layers": 3},
        {"multimodal_projector_bias": True}, 23_899_136,
    ),
    "llama4": (
        "llama4", 5120,
        {"hidden_size": 1408, "intermediate_size": 5632, "image_size": 336, "vision_output_dim": 4096}, {}, 871_932_416,
    ),
    "idefics3": (
        "idefics3", 4096,
        {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27,
         "patch_size": 14, "image_size": 364}, {}, 431_800_560,
    ),
    "smolvlm": (
        "smolvlm", 576,
        {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "patch_size": 16, "image_size": 512},
        {"scale_factor": 4}, 93_510_912,
    ),
    "glm4v": ("glm4v", 4096, {}, {}, 892_498_432),
    "glm4v_moe": ("glm4v_moe", 4096, {"intermediate_size": 10944}, {}, 858_681_856),
    "kimi_k25": ("kimi_k25", 7168, {}, {}, 471_143_920),
    "kimi_k25 as it is published": (
        "kimi_k25", 7168,
        {"vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_attention_heads": 16, "vt_num_hidden_layers": 27,
         "init_pos_emb_height": 64, "init_pos_emb_width": 64, "mm_hidden_size": 1152, "text_hidden_size": 7168,
         "mm_projector_type": "patchmerger", "merge_kernel_size": [2, 2]}, {}, 471_143_920,
    ),
}  # fmt: skip
DECODERS = {"kimi_k25": "deepseek_v3", "internvl_chat": "qwen2", "kimi_vl": "deepseek_v3"}
"""Families of decoders of wrappers whose own name does not tell it."""


def read(kind: str, width: int, vision: dict[str, Any], keys: dict[str, Any], inner: str = "text_config") -> Reading:
    text = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8}
    if kind in DECODERS:
        text["model_type"] = DECODERS[kind]
    return read_config({"model_type": kind, inner: text, "vision_config": vision, **keys})


def counted(reading: Reading) -> int:
    return LoadedModel(reading.model).vision_parameters


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_as_many_parameters_as_the_modules(name: str) -> None:
    loaded = load_model(name)
    assert loaded.vision_parameters == PRESETS[name]
    assert "vision tower" not in loaded.spec.beside
    assert (FOLDER / f"{loaded.spec.tower.family}.toml").is_file()


@pytest.mark.parametrize("case", CONFIGS)
def test_configurations_have_as_many_parameters_as_the_modules(case: str) -> None:
    kind, width, vision, keys, parameters = CONFIGS[case]
    reading = read(kind, width, vision, keys)
    assert counted(reading) == parameters
    assert reading.beside == reading.model.beside == ()
    assert not [key for key in reading.unused if key.startswith("vision_config.")]


def test_files_that_wrap_no_decoder_have_towers_too() -> None:
    """Qwen2.5-VL's, as they were published."""
    flat = {"model_type": "qwen2_5_vl", "hidden_size": 3584, "num_hidden_layers": 2, "vision_config": QWEN25}
    reading = read_config(flat)
    assert counted(reading) == 676_550_144 and reading.beside == ()


def test_towers_of_thinkers_are_read_and_their_ears_named() -> None:
    text = {"hidden_size": 3584, "num_hidden_layers": 2}
    thinker = {"model_type": "qwen2_5_omni_thinker", "text_config": text, "vision_config": QWEN25,
               "audio_config": {"d_model": 1280}}  # fmt: skip
    outer = {"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {"hidden_size": 896}}
    reading = read_config(outer)
    assert counted(reading) == 676_550_144
    assert reading.beside == reading.model.beside == ("talker_config", "audio_config")


def test_remote_code_of_internvl_and_kimi_vl() -> None:
    """The keys of their own files; counts as of the published safetensors."""
    intern = {"model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
              "num_hidden_layers": 24, "image_size": 448, "norm_type": "layer_norm", "qk_normalization": False,
              "qkv_bias": True}  # fmt: skip
    assert counted(read("internvl_chat", 3584, intern, {"downsample_ratio": 0.5}, "llm_config")) == 331_552_768
    assert counted(read("kimi_vl", 2048, {"model_type": "moonvit"}, {})) == 447_545_840


@pytest.mark.parametrize(
    ("kind", "width", "vision", "keys"),
    [
        ("llava", 4096, {"model_type": "dinov2"}, {}),
        ("qwen3_vl", 4096, {"model_type": "x"}, {}),
        ("llava", 4096, CLIP, {"vision_feature_layer": [-2, -5]}),
        ("llava", 4096, CLIP, {"vision_feature_select_strategy": "full"}),
        ("qwen2_5_vl", 2048, QWEN25, {}),  # out_hidden_size 3,584, as transformers has it
        ("gemma3", 2560, SIGLIP, {"mm_tokens_per_image": 100}),  # 16 patches along a side do not become 10 tokens
        ("gemma4", 1536, {"use_clipped_linears": True}, {}),
        ("vipllava", 4096, CLIP, {}),
        ("llama4", 5120, {"hidden_size": 1408}, {}),
        ("internvl", 3584, {"use_mask_token": True}, {}),
    ],
)
def test_what_the_spec_cannot_express_is_named(
    kind: str, width: int, vision: dict[str, Any], keys: dict[str, Any]
) -> None:
    reading = read(kind, width, vision, keys)
    assert reading.model.tower is None
    assert reading.beside == reading.model.beside == ("vision_config",)


@pytest.mark.parametrize(
    ("vision", "told"),
    [
        ({**CLIP, "patch_size": 400}, "patch_size is 400"),
        ({**CLIP, "num_attention_heads": 12}, "12 heads do not divide a hidden width of 1024"),
        ({**CLIP, "num_hidden_layers": "many"}, "num_hidden_layers is 'many'"),
        ({**CLIP, "image_size": [336, 448]}, "only square images"),
    ],
)
def test_values_that_no_tower_has_are_refused(vision: dict[str, Any], told: str) -> None:
    with pytest.raises(DistsimError) as caught:
        read("llava", 4096, vision, {})
    assert told in str(caught.value)


def test_patches_larger_than_images_are_refused_where_images_keep_their_size() -> None:
    with pytest.raises(DistsimError, match="do not fit into images"):
        read("mistral3", 512, {**PIXTRAL, "patch_size": 2000}, {})


def test_images_become_as_many_tokens_as_their_processors_make() -> None:
    """Gemma 3 256 (4x4 of 64x64 patches), LLaVA 576, InternVL 256 a tile, SmolVLM 64 a tile, Llama 4 144 a tile."""
    tokens = {"gemma-3-4b": 256, "llava-1.5-7b": 576, "internvl3-8b": 256, "smolvlm-256m": 64, "smolvlm2-2.2b": 81,
              "llama-4-scout": 144, "qwen2.5-vl-7b": 256, "qwen3-vl-8b": 196, "gemma-4-31b": 256}  # fmt: skip
    for name, each in tokens.items():
        tower = load_model(name).spec.tower
        assert tower.tokens_of(tower.patches_of(tower.image, tower.image)) == each, name
