"""The model of a measured run: a preset where the row names one, else a model of the family in the row's own shape."""

from __future__ import annotations

import functools
import re
from typing import Any

from distsim.errors import DistsimError
from distsim.interop.models import known_model
from distsim.interop.runs import MissingCell, Run
from distsim.specs.model import Model

_GPT = {
    "gated": False, "activation": "gelu", "norm": "layernorm", "positions": "learned", "qkv_bias": True,
    "attention_output_bias": True, "mlp_bias": True, "tied_embeddings": True,
    "attention_dropout": 0.1, "hidden_dropout": 0.1, "embedding_dropout": 0.1,
}  # fmt: skip
_LLAMA = {
    "gated": True, "activation": "silu", "norm": "rmsnorm", "positions": "rotary", "tied_embeddings": False,
}  # fmt: skip
# What a family's layers look like, where a row gives only their shape. Source: each family's paper or public code.
TRAITS: dict[str, dict[str, Any]] = {
    "gpt": _GPT,
    "gpt2": _GPT,
    "moe-gpt": _GPT,
    "bloom": {**_GPT, "positions": "alibi", "embedding_norm": True},
    "mpt": {
        "gated": False, "activation": "gelu", "norm": "layernorm", "norm_bias": False, "positions": "alibi",
        "tied_embeddings": True,
    },
    "nemotron": {**_LLAMA, "gated": False, "activation": "relu2", "norm": "layernorm"},
    "nemotron4": {**_LLAMA, "gated": False, "activation": "relu2", "norm": "layernorm"},
    "qwen": {**_LLAMA, "qkv_bias": True},
    "qwen2": {**_LLAMA, "qkv_bias": True},
    "qwen3": {**_LLAMA, "qk_norm": "head"},
    "qwen3-moe": {**_LLAMA, "qk_norm": "head"},
    "gemma": {**_LLAMA, "activation": "gelu_pytorch_tanh", "tied_embeddings": True},
    "gemma2": {**_LLAMA, "activation": "gelu_pytorch_tanh", "tied_embeddings": True, "norms_per_layer": 4},
    "phi": {
        **_GPT, "activation": "gelu_new", "positions": "rotary", "rotary_fraction": 0.4, "parallel_blocks": True,
        "norms_per_layer": 1, "tied_embeddings": False, "attention_dropout": 0.0, "hidden_dropout": 0.0,
        "embedding_dropout": 0.0,
    },
}  # fmt: skip
GPT2_VOCAB = 50_257  # Radford et al. 2019; Megatron's examples use its tokenizer
LLAMA_VOCAB = 32_000  # Touvron et al. 2023, arXiv:2302.13971
_LLAMA_LIKE = ("llama", "mixtral", "phi3", "chatglm", "gpt-oss", "deepseek")
# Families whose layers are not a decoder of attention and MLP blocks.
UNSUPPORTED = ("bert", "t5", "mamba", "hybrid", "vit", "clip", "deepseek-v4")


def traits_of(family: str, name: str) -> dict[str, Any]:
    """Traits of a family as runs.csv names it; raises MissingCell where nothing is known of it."""
    lower = family.lower()
    if any(word in lower for word in UNSUPPORTED):
        raise MissingCell(f"family {family!r} is not a decoder that distsim has layers for yet")
    if lower in TRAITS:
        return TRAITS[lower]
    if lower.startswith(_LLAMA_LIKE):
        return _LLAMA
    if not lower:
        raise MissingCell(f"family is blank and {name!r} is no preset")
    return _LLAMA if "llama" in lower else _GPT


def model_of(run: Run) -> Model:
    """The run's model. Cells overrule a preset of the same name; what neither says comes from the family."""
    name = run.text("model") or "?"
    preset = _preset(name)
    if preset is not None and _same_shape(preset, run):
        return preset
    if run.count("layers") is None or run.count("hidden") is None:
        if preset is not None and run.count("layers") is None:
            return preset
        raise MissingCell(f"layers or hidden is blank and {name!r} is no preset")
    family = run.text("family") or ""
    if preset is not None and _variant(preset, run):
        return _reshaped(preset, run)
    return _from_cells(run, name, family)


_KINDS = re.compile(r"-(w/o|without|no)-mtp$|-(tokendrop|dropless)$")
"""Ends of a model's name that say how it was trained, not what it is."""


def without_prediction(run: Run) -> bool:
    """Whether a row's model name says that its multi-token prediction did not train."""
    found = _KINDS.search(_plain(run.text("model") or ""))
    return found is not None and found[1] is not None


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


@functools.lru_cache(maxsize=1024)
def _preset(name: str) -> Model | None:
    """The preset that a row's model name stands for, trying the name without what follows it."""
    plain = _plain(name)
    candidates = [
        plain,
        _KINDS.sub("", plain),
        plain.split("-(")[0],
        plain.split("/")[-1],
        re.sub(r"-(instruct|chat|hf|base).*$", "", plain.split("/")[-1]),
    ]
    for candidate in dict.fromkeys(candidates):
        try:
            if model := known_model(candidate):
                return model
        except DistsimError:
            continue
    return None


_SHAPE = {"layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_heads", "ffn_hidden": "ffn"}


def _same_shape(preset: Model, run: Run) -> bool:
    same = all(run.count(cell) in (None, getattr(preset, field)) for cell, field in _SHAPE.items())
    tied = run.flag("tied_embeddings")
    return same and run.count("vocab") in (None, preset.vocab) and tied in (None, preset.tied_embeddings)


def _variant(preset: Model, run: Run) -> bool:
    """The preset with other counts: same kind of layers, so its special parts (experts, latent attention) hold."""
    return preset.experts is not None or preset.latent_attention is not None


def _reshaped(preset: Model, run: Run) -> Model:
    update: dict[str, Any] = {field: run.count(cell) for cell, field in _SHAPE.items() if run.count(cell)}
    if run.count("vocab"):
        update["vocab"] = run.count("vocab")
    if preset.experts is not None:
        dense = tuple(layer for layer in preset.experts.dense_layers if layer < update.get("layers", preset.layers))
        experts: dict[str, Any] = {"dense_layers": dense}
        for cell, field in (("n_experts", "count"), ("top_k", "per_token"), ("moe_ffn_hidden", "ffn")):
            if run.count(cell):
                experts[field] = run.count(cell)
        update["experts"] = preset.experts.model_copy(update=experts)
        update.pop("ffn", None)
    return preset.model_copy(update=update)


def _from_cells(run: Run, name: str, family: str) -> Model:
    traits = dict(traits_of(family, name))
    hidden = run.need("hidden")
    heads = run.count("heads")
    if heads is None:
        raise MissingCell("heads is blank")
    gated, tied = run.flag("gated_mlp"), run.flag("tied_embeddings")
    if gated is not None and gated != traits["gated"]:
        traits["gated"] = gated
        traits["activation"] = "silu" if gated else "gelu"
    if tied is not None:
        traits["tied_embeddings"] = tied
    if run.need("layers") == 1 and run.count("vocab") is None:
        raise MissingCell("vocab is blank: one layer by itself is no training step")
    vocab = run.count("vocab") or usual_vocab(family)
    context = run.count("seq_len") or 2048
    if traits["positions"] == "learned":
        traits["position_rows"] = context
    experts = _experts(run, gated=bool(traits["gated"]))
    ffn = run.count("ffn_hidden") or (experts["ffn"] if experts else 4 * hidden)
    return Model.read(
        {
            "name": name, "family": family or "gpt", "layers": run.need("layers"), "hidden": hidden, "heads": heads,
            "kv_heads": run.count("kv_heads") or heads, "head_dim": run.count("head_dim") or hidden // heads,
            "ffn": ffn, "vocab": vocab, "context": context, "experts": experts, **traits,
        },
        where=f"run {run.id}",
    )  # fmt: skip


def usual_vocab(family: str) -> int:
    """The vocabulary of a family whose row does not say it; few steps depend on it by more than a few per cent."""
    return LLAMA_VOCAB if family.lower().startswith(_LLAMA_LIKE) else GPT2_VOCAB


def _experts(run: Run, gated: bool) -> dict[str, Any] | None:
    count = run.count("n_experts")
    if count is None or count == 1:
        return None
    width = run.count("moe_ffn_hidden") or run.need("ffn_hidden")
    shared = run.count("shared_experts") or 0
    return {
        "count": count, "per_token": run.count("top_k") or 1, "ffn": width,
        "shared": shared, "shared_ffn": shared * width,
    }  # fmt: skip
