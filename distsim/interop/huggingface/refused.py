"""Families whose layers distsim does not have, with what they are: named in the error instead of guessed at."""

from __future__ import annotations

_ENCODER = "an encoder whose layers differ from BERT's"
_BOTH = "an encoder with a decoder whose layers differ from T5's"
_RECURRENT = "a state-space or recurrent network"
_HYBRID = "a hybrid of attention with recurrent, state-space or convolutional layers"
_VISION = "a vision network"
_SPEECH = "a speech network"
_MULTI = "a network of several modalities without one text configuration"
_OTHER = "a decoder whose layers differ from one another in ways that no formula here covers"

_GROUPS: dict[str, str] = {
    _ENCODER: "bert-generation big_bird deberta albert funnel longformer "
    "mobilebert reformer rembert roc_bert roformer squeezebert xlm xlnet xmod "
    "flaubert",
    _BOTH: "umt5 longt5 switch_transformers t5gemma t5gemma2 pegasus_x "
    "bigbird_pegasus nllb-moe fsmt led prophetnet encoder-decoder",
    _RECURRENT: "mamba3 rwkv rwkv5 rwkv6 rwkv7 xlstm gated_deltanet retnet",
    _HYBRID: "zamba zamba2 falcon_h1 recurrent_gemma minimax lfm3 bailing_hybrid samba hymba phi4flash plamo2 "
    "stripedhyena evo",
    _VISION: "vit_mae vit_msn deit beit dinov2 dinov3_vit swin swinv2 convnext convnextv2 resnet regnet segformer "
    "detr siglip siglip2 clip_vision_model clip_text_model siglip_vision_model sam vitdet efficientnet "
    "mobilevit mobilenet_v2",
    _SPEECH: "wav2vec2 wav2vec2-bert hubert wavlm speecht5 seamless_m4t moonshine encodec musicgen "
    "musicgen_melody speech_to_text bark moshi",
    _MULTI: "blip blip-2 flava git trocr vision-encoder-decoder align",
    _OTHER: "openelm decilm nemotron-nas gemma3n gemma3n_text gemma4 gemma4_text longcat_flash deepseek_v4 blt "
    "diffllama doge transfo-xl ctrl",
}
REFUSED: dict[str, str] = {name: what for what, names in _GROUPS.items() for name in names.split()}
