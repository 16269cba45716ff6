"""Files that state a decoder's keys themselves, beside those of what reads images (LLaVA's own, Phi-3 Vision)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from distsim.errors import DistsimError

_WRAPPED = {
    "llama": "llava llava_next llava_next_video video_llava vipllava idefics3 smolvlm deepseek_vl deepseek_vl_hybrid "
    "janus glmasr omniasr voxtral",
    "qwen2": "llava_onevision internvl audioflamingo3 musicflamingo got_ocr2 ovis2 pp_chart2table qwen2_audio "
    "vibevoice_asr video_llama_3",
    "qwen3": "lighton_ocr moss_transcribe_diarize qianfan_ocr qwen3_asr",
    "qwen3_5_text": "minicpm_ocr minicpmv4_6 minicpmv4_7",
    "mistral": "idefics2 mistral3",
    "nemotron_h": "nemo_speechlm nemotron_h_omni",
    "granite": "granite_speech granite_speech_plus",
    "glm4v_text": "glm46v glmga",
    "opt": "instructblip instructblipvideo",
    "gemma": "paligemma",
    "gemma3_text": "shieldgemma2",
    "emu3_text_model": "emu3",
    "cohere2": "cohere2_vision",
    "exaone4": "exaone4_5",
    "deepseek_v3": "kimi_k25",
    "hyperclovax": "hyperclovax_vision_v2",
    "lfm2": "lfm2_vl",
    "lfm3": "lfm3_vl",
    "step3p5": "step3p7",
    "qwen2_5_omni_text": "qwen2_5_omni_thinker",
    "qwen3_omni_moe_text": "qwen3_omni_moe_thinker",
    "qwen3_vl_text": "cosmos3_omni",
}
WRAPPED = {wrapper: family for family, wrappers in _WRAPPED.items() for wrapper in wrappers.split()}
"""The decoder's family where a wrapper's ``text_config`` names none (the defaults of configuration classes of
transformers 5.24)."""
TYPES = {"llava": "llama", "llava_llama": "llama", "llava_mistral": "mistral", "llava_qwen": "qwen2", "phi3_v": "phi3"}
"""Families of decoders by the ``model_type`` of such files, where no class says otherwise."""
CLASSES = {"LlavaLlamaForCausalLM": "llama", "LlavaMistralForCausalLM": "mistral", "LlavaQwenForCausalLM": "qwen2",
           "Phi3VForCausalLM": "phi3"}  # fmt: skip
"""And by their classes, which differ within one ``model_type``."""
UNSURE = {
    "minicpmv": 'its decoder differs by version: write the decoder\'s family as "model_type" (2.5: llama, 2.6: qwen2)',
}
"""Files of which neither tells."""
NETWORKS = ("mm_vision_tower", "mm_projector_type", "img_processor", "embd_layer")
"""Keys that name what reads images."""
OTHERS = re.compile(r"(.+_)?mm_.*|image_.*|(img_processor|embd_layer)\..*|num_img_tokens|tokenizer_.*")
"""Keys of that, which say nothing of the decoder."""


def flat_decoder(data: Mapping[str, Any], where: str) -> str:
    """The family of the decoder in such a file; empty where ``data`` is none."""
    kind = data.get("model_type")
    if not isinstance(kind, str) or (kind := kind.strip().lower()) not in (*TYPES, *UNSURE):
        return ""
    if kind in UNSURE:
        raise DistsimError(f"model_type {kind!r} is not supported", UNSURE[kind], where=where)
    classes = data.get("architectures")
    named = str(classes[0]) if isinstance(classes, list) and classes else ""
    if named and named not in CLASSES:
        hint = 'to read only its decoder, write the decoder\'s family as "model_type", such as "llama"'
        raise DistsimError(f"{named} of model_type {kind!r} has an unknown decoder", hint, where=where)
    return CLASSES.get(named, TYPES[kind])


def flat_networks(data: Mapping[str, Any]) -> tuple[str, ...]:
    """What stands beside the decoder in such a file."""
    return tuple(key for key in NETWORKS if data.get(key))
