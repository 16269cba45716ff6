"""The mixture-of-experts part of a configuration: widths, shared experts, and which layers are dense."""

from __future__ import annotations

import re
from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface.aliases import NAMES
from distsim.interop.huggingface.families import Family
from distsim.interop.huggingface.fields import Fields, Words

COUNTS = re.compile(r"(ffn_config\.)?(moe_)?(num|n)_((local|routed|moe)_)?experts")
"""Keys that say how many experts a layer has, in whatever family."""

SPARSE = ("sparse", "moe", "hash_moe")
"""Kinds of MLPs that are experts (DeepSeek-V4's first ones send a word to the same experts wherever it stands)."""


def refuse_experts(fields: Fields, family: Family) -> None:
    """An error where the configuration of a dense family has experts, whose layers nothing here describes."""
    for name in filter(COUNTS.fullmatch, fields.unused()):
        value = fields.find(name)[1]
        if any(fields.as_whole(name, one, least=0) > 1 for one in (value if isinstance(value, list) else [value])):
            problem = f"{name} is {value if isinstance(value, int) else 'a list'}, but {family.name} is a dense family"
            hint = "its experts would not be counted: describe the model in your own TOML file, with [experts]"
            raise DistsimError(problem, hint, where=fields.where)


def read_experts(fields: Fields, family: Family, values: dict[str, Any]) -> dict[str, Any] | None:
    """Fields of ``Experts``, or None where the configuration has no experts after all."""

    def names(what: str) -> tuple[str, ...]:
        return (*family.names.get(what, ()), *NAMES[what])

    layers = values["layers"]
    if not fields.flag("enable_moe_block", default=True):
        fields.settled(*names("experts"), *names("experts_per_token"), *names("expert_ffn"))
        return None
    count = fields.repeated(*names("experts"), least=0, of="their experts")
    dense = dense_layers(fields, layers)
    if count == 1 and family.name == "jamba":  # its code makes an MLP of one expert
        fields.settled(*names("experts_per_token"))
        return None
    if not count or len(dense) == layers or "E" not in values.get("pattern", "E"):
        return None
    ffn = fields.repeated(*names("expert_ffn"), of="their experts") or values["ffn"]
    shared = fields.repeated(*names("shared_experts"), least=0, of="their experts") or 0
    each = fields.whole(*names("shared_each"), least=0) if names("shared_each") else None
    shared_ffn = fields.whole(*names("shared_ffn"), least=0) or shared * (each or 0)
    if shared_ffn and not shared:
        shared = 1
    if fields.flag("residual_moe"):  # Grok 2: a dense MLP reads what they read, and is added
        shared, shared_ffn = 1, values["ffn"]
    return {
        **(family.experts or {}),
        "count": count,
        "per_token": fields.repeated(*names("experts_per_token"), of="their experts") or 1,
        "ffn": ffn,
        "latent": fields.whole("moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size"),
        "shared": shared,
        "shared_ffn": shared_ffn or shared * ffn,
        "dense_layers": dense,
        **_capped(fields),
        **_zero(fields),
        **_groups(fields, count),
    }


def _groups(fields: Fields, count: int) -> dict[str, Any]:
    """Groups of experts among which DeepSeek's router chooses first; its greedy one knows none."""
    # Hunyuan writes false for a router without groups
    groups, chosen = (fields.whole(name) if fields.find(name)[1] else None for name in ("n_group", "topk_group"))
    limited = groups is not None and chosen is not None and groups > 1 and count % groups == 0
    if not limited or fields.find("topk_method")[1] == "greedy":
        return {}
    return {"groups": groups, "groups_per_token": chosen}


def _capped(fields: Fields) -> dict[str, Any]:
    """A soft cap on the router's logits, which zero switches off."""
    cap = fields.number("moe_router_logit_softcapping", default=0.0, most=1e6)
    return {"score_softcap": True} if cap else {}


def _zero(fields: Fields) -> dict[str, Any]:
    """Experts that hand tokens back, for each of which transformers stores a first product; the router's bias."""
    zero = fields.whole("zero_expert_num", least=0)
    return {} if zero is None else {"zero": zero, "idle": zero, "router_bias": fields.flag("router_bias")}


def dense_layers(fields: Fields, layers: int) -> tuple[int, ...]:
    """Layers whose MLP is dense, by whichever rule the configuration follows."""
    fields.settled("first_k_dense_replace", "interleave_moe_layer_step")  # where a list names the layers
    if (kinds := fields.row("mlp_layer_types", length=layers)) is not None:
        return tuple(layer for layer, kind in enumerate(kinds) if kind not in SPARSE)
    name, sparse = fields.find("moe_layers", "moe_layers_enum")
    if isinstance(sparse, str):  # Step 3.5 writes "3,4,5"
        sparse = [int(one) if one.strip().isdigit() else one for one in sparse.split(",") if one.strip()]
    if isinstance(sparse, list):  # none of them where it is empty
        chosen = {fields.as_whole(name, one, 0) for one in sparse}
        return tuple(layer for layer in range(layers) if layer not in chosen)
    return tuple(layer for layer in range(layers) if not _is_sparse(fields, layer, layers))


def _is_sparse(fields: Fields, layer: int, layers: int) -> bool:
    """The rules by period and by range; all that are stated must hold."""
    first = fields.whole("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", least=0) or 0
    last = fields.whole("moe_layer_end_index", least=-1)
    last = layers - 1 if last is None or last < 0 else last
    every = fields.whole("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", least=0) or 1
    only = fields.row("mlp_only_layers") or []
    period, offset = fields.whole("expert_layer_period"), fields.whole("expert_layer_offset", least=0)
    if period is not None and layer % period != (offset or 0):
        return False
    name, frequency = fields.find("moe_layer_freq")
    if isinstance(frequency, list):
        if len(frequency) != layers:
            raise fields.wrong(
                name, Words(f"a list of {len(frequency)}"), f"expected one entry for each of {layers} layers"
            )
        if not frequency[layer]:
            return False
    elif frequency is not None and layer % fields.as_whole(name, frequency) != 0:
        return False
    return first <= layer <= last and (layer + 1) % every == 0 and layer not in only
