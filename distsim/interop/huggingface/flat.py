"""Files that state a decoder's keys themselves, beside those of what reads images (LLaVA's own, Phi-3 Vision)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from distsim.errors import DistsimError

WRAPPED = {
    **dict.fromkeys(("llava", "llava_next", "llava_next_video", "video_llava", "vipllava"), "llama"),
    **dict.fromkeys(("idefics3", "smolvlm"), "llama"),
    **dict.fromkeys(("llava_onevision", "internvl"), "qwen2"), **dict.fromkeys(("idefics2", "mistral3"), "mistral"),
    "paligemma": "gemma", "emu3": "emu3_text_model",
}  # fmt: skip
"""The decoder's family where a wrapper's ``text_config`` names none (the defaults of transformers' configuration
classes)."""
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
