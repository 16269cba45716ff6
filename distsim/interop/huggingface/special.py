"""What no table can say: families whose keys interact. Each function returns the fields it sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distsim.arrays import round_up
from distsim.interop.huggingface.blocks import arctic, nemotron_nas
from distsim.interop.huggingface.compressed import deepseek_v4
from distsim.interop.huggingface.decoders import DECODERS
from distsim.interop.huggingface.encoders import bert, deberta, distilbert, esm, modernbert, roberta, t5
from distsim.interop.huggingface.fields import Fields, Words
from distsim.interop.huggingface.layer_shapes import embedding_gemma2, gemma3n, gemma4
from distsim.interop.huggingface.mixtures import dots3, llama4, longcat, mimo, minimax_m3, mistral_large4, step
from distsim.interop.huggingface.modalities import bart, clip, mamba, mamba2, marian, translator, vit, whisper
from distsim.interop.huggingface.ngrams import qwen4_exp
from distsim.interop.huggingface.relatives import RELATIVES
from distsim.interop.huggingface.windows import sliding

Values = dict[str, Any]


def falcon(fields: Fields, values: Values) -> Values:
    """Three layouts: 40B/180B (grouped, two norms), 7B (one kv head, one norm), RW (ALiBi, biases, sequential)."""
    new, parallel = fields.flag("new_decoder_architecture"), fields.flag("parallel_attn", default=True)
    multi_query = fields.flag("multi_query", default=True)
    kv_heads = values["kv_heads"] if new else 1 if multi_query else values["heads"]
    stated = fields.whole("num_ln_in_parallel_attn")
    norms = (stated or (2 if new else 1)) if new or parallel else 2
    return {
        "kv_heads": kv_heads,
        "parallel_blocks": parallel or new,
        "norms_per_layer": norms,
        "positions": "alibi" if fields.flag("alibi") else "rotary",
    }


def gpt_bigcode(fields: Fields, values: Values) -> Values:
    """StarCoder 1: one key-value head unless ``multi_query`` is off."""
    return {"kv_heads": 1 if fields.flag("multi_query", default=True) else values["heads"]}


def gpt_neo(fields: Fields, values: Values) -> Values:
    """Local and global layers by ``attention_types``: [[["global", "local"], 12]]."""
    kinds: list[str] = []
    for group in fields.row("attention_types") or []:
        if not (isinstance(group, list) and len(group) == 2 and isinstance(group[0], list)):
            raise fields.wrong("attention_types", group, 'expected pairs like [["global", "local"], 12]')
        kinds += [str(kind) for kind in group[0]] * fields.as_whole("attention_types", group[1], 1, 10_000)
    if not kinds or fields.find("attention_layers")[1] is not None:
        return {}
    return {"window": fields.whole("window_size"), "window_pattern": tuple(kind == "local" for kind in kinds)}


def opt(fields: Fields, values: Values) -> Values:
    """OPT-350M projects its embedding and has post-norms without a final one; positions start at row 2."""
    width = fields.whole("word_embed_proj_dim")
    before = fields.flag("do_layer_norm_before", default=True)
    return {
        "embedding_width": None if width == values["hidden"] else width,
        "final_norm": before and not fields.flag("_remove_final_layer_norm"),
        "position_rows": values["context"] + 2,
    }


def mpt(fields: Fields, values: Values) -> Values:
    """The inner width by ``expansion_ratio``; ALiBi, rotary or learned positions."""
    ratio = fields.number("expansion_ratio", default=4.0, least=0.01, most=1000.0)
    fields.settled("learned_pos_emb")
    if fields.flag("attn_config.alibi", default=True):
        positions = "alibi"
    elif fields.flag("attn_config.rope"):
        positions = "rotary"
    else:
        positions = "learned" if fields.flag("learned_pos_emb", default=True) else "none"
    kind = fields.text("attn_config.attn_type", default="multihead_attention")
    extra: Values = {"kv_heads": 1} if kind == "multiquery_attention" else {}
    extra["qk_norm"] = "full" if fields.flag("attn_config.qk_ln") else "none"
    return {"ffn": max(int(ratio * values["hidden"]), 1), "positions": positions, **extra}


def phi3(fields: Fields, values: Values) -> Values:
    """Phi-3: a rate of dropout after the embedding is stated, and not used."""
    return {"embedding_dropout": 0.0}


def chatglm(fields: Fields, values: Values) -> Values:
    """ChatGLM2 and 3 group their queries; ChatGLM-6B (``inner_hidden_size``) is a different, ungated network."""
    grouped = fields.flag("multi_query_attention")
    inner = fields.whole("inner_hidden_size")
    if inner is None:
        return {"kv_heads": values["kv_heads"] if grouped else values["heads"]}
    return {
        "ffn": inner,
        "kv_heads": values["heads"],
        "gated": False,
        "norm": "layernorm",
        "activation": "gelu",
        "tied_embeddings": True,
        "qkv_bias": True,
        "attention_output_bias": True,
        "mlp_bias": True,
    }


def stablelm(fields: Fields, values: Values) -> Values:
    """Parallel attention and MLP share one norm."""
    return {"norms_per_layer": 1 if fields.flag("use_parallel_residual") else 2}


def hf_olmo(fields: Fields, values: Values) -> Values:
    """OLMo's own code states the width of gate and up together, by itself or as a ratio, and positions by switches."""
    width = fields.whole("mlp_hidden_size") or fields.needed("mlp_ratio") * values["hidden"]
    gated = values["activation"] == "swiglu"
    fields.settled("mlp_ratio", "vocab_size")  # where a width is stated, and rows of the embedding
    return {
        "ffn": max(width // 2, 1) if gated else width,
        "gated": gated,
        "kv_heads": 1 if fields.flag("multi_query_attention") else values["kv_heads"],
        "positions": "rotary" if fields.flag("rope") else "alibi" if fields.flag("alibi") else "learned",
    }


def qwen(fields: Fields, values: Values) -> Values:
    """Qwen 1 states the width of gate and up together."""
    return {"ffn": max(values["ffn"] // 2, 1)}


def baichuan(fields: Fields, values: Values) -> Values:
    """7B rotates, 13B has ALiBi; only the 13B states its context as ``model_max_length`` alone."""
    rotary = "max_position_embeddings" in fields.data or "model_max_length" not in fields.data
    return {"positions": "rotary" if rotary else "alibi"}


MIXERS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "moe": "E", "mlp": "-"}

DEFAULT_MIXERS = ["linear_attention", "moe", "full_attention", "mlp"]  # as transformers has it for an empty file


def nemotron_h(fields: Fields, values: Values) -> Values:
    """One mixer per layer, as a string of letters or as a list of words. Whatever a file says, attention has no biases
    and the output layer a matrix of its own."""
    name, pattern = fields.find("hybrid_override_pattern")
    if pattern is None:
        name, kinds = (
            "layers_block_type",
            fields.row("layers_block_type") or fields.row("layer_types") or DEFAULT_MIXERS,
        )
        if unknown := sorted({str(kind) for kind in kinds} - set(MIXERS)):
            raise fields.wrong(name, unknown[0], f"kinds: {', '.join(MIXERS)}")
        pattern = "".join(MIXERS[str(kind)] for kind in kinds)
    if not isinstance(pattern, str) or not pattern or set(pattern) - set(MIXERS.values()):
        raise fields.wrong(name, pattern, "expected one of M * E - for each layer")
    if "num_hidden_layers" not in fields.assumed and len(pattern) != values["layers"]:
        raise fields.wrong(name, Words(f"{len(pattern)} layers long"), f"num_hidden_layers says {values['layers']}")
    mamba = {
        "heads": fields.needed("mamba_num_heads"), "head_dim": fields.needed("mamba_head_dim"),
        "state": fields.needed("ssm_state_size"), "groups": fields.needed("n_groups"),
        "convolution": fields.needed("conv_kernel"), "bias": fields.flag("use_bias"),
        "convolution_bias": fields.flag("use_conv_bias", "mamba_conv_bias", default=True),
        "chunk": fields.needed("mamba_chunk_size", "chunk_size"),
    }  # fmt: skip
    fields.settled("expand", "layers_block_type", "layer_types", "mtp_layers_block_type", "attention_bias")
    return {"pattern": pattern, "layers": len(pattern), "tied_embeddings": False,
            "mamba": mamba if "M" in pattern else None, **_predictions(fields, values["mtp_layers"])}  # fmt: skip


def _predictions(fields: Fields, modules: int) -> Values:
    """The layers of a module of multi-token prediction, where a configuration names any."""
    name, letters = fields.find("mtp_hybrid_override_pattern")
    if letters is None:
        return {"mtp_layers": 0}
    if not isinstance(letters, str) or set(letters) - set(MIXERS.values()):
        raise fields.wrong(name, letters, "expected letters of M * E -")
    return {"mtp_layers": modules if letters else 0, "mtp_pattern": letters if modules else ""}


def granite_hybrid(fields: Fields, values: Values) -> Values:
    """Without experts the MLP is what would be the shared expert; positions are rotary only where a key says so."""
    dense = not fields.whole("num_local_experts", least=0)
    return {
        "positions": "rotary" if fields.find("position_embedding_type")[1] == "rope" else "none",
        **({"ffn": fields.needed("shared_intermediate_size")} if dense else {}),
    }


def lfm2(fields: Fields, values: Values) -> Values:
    """The inner width is stated before two thirds of it are taken and rounded up."""
    share, unit = fields.number("block_ffn_dim_multiplier", default=1.0, most=100.0), fields.needed("block_multiple_of")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return {}
    width = int(share * int(2 * values["ffn"] / 3))
    return {"ffn": int(round_up(width, unit))}


def untied(fields: Fields, values: Values) -> Values:
    """Families whose output layer never shares the embedding's matrix, whatever a file says."""
    fields.settled("tie_word_embeddings")
    return {"tied_embeddings": False}


def lfm3(fields: Fields, values: Values) -> Values:
    """Short convolutions among full and sliding attention; a gate on attention and norms behind are choices."""
    stated = fields.row("layer_types", length=values["layers"])
    kinds = stated or [
        "full_attention" if layer % 4 == 2 else "sliding_attention" if layer % 4 == 0 < layer else "conv"
        for layer in range(values["layers"])
    ]
    return {
        **sliding(fields, kinds), "recurrent": tuple(kind == "conv" for kind in kinds),
        "norms_per_layer": 4 if fields.flag("use_sandwich_norm") else 2,
        "attention_gate": "head" if fields.flag("use_attention_gate") else False,
    }  # fmt: skip


def flint(fields: Fields, values: Values) -> Values:
    """Where no list says so, the first two layers, the last one and every fourth see all tokens."""
    if fields.row("layer_types") is not None or not fields.whole("sliding_window"):
        return {}
    last = values["layers"] - 1
    return {"window_pattern": tuple(layer >= 2 and layer % 4 != 1 and layer != last for layer in range(last + 1))}


def molmo2(fields: Fields, values: Values) -> Values:
    """Molmo 2: norms on queries and keys by head or over all at once, and words that are only read."""
    kind = fields.text("qk_norm_type", default="qwen3")
    if kind not in ("qwen3", "olmo"):
        raise fields.wrong("qk_norm_type", kind, "expected qwen3 or olmo")
    fields.settled("rope_scaling_layers", "norm_after")
    norms = "full" if kind == "olmo" else "head"
    return {
        "extra_words": fields.whole("additional_vocab_size", least=0) or 0,
        "qk_norm": norms if fields.flag("use_qk_norm", default=True) else "none",
    }


SPECIAL: Mapping[str, Callable[[Fields, Values], Values]] = {
    "arctic": arctic,
    "baichuan": baichuan,
    "bart": bart,
    "bert": bert,
    "chatglm": chatglm,
    "clip": clip,
    "deberta": deberta,
    "deepseek_v4": deepseek_v4,
    "distilbert": distilbert,
    "dots3": dots3,
    "embedding_gemma2": embedding_gemma2,
    "esm": esm,
    "falcon": falcon,
    "flint": flint,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "granite_hybrid": granite_hybrid,
    "hf_olmo": hf_olmo,
    "mamba": mamba,
    "mamba2": mamba2,
    "lfm2": lfm2,
    "lfm3": lfm3,
    "llama4": llama4,
    "longcat": longcat,
    "marian": marian,
    "mimo": mimo,
    "minimax_m3": minimax_m3,
    "mistral_large4": mistral_large4,
    "modernbert": modernbert,
    "molmo2": molmo2,
    "mpt": mpt,
    "nemotron_h": nemotron_h,
    "nemotron_nas": nemotron_nas,
    "opt": opt,
    "phi3": phi3,
    "qwen": qwen,
    "qwen4_exp": qwen4_exp,
    "roberta": roberta,
    "stablelm": stablelm,
    "step": step,
    "t5": t5,
    "translator": translator,
    "untied": untied,
    "vit": vit,
    "whisper": whisper,
    **DECODERS,
    **RELATIVES,
}
