"""What layers a family has, where a measured run gives only their shape. Source: each family's paper or public code."""

from __future__ import annotations

import functools
import re
from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.interop.huggingface.families import supported
from distsim.interop.huggingface.refused import REFUSED
from distsim.interop.runs.table import MissingCell
from distsim.preset_files import plain
from distsim.specs.model import Model

Traits = dict[str, Any]
_BIASED = {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}
_DROPS = {"attention_dropout": 0.1, "hidden_dropout": 0.1, "embedding_dropout": 0.1}
_GPT: Traits = {
    "gated": False, "activation": "gelu", "norm": "layernorm", "positions": "learned", "tied_embeddings": True,
    **_BIASED, **_DROPS,
}  # fmt: skip
_LLAMA: Traits = {
    "gated": True, "activation": "silu", "norm": "rmsnorm", "positions": "rotary", "tied_embeddings": False,
}  # fmt: skip
_BERT: Traits = {
    **_GPT, "causal": False, "embedding_norm": True, "final_norm": False, "token_types": 2, "head_bias": True,
    "output": {"transform": True, "pooler": True, "sentence_classes": 2},
}  # fmt: skip
_ROBERTA: Traits = {**_BERT, "token_types": 1, "output": {"transform": True}}
_ESM: Traits = {
    "gated": False, "activation": "gelu_erf", "norm": "layernorm", "positions": "rotary", "tied_embeddings": True,
    **_BIASED, "causal": False, "head_bias": True, "output": {"transform": True},
}  # fmt: skip
_VIT: Traits = {
    "gated": False, "activation": "gelu", "norm": "layernorm", "positions": "learned", "tied_embeddings": False,
    **_BIASED, "causal": False, "head_bias": True, "output": {"predicts": "sequence-classes", "classes": 1000},
}  # fmt: skip
"""Of images, with the classes of ImageNet (Dosovitskiy et al. 2020, arXiv:2010.11929)."""
TRAITS: dict[str, Traits] = {
    "gpt": _GPT,
    "gpt2": _GPT,
    "gpt3": _GPT,
    "moe-gpt": _GPT,
    "megatron": _GPT,
    "opt": {**_GPT, "activation": "relu"},
    "gpt-neox": {**_GPT, "positions": "rotary", "rotary_fraction": 0.25, "parallel_blocks": True,
                 "tied_embeddings": False},
    "bloom": {**_GPT, "positions": "alibi", "embedding_norm": True},
    "mpt": {
        "gated": False, "activation": "gelu", "norm": "layernorm", "norm_bias": False, "positions": "alibi",
        "tied_embeddings": True,
    },
    "nemotron": {**_LLAMA, "gated": False, "activation": "relu2", "norm": "layernorm"},
    "nemotron4": {**_LLAMA, "gated": False, "activation": "relu2", "norm": "layernorm"},
    "qwen": {**_LLAMA, "qkv_bias": True},
    "qwen2": {**_LLAMA, "qkv_bias": True},
    "qwen2-moe": {**_LLAMA, "qkv_bias": True},
    "qwen3": {**_LLAMA, "qk_norm": "head"},
    "qwen3-moe": {**_LLAMA, "qk_norm": "head"},
    "gemma": {**_LLAMA, "activation": "gelu_pytorch_tanh", "tied_embeddings": True},
    "gemma2": {**_LLAMA, "activation": "gelu_pytorch_tanh", "tied_embeddings": True, "norms_per_layer": 4},
    "gemma3": {**_LLAMA, "activation": "gelu_pytorch_tanh", "tied_embeddings": True, "norms_per_layer": 4,
               "qk_norm": "head"},
    "phi": {
        **_GPT, "activation": "gelu_new", "positions": "rotary", "rotary_fraction": 0.4, "parallel_blocks": True,
        "norms_per_layer": 1, "tied_embeddings": False, "attention_dropout": 0.0, "hidden_dropout": 0.0,
        "embedding_dropout": 0.0,
    },
    "bert": _BERT,
    "megatron-bert": {**_BERT, "embedding_norm": False, "final_norm": True},
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "geneformer": {**_ROBERTA, "activation": "relu", "token_types": 0},
    "esm": _ESM,
    "esm2": _ESM,
    "amplify": {**_LLAMA, "causal": False, "head_bias": True},
    "vit": _VIT,
    "modernbert": {
        "gated": True, "activation": "gelu", "norm": "layernorm", "norm_bias": False, "positions": "rotary",
        "tied_embeddings": True, "causal": False, "head_bias": True, "output": {"transform": True},
    },
}  # fmt: skip
_STAND_INS = {"Llama": _LLAMA, "BERT": _BERT, "GPT": _GPT}
_ENCODER = re.compile("bert|encoder|masked")
_LLAMA_LIKE = ("llama", "mixtral", "phi3", "chatglm", "gpt-oss", "deepseek", "mistral", "internlm", "baichuan", "yi",
               "aquila", "olmo", "glm", "kimi", "grok", "smollm", "minicpm", "ernie4", "granite")  # fmt: skip
_SHAPE = {"hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 32, "intermediate_size": 16384,
          "vocab_size": 50_000, "max_position_embeddings": 2048}  # fmt: skip
_TRAIT_FIELDS = ("gated", "activation", "norm", "norm_affine", "norm_bias", "norms_per_layer", "parallel_blocks",
                 "final_norm", "embedding_norm", "qk_norm", "qk_norm_bias", "positions", "rotary_fraction", "qkv_bias",
                 "attention_output_bias", "mlp_bias", "head_bias", "tied_embeddings", "causal", "token_types", "output",
                 "attention_dropout", "hidden_dropout", "embedding_dropout", "attention_gate", "recurrent", "delta",
                 "convolution")  # fmt: skip
"""What configurations say of a family's layers whatever their shape."""
_NAMES = {"gptneox": "gpt-neox", "gpt-neo-x": "gpt-neox", "pythia": "gpt-neox", "cerebras-gpt": "gpt2", "esm-2": "esm2",
          "esm1b": "esm", "esm-1b": "esm", "esm1nv": "esm", "esm2nv": "esm2",
          "vision-transformer": "vit", "deit": "vit",
          "gpt-2": "gpt2", "gpt-3": "gpt3", "gemma-2": "gemma2", "gemma-3": "gemma3", "qwen-2": "qwen2",
          "qwen-3": "qwen3", "nemotron-4": "nemotron4", "qwen3.6": "qwen3-5", "qwen3.6-moe": "qwen3-5-moe"}  # fmt: skip
_LLAMA_VERSION = re.compile(r"llama-?[123](?:\.\d)?")
"""Of one family with the first; Llama 4 is another."""
_KIN = {"nemotron4": "nemotron", "esm2": "esm"}
"""Families that presets and frameworks name as another one."""
_SIZE = re.compile(r"(?<![a-z\d.])\d+(?:\.\d+)?[bm](?![a-z\d])")
"""Parameters in a model's name: gemma-2b is no Gemma 2."""
READ_IMAGES = ("vit",)
"""Families whose tokens are squares of an image."""
GPT2_VOCAB = 50_257  # Radford et al. 2019; Megatron's examples use its tokenizer
VOCABULARIES = {
    "bert": 30_522, "megatron-bert": 30_522, "roberta": 50_265, "xlm-roberta": 250_002, "modernbert": 50_368,
    "esm": 33, "esm2": 33, "amplify": 27, "geneformer": 25_426, "llama": 32_000,
}  # fmt: skip
"""Devlin et al. 2018, Liu et al. 2019, Conneau et al. 2019, Warner et al. 2024, Lin et al. 2022, Fournier et al. 2024,
Theodoris et al. 2023 (recalled), Touvron et al. 2023 (arXiv:2302.13971)."""
_BOTH, _STATE = "an encoder with a decoder", "a network with state-space, recurrent or convolutional layers"
_OTHER_ENCODER = "an encoder whose layers differ from BERT's"
_IMAGES = "a network for images, or one with a part for images"
MISSING: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?<![a-z])(?:{words})", re.IGNORECASE), what) for words, what in (
        (r"\w*t5(?![a-z])|flan|ul2|\w*bart(?![a-z])|pegasus|marian|nllb|whisper|switch|encoder.?decoder|seq2seq",
         _BOTH),
        (r"albert|deberta|electra|xlnet|longformer|big.?bird|funnel|reformer", _OTHER_ENCODER),
        (r"mamba|jamba|rwkv|hyena|evo\d?(?![a-z])|striped|retnet|xlstm|zamba|griffin|recurrent|rnn|lstm|\w*-?hybrid"
         r"|gated.?delta|delta.?net|(?:gdn|gla|samba)(?![a-z])|hgrn|nemotron.?h(?![a-z0-9])",
         _STATE),
        (r"vit(?:[sblhg]\d*)?(?![a-z])|clip|siglip|dino|swin|resnet|convnext|unet|stable.?diffusion|sdxl|diffusion|dit(?![a-z])|flux"
         r"|imagen|llava|vlm|neva|blip|flamingo|detr|\w*rcnn|ssd", _IMAGES),
        (r"alphafold|openfold|esmfold|diffdock|equidock|molmim|gnn|gcn|dlrm|wav2vec|hubert|conformer",
         "not a network of transformer layers only"),
        (r"deepseek.?v4", "a decoder with its own kind of layers"),
    )
)  # fmt: skip
"""What families are that distsim has no layers for, by how their names begin, or a word in them."""
LONGEST = 80
"""Letters of a family's name that are read."""


def traits_of(family: str, name: str) -> Traits:
    """Traits of a family as runs.csv names it; raises MissingCell where nothing is known of it."""
    known = known_family(family)
    if known is not None:
        return _LLAMA if known == "llama" else TRAITS.get(known) or _configured(known) or _GPT
    if not family:
        raise MissingCell(f"family is blank and {name!r} is not a preset of this shape")
    if what := _missing(family):
        why = "which only presets can describe" if what == _BOTH else "which distsim does not model yet"
        raise MissingCell(f"family {family!r} is {what}, {why}")
    return _STAND_INS[stand_in(family)]


def stand_in(family: str) -> str:
    """Whose layers an unknown family is taken to have, as messages name them."""
    lower = family.lower()
    return "Llama" if "llama" in lower else "BERT" if _ENCODER.search(lower) else "GPT"


def known_family(family: str) -> str | None:
    """The family's name in the tables above; None where it is in none of them."""
    lower = _plain(family)
    if lower in TRAITS:
        return lower
    if _missing(family):
        return None
    if lower.startswith(_LLAMA_LIKE) and not (_configured(lower) or {}).get("recurrent"):
        return "llama"
    return lower if _configured(lower) else None


def _plain(family: str) -> str:
    """A family's name in lower case with hyphens, by the one of its spellings that the tables have."""
    lower = plain(family)
    lower = "llama" if _LLAMA_VERSION.fullmatch(lower) else _NAMES.get(lower, lower)
    whole = lower.replace(".", "-")  # as configurations write a version: qwen3.5 is qwen3_5
    return whole if whole.replace("-", "") in _configurations() else lower


@functools.cache
def stored_family(family: str) -> str:
    """The family as presets and frameworks' tables spell it (MPT: mpt, gemma-2: gemma2), and as configurations of its
    text alone name it (llama4_text), where a row names that of the whole (llama4)."""
    lower = _plain(family)
    name = _KIN.get(lower) or _configurations().get(lower.replace("-", "")) or (lower if lower in TRAITS else family)
    return text if (text := f"{name}_text") in supported() else name


def family_in(name: str) -> str:
    """The first words of a model's name that are a known family's; empty where none are, or the model is of a kind that
    there are no layers for."""
    if _missing(name):
        return ""
    words = re.findall(r"[a-z]+\d*(?:\.\d+)*|\d+(?:\.\d+)*", _SIZE.sub("", name[:LONGEST].lower()))
    for start in range(len(words)):
        for end in (start + 2, start + 1):
            told = "-".join(words[start:end])
            for family in (_plain(told), _plain(re.sub(r"\.\d+", "", told))):
                if family in TRAITS or family in _LLAMA_LIKE or _configured(family):
                    return family
                if _beyond(family):
                    return ""
    return ""


@functools.cache
def _configurations() -> dict[str, str]:
    """Families whose configurations are read, by their names without marks."""
    return {one.replace("_", "").replace("-", ""): one for one in supported()}


@functools.cache
def _configured(name: str) -> Traits | None:
    """Traits of a family whose configurations are read, as these have them where they say nothing but a shape."""
    model = _example(name)
    return None if model is None or _beyond(name) else model.model_dump(include=set(_TRAIT_FIELDS))


@functools.cache
def _example(name: str) -> Model | None:
    """A model of a family whose configurations are read, of any shape; None where these need to say more."""
    family = _configurations().get(name.replace("-", ""))
    if family is None:
        return None
    try:
        return read_config({"model_type": family, **_SHAPE}).model
    except DistsimError:
        return None


def _beyond(name: str) -> str:
    """What a family is by its configurations, where the cells of a row cannot describe it; else empty."""
    model = _example(name)
    return "" if model is None else _BOTH if model.encoder_layers else _STATE if model.mamba else ""


def _missing(family: str) -> str:
    """What a family is that there are no layers for; empty where it may be a decoder."""
    name = family[:LONGEST]
    if what := next((what for pattern, what in MISSING if pattern.search(name)), ""):
        return what
    reason = REFUSED.get(name.lower())
    return f"not read, as {reason}" if reason else _beyond(_plain(name))


def usual_vocab(family: str) -> int:
    """The vocabulary of a family whose row does not say it; few steps depend on it by more than a few per cent."""
    return VOCABULARIES.get(known_family(family) or "", GPT2_VOCAB)
