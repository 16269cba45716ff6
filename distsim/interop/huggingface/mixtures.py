"""What no table can say of large mixtures of experts: heads of layers with a window, layers that are two."""

from __future__ import annotations

from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface.fields import Fields
from distsim.interop.huggingface.latent import read_latent_attention
from distsim.interop.huggingface.recurrent import shortest
from distsim.interop.huggingface.windows import BLOCKS, LOCAL

Values = dict[str, Any]


def mimo(fields: Fields, values: Values) -> Values:
    """MiMo V2 Flash: layers with a window have twice the key-value heads and, as files of the hub say, sink logits.
    Those name the layers in ``hybrid_layer_pattern`` (1: window) and ``moe_layer_freq``."""
    found: Values = {
        "value_dim": fields.whole("v_head_dim"),
        "attention_sinks": fields.flag("add_full_attention_sink_bias"),
    }
    fields.settled("attention_chunk_size", "attention_projection_layout")  # the window again; how weights are stored
    for name, same in (("swa_head_dim", values["head_dim"]), ("swa_v_head_dim", found["value_dim"])):
        if (width := fields.whole(name)) not in (None, same):
            raise fields.wrong(name, width, f"expected {same}, as in layers without a window")
    pattern = fields.row("hybrid_layer_pattern", length=values["layers"])
    if pattern and "layer_types" not in fields.data:
        found["window_pattern"] = tuple(bool(fields.as_whole("hybrid_layer_pattern", one, 0, 1)) for one in pattern)
    elif "layer_types" not in fields.data:  # as the code fills it in
        found["window_pattern"] = tuple(layer > 0 and (layer + 1) % 6 > 0 for layer in range(values["layers"]))
    if "window" not in values:
        return found
    if beside := fields.whole("sliding_window_size"):  # which does not count the token itself
        found["window"] = beside + 1
    return {**found, "windowed": {
        "heads": fields.whole("swa_num_attention_heads"),
        "kv_heads": fields.whole("swa_num_key_value_heads") or 2 * values["kv_heads"],
        "attention_sinks": fields.flag("add_swa_attention_sink_bias", default=True),
    }}  # fmt: skip


def llama4(fields: Fields, values: Values) -> Values:
    """Llama 4: queries and keys have unit length in the layers that rotate them, which are those with chunks."""
    unit = fields.flag("use_qk_norm", default=True)
    if "window" not in values:
        return {}
    return {"window_chunks": True, **({"windowed": {"qk_norm": "unit"}} if unit else {})}


def step(fields: Fields, values: Values) -> Values:
    """Step 3.5: layers with a window have heads of their own, by either of two keys or layer by layer."""
    other = "attention_other_setting"
    heads = fields.whole("num_sliding_attention_heads", f"{other}.num_attention_heads")
    for name, same in (
        (f"{other}.num_attention_groups", values["kv_heads"]),
        (f"{other}.head_dim", values["head_dim"]),
    ):
        if (count := fields.whole(name)) not in (None, same):
            raise fields.wrong(name, count, f"expected {same}, as in layers without a window")
    local = {index for index, kind in enumerate(fields.row("layer_types") or []) if kind in LOCAL}
    if any(one != {"num_attention_heads": heads} or layer not in local for layer, one in _by_layer(fields).items()):
        problem = "per_layer_config differs from num_sliding_attention_heads"
        raise DistsimError(problem, "only heads of layers with a window may differ", where=fields.where)
    fields.settled(*(name for name in fields.unused() if name.startswith(f"{other}.")))
    # The code clamps in every layer, to infinity where no limit is stated, and lists go on to layers that predict more.
    fields.settled("swiglu_limits", "swiglu_limits_shared", "mtp_layer_types", "mtp_mlp_layer_types")
    return {"windowed": {"heads": heads}} if heads and "window" in values else {}


def mistral_large4(fields: Fields, values: Values) -> Values:
    """Mistral Large 4: layers that read another layer's keys and values are refused."""
    source = fields.row("kv_source_layers", length=values["layers"])
    if source is not None and source != list(range(values["layers"])):
        hint = "only models whose layers all have their own keys and values are supported"
        raise DistsimError("kv_source_layers makes layers share keys and values", hint, where=fields.where)
    return {}


def dots3(fields: Fields, values: Values) -> Values:
    """dots3: layers with a window have latent attention of other ranks and widths, and no indexer."""
    if (shared := fields.whole("n_shared_experts")) not in (None, 1):
        raise fields.wrong("n_shared_experts", shared, "expected 1")
    kinds = fields.row("layer_types", length=values["layers"])
    windows = fields.flag("use_sliding_window", default=True)
    if kinds is None:  # as the code fills it in
        kinds = [("full_attention" if not windows or layer < 2 or layer % 4 == 1 else "sliding_attention")
                 for layer in range(values["layers"])]  # fmt: skip
    # Older files call layers with an indexer full; those with settings layer by layer call them indexed.
    each = fields.find("per_layer_config")[1]
    chooses = fields.flag("use_dsa", default=each is None or "indexed_attention" in kinds)
    if each is not None and {"indexed_attention", "full_attention"} <= set(kinds) and "use_dsa" not in fields.data:
        raise DistsimError(
            "layer_types has layers with and without an indexer", "only one kind is supported", where=fields.where
        )
    latent = read_latent_attention(fields, values["head_dim"], values["layers"], indexed=chooses)
    pattern = tuple(kind in LOCAL for kind in kinds)
    own = {"head_dim": latent["nope_dim"] + latent["rope_dim"], "latent_attention": latent | {"rope_norm": True}}
    if not any(pattern):
        return own
    found = _windowed_latent(fields, _by_layer(fields), pattern)
    window = fields.needed("sliding_window", "sliding_window_size")
    return {**own, "window": window, "window_pattern": () if all(pattern) else pattern, "windowed": found}


SWA = ("num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim",
       "head_dim", "qk_rope_head_dim")  # fmt: skip


def _by_layer(fields: Fields) -> dict[int, Values]:
    """What single layers have otherwise than the model; keys are their numbers, as words."""
    name, each = fields.find("per_layer_config")
    fields.settled(*(key for key in fields.unused() if key.startswith(f"{name}.")))
    if each is None:
        return {}
    if not isinstance(each, dict) or not all(str(key).isdigit() and isinstance(each[key], dict) for key in each):
        raise fields.wrong(name, each, "expected settings by layer number")
    return {int(layer): dict(one) for layer, one in each.items()}


def _windowed_latent(fields: Fields, each: dict[int, Values], pattern: tuple[bool, ...]) -> Values:
    """Heads, ranks and widths of dots3's layers with a window: the same in all of them."""
    stated = [each.get(layer, {}) for layer, local in enumerate(pattern) if local]
    if any(one != stated[0] for one in stated) or any(layer >= len(pattern) or not pattern[layer] for layer in each):
        hint = "layers with a window may differ from the others, not from one another"
        raise DistsimError("per_layer_config differs between layers of one kind", hint, where=fields.where)
    own = {name: fields.whole(name if each else f"swa_{name}") for name in SWA}
    own |= {name: fields.as_whole(name, one) for name, one in stated[0].items() if name in SWA}
    nope = own["qk_nope_head_dim"]
    return {
        "heads": own["num_attention_heads"], "kv_heads": own["num_key_value_heads"],
        "latent_attention": {
            "q_rank": own["q_lora_rank"], "kv_rank": own["kv_lora_rank"], "nope_dim": nope,
            "rope_dim": own["qk_rope_head_dim"] or (own["head_dim"] or 0) - (nope or 0),
            "value_dim": own["v_head_dim"], "rope_norm": True,
        },
    }  # fmt: skip


def minimax_m3(fields: Fields, values: Values) -> Values:
    """MiniMax-M3: layers that attend to chosen blocks, by their kind or, in its own files, by a list of 0 and 1."""
    old, layers = "sparse_attention_config", values["layers"]
    kinds, listed = fields.row("layer_types", length=layers), fields.row(f"{old}.sparse_attention_freq", length=layers)
    if kinds is not None:
        chosen = tuple(kind == BLOCKS for kind in kinds)
    else:
        chosen = tuple(bool(one) for one in listed or [0] * layers)
    index = {
        "heads": fields.needed(f"{old}.sparse_num_index_heads", "index_n_heads"),
        "dim": fields.needed(f"{old}.sparse_index_dim", "index_head_dim"),
        "block": fields.needed(f"{old}.sparse_block_size", "index_block_size"),
        "blocks": fields.needed(f"{old}.sparse_topk_blocks", "index_topk_blocks"),
        "layers": () if all(chosen) else shortest(chosen),
    }
    fields.settled("index_local_blocks", *(name for name in fields.unused() if name.startswith(f"{old}.")))
    return {"block_indexer": index} if any(chosen) else {}


def longcat(fields: Fields, values: Values) -> Values:
    """LongCat: a layer is two, which ``num_hidden_layers`` counts one by one."""
    fields.settled("zero_expert_type", "attention_method")  # identity, latent: there are no others
    if "num_hidden_layers" not in fields.data:
        return {}
    blocks = fields.needed("num_hidden_layers")
    return {} if "num_layers" in fields.data else {"layers": max(blocks // 2, 1)}
