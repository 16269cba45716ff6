"""Families whose layers distsim does not have, with what they are: named in the error instead of guessed at."""

from __future__ import annotations

from distsim.interop.huggingface.reasons import REASONS

_RECURRENT = "a state-space or recurrent network"
_HYBRID = "a hybrid of attention with recurrent, state-space or convolutional layers"
_SHARED = "a hybrid of Mamba with attention layers that share their weights"
_VISION = "a vision network"
_SPEECH = "a speech network"
_MULTI = "a multimodal network without a single text configuration"
_OTHER = "a decoder whose layers differ from one another in ways that no formula here covers"

_GROUPS: dict[str, str] = {
    _RECURRENT: "mamba3 rwkv rwkv5 rwkv6 rwkv7 xlstm gated_deltanet retnet",
    _SHARED: "zamba zamba2",
    _HYBRID: "samba hymba phi4flash plamo2 stripedhyena evo",
    _VISION: "vit_mae vit_msn deit beit dinov2 dinov3_vit swin swinv2 convnext convnextv2 resnet regnet segformer "
    "detr siglip siglip2 clip_vision_model siglip_vision_model sam vitdet efficientnet "
    "mobilevit mobilevitv2 mobilenet_v1 mobilenet_v2 bit cvt levit focalnet hiera ijepa imagegpt poolformer pvt pvt_v2 "
    "swiftformer textnet hgnet_v2 pp_lcnet donut-swin data2vec-vision dinov2_with_registers",
    _SPEECH: "wav2vec2 wav2vec2-bert hubert wavlm speecht5 seamless_m4t seamless_m4t_v2 moonshine encodec musicgen "
    "musicgen_melody speech_to_text bark moshi",
    _MULTI: "blip blip-2 flava git trocr align",
    _OTHER: "gemma4_assistant gemma4_unified_assistant",
}
REFUSED: dict[str, str] = {
    **{name: f"it is {what}" for what, names in _GROUPS.items() for name in names.split()},
    **REASONS,
}
"""Why each is refused, as a sentence."""
