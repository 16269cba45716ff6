"""The matrix products of a model that can have an adapter, by the names that people give them."""

from __future__ import annotations

from distsim.specs.mixers import DeltaNet
from distsim.specs.model import Model
from distsim.specs.tuning import BLOCK_INDEXER, EXPERT_LATENT, INDEXER, LATENT, NGRAMS, STREAMS

MIXER_IN, MIXER_OUT = "in_proj", "out_proj"
"""What Megatron's modules call the projections of any mixer."""
MAMBA_1 = (MIXER_IN, "x_proj", "dt_proj", MIXER_OUT)
LINEAR_ROUTERS = ("llama4_text", "phimoe", "longcat_flash")
"""Families whose routers are linear layers, not weights by themselves."""
FUSED_EXPERTS = (
    "afmoe", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe",
    "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash", "mellum",
    "minimax", "minimax_m2", "mixtral", "olmoe", "qwen3_moe", "qwen3_next", "qwen3_omni_moe", "sarvam_mla",
    "solar_open",
)  # fmt: skip
"""Families whose experts peft finds by the names that their matrices had before transformers 5, and then no other MLP
of the model by these (peft 0.21 utils/transformers_weight_conversion.py, what _MODEL_TO_CONVERSION_PATTERN has for
mixtral and qwen2_moe)."""
CONVOLUTION = (MIXER_IN, MIXER_OUT)
RECURRENCE = ("linear_y", "linear_x", "linear_out")
LIGHTNING = ("qkv_proj", "output_gate", MIXER_OUT)


def delta_of(model: Model) -> DeltaNet:
    """The delta rule's mixer of a model that has one."""
    assert model.delta is not None
    return model.delta


def mixer_products(model: Model) -> tuple[str, ...]:
    """Names of the products of what stands in attention's place, or beside it: Mamba, delta rules, recurrences,
    convolutions."""
    if model.mamba:
        return MAMBA_1 if model.mamba.step_rank else (MIXER_IN, MIXER_OUT)
    if model.delta:
        delta = model.delta
        return (*delta.inputs, *delta.scalars, *delta.others, delta.output)
    if model.recurrence:
        return RECURRENCE
    return CONVOLUTION if model.convolution else LIGHTNING if model.lightning else ()


def _latent(model: Model) -> tuple[str, ...]:
    """Halves of latent attention's projections, and an indexer's."""
    latent = model.latent_attention
    if latent is None:
        return ()
    halves = tuple(name for name, letter in LATENT.items() if letter == "k" or latent.q_rank)
    return halves + (INDEXER if latent.index_heads else ())


def _has_mlp(model: Model) -> bool:
    """Whether all tokens of some layer pass one MLP: a dense one, or a shared expert."""
    experts = model.experts
    routed = model.pattern.count("E") if model.pattern else model.layers - len(experts.dense_layers) if experts else 0
    if experts and ((experts.shared and routed) or experts.beside_mlp or experts.beside_dense):
        return True
    return "-" in model.pattern if model.pattern else routed < model.layers


def _gates_apart(model: Model) -> bool:
    """Whether a product of its own makes the gate of attention's output."""
    latent = model.latent_attention
    alone = model.attention_gate in ("head", "apart")
    return alone or (model.attention_gate is True and latent is not None and not latent.fused_gate)


def products(model: Model) -> tuple[str, ...]:
    """All but the output layer."""
    attends = model.attention_layers > 0 or model.encoder_layers > 0 or model.text is not None
    feeds = _has_mlp(model)
    found = (
        *(NGRAMS if model.ngrams else ()),
        *(STREAMS if model.stream_rank else ()),
        *(("q", "k", "v", *_latent(model), "o") if attends else ()),
        *((BLOCK_INDEXER,) if model.block_indexer and model.block_indexer.pooled else ()),
        *mixer_products(model),
        *(("g_proj",) if _gates_apart(model) else ()),
        *(("gate",) if feeds and model.gated else ()),
        *(("up", "down") if feeds else ()),
        *(("shared_expert_gate",) if model.experts and model.experts.shared_gate else ()),
        *(("router",) if model.experts and model.family in LINEAR_ROUTERS else ()),
        *(EXPERT_LATENT if model.experts and model.experts.latent else ()),
        *(("transform",) if model.output.transform else ()),
    )
    return tuple(dict.fromkeys(found))
