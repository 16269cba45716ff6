"""Hybrids whose layers all have an MLP, and before it attention or something in its place: which layers, and what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from distsim.arrays import ceil_div
from distsim.errors import DistsimError
from distsim.interop.huggingface.families import Family
from distsim.interop.huggingface.fields import Fields
from distsim.interop.huggingface.modalities import STEP_SHARE
from distsim.interop.huggingface.windows import GLOBAL, LOCAL

OTHERS = {"linear_attention", "mamba", "conv", "linear", "recurrent", "kda"}
"""What configurations call a layer whose mixer is no attention."""
NAMES = ("layer_types", "layers_block_type")
REPEATED = "block_types"
"""Kinds of layers that are repeated over all of them (RecurrentGemma)."""

BESIDE = "mamba-2 beside attention"
"""Every layer has both."""
LISTED = "linear_attn_config.full_attn_layers"
SWITCHES = "attn_type_list"
"""One for a layer with attention, nought for one without (MiniMax-Text-01's own file)."""
RULES = ("full_attention_interval", "layer_group_size", "attn_layer_indices", "full_attn_idxs", "attn_layer_period",
         "attn_layer_offset", LISTED, "linear_attn_config.kda_layers")  # fmt: skip
"""Keys that say which layers attend; where a list names the kinds, the others need no reading."""


def read_recurrent(fields: Fields, family: Family, values: dict[str, Any]) -> dict[str, Any]:
    """``recurrent`` and the mixer of such layers."""
    field, read = READERS[family.recurrent]
    mixer = read(fields, values)
    if family.recurrent == BESIDE:
        fields.settled(*NAMES)
        return {"recurrent": (True,), "mixer_beside": True, field: mixer}
    layers = recurrent_layers(fields, values["layers"])
    return {"recurrent": shortest(layers), field: mixer} if any(layers) else {}


Kind = TypeVar("Kind", bool, int)


def shortest(layers: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """The pattern whose repetition these layers are."""
    return next(
        layers[:period] for period in range(1, len(layers) + 1)
        if all(one == layers[index % period] for index, one in enumerate(layers))
    )  # fmt: skip


def recurrent_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Whether each layer has something else in attention's place, by whichever rule the configuration follows."""
    fields.settled(*NAMES, *RULES)
    kinds, repeated = fields.row(*NAMES, length=layers), fields.row(REPEATED)
    if kinds is None and repeated is not None:
        kinds = [repeated[layer % len(repeated)] for layer in range(layers)]
    if kinds is not None:
        if unknown := sorted({str(kind) for kind in kinds} - LOCAL - GLOBAL - OTHERS):
            raise fields.wrong(NAMES[0], unknown[0], f"kinds: {', '.join(sorted(OTHERS | GLOBAL))}")
        return tuple(kind in OTHERS for kind in kinds)
    if (linear := fields.row(SWITCHES, length=layers)) is not None:
        return tuple(not one for one in linear)
    if (attending := _listed(fields, layers)) is not None:
        return tuple(layer not in attending for layer in range(layers))
    if (period := fields.whole("attn_layer_period")) is not None:
        offset = fields.whole("attn_layer_offset", least=0) or 0
        return tuple(layer % period != offset for layer in range(layers))
    every = fields.whole("full_attention_interval", "layer_group_size")
    return tuple(every is None or (layer + 1) % every != 0 for layer in range(layers))


def _listed(fields: Fields, layers: int) -> set[int] | None:
    """Layers (from 0) with attention, where a list names them."""
    name, first = LISTED, 1
    listed = fields.row(name)
    if listed is None:
        name, first = ("attn_layer_indices", 0) if fields.row("attn_layer_indices") else ("full_attn_idxs", 0)
        listed = fields.row(name)
    return None if listed is None else {fields.as_whole(name, one, first, layers) - first for one in listed}


def _delta(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Gated DeltaNet; widths that OLMo Hybrid leaves open follow from its hidden width."""
    keys = fields.whole("linear_num_key_heads") or values["heads"]
    key_dim = fields.whole("linear_key_head_dim") or 3 * values["hidden"] // (4 * keys)
    heads = fields.whole("linear_num_value_heads") or values["heads"]
    if heads % keys:
        raise DistsimError(f"{keys} key heads do not divide {heads} value heads", where=fields.where)
    return {
        "key_heads": keys, "value_heads": heads, "key_dim": key_dim,
        "value_dim": fields.whole("linear_value_head_dim") or 2 * key_dim,
        "convolution": fields.needed("linear_conv_kernel_dim"),
    }  # fmt: skip


def _delta_split(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Gated DeltaNet whose projections are modules of their own in part (Qwen3.5)."""
    return {**_delta(fields, values), "modules": "split"}


def _delta_apart(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Gated DeltaNet whose projections are modules of their own (OLMo Hybrid)."""
    return {**_delta(fields, values), "modules": "apart"}


def _kimi_delta(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Kimi Delta Attention; its narrow projections are as wide as a head (Kimi K3's gate has full rank)."""
    inner = "linear_attn_config"
    heads = fields.needed(f"{inner}.num_heads", "linear_num_heads")
    width = fields.needed(f"{inner}.head_dim", "linear_head_dim")
    taps = fields.needed(f"{inner}.short_conv_kernel_size", "linear_conv_kernel_dim")
    return {
        "key_heads": heads, "value_heads": heads, "key_dim": width, "value_dim": width, "convolution": taps,
        "modules": "apart", "channel_rank": width,
        "gate_rank": None if fields.flag(f"{inner}.use_full_rank_gate") else width,
        "bounded_decay": fields.find(f"{inner}.gate_lower_bound", "linear_lower_bound")[1] is not None,
    }  # fmt: skip


def _ling_delta(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Kimi Delta Attention whose gates have full rank (Ling 3); it has attention's heads where a file says nothing."""
    width = fields.whole("linear_head_dim") or fields.needed("head_dim")
    fields.settled("head_dim", "kda_safe_gate", "kda_lower_bound")
    heads = fields.whole("linear_num_heads") or values["heads"]
    taps = fields.needed("linear_conv_kernel_dim", "short_conv_kernel_size")
    return {
        "key_heads": heads, "value_heads": heads, "key_dim": width, "value_dim": width, "convolution": taps,
        "modules": "apart", "channel_decay": True,
    }  # fmt: skip


def _mamba2(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Mamba-2; a head's width of ``auto`` shares the inner width among the heads."""
    expand = fields.whole("mamba_expand") or 2
    inner = fields.whole("mamba_d_ssm") or expand * values["hidden"]
    heads = fields.needed("mamba_n_heads")
    name, width = fields.find("mamba_d_head")
    fields.settled("time_step_limit")
    return {
        "heads": heads, "head_dim": inner // heads if width in (None, "auto") else fields.as_whole(name, width),
        "state": fields.needed("mamba_d_state"), "groups": fields.needed("mamba_n_groups"),
        "convolution": fields.needed("mamba_d_conv"), "bias": fields.flag("mamba_proj_bias"),
        "convolution_bias": fields.flag("mamba_conv_bias", default=True),
        "chunk": fields.needed("mamba_chunk_size", "chunk_size"),
    }  # fmt: skip


def _mamba2_beside(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Falcon-H1's: the norm is a choice, and projections are scaled."""
    fields.settled("mamba_norm_before_gate", "ssm_multipliers", "mlp_multipliers", "mamba_use_mlp",
                   "mlp_expansion_factor")  # fmt: skip
    return {
        **_mamba2(fields, values), "output_bias": fields.flag("projectors_bias"),
        "norm": fields.flag("mamba_rms_norm"), "scaled": True,
    }  # fmt: skip


def _mamba1(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Mamba-1 with norms on what its narrow projection gives (Jamba)."""
    name, rank = fields.find("mamba_dt_rank")
    usual = int(ceil_div(values["hidden"], STEP_SHARE))
    fields.settled("use_mamba_kernels", "use_mambapy", "use_associative_scan", "mamba_inner_layernorms")
    return {
        "heads": (fields.whole("mamba_expand") or 2) * values["hidden"], "head_dim": 1, "groups": 1,
        "state": fields.needed("mamba_d_state"), "convolution": fields.needed("mamba_d_conv"),
        "step_rank": usual if rank in (None, "auto") else fields.as_whole(name, rank),
        "inner_norms": True, "bias": fields.flag("mamba_proj_bias"),
        "convolution_bias": fields.flag("mamba_conv_bias", default=True),
    }  # fmt: skip


def _recurrence(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """RG-LRU; as wide as the hidden width where nothing is stated, in as many blocks as attention has heads."""
    width, blocks = fields.whole("lru_width") or values["hidden"], values["heads"]
    if width % blocks:
        raise DistsimError(f"{blocks} heads do not divide lru_width {width}", where=fields.where)
    return {"width": width, "blocks": blocks, "convolution": fields.needed("conv1d_width")}


def _lightning(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Lightning attention: as many heads as attention has, of the same width."""
    fields.settled("shared_moe_mode", "shared_intermediate_size", "postnorm", "attn_alpha_factor")
    return {"heads": values["heads"], "head_dim": values["head_dim"], "block": fields.needed("block_size")}


def _convolution(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Short convolutions (LFM2)."""
    return {"taps": fields.needed("conv_L_cache"), "bias": fields.flag("conv_bias")}


def _bounded_delta(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Kimi Delta Attention whose decays have a lower bound (GLM-5.3), unless a file says none: in its table of linear
    attention it must say so by another key."""
    inner, found = "linear_attn_config", _kimi_delta(fields, values)
    safe = isinstance(fields.data.get(inner), Mapping) and fields.flag(f"{inner}.safe_gate", default=True)
    return {**found, "bounded_decay": safe or found["bounded_decay"]}


READERS: Mapping[str, tuple[str, Callable[[Fields, dict[str, Any]], dict[str, Any]]]] = {
    "delta": ("delta", _delta),
    "delta split": ("delta", _delta_split),
    "delta apart": ("delta", _delta_apart),
    "ling delta": ("delta", _ling_delta),
    "kimi delta": ("delta", _kimi_delta),
    "bounded delta": ("delta", _bounded_delta),
    "mamba-2": ("mamba", _mamba2),
    BESIDE: ("mamba", _mamba2_beside),
    "mamba-1": ("mamba", _mamba1),
    "rg-lru": ("recurrence", _recurrence),
    "lightning": ("lightning", _lightning),
    "convolution": ("convolution", _convolution),
}
"""By a family's ``recurrent``: the model's field, and what reads it."""
