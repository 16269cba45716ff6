"""What no table can say of large mixtures of experts: heads of layers with a window, layers that are two."""

from __future__ import annotations

from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface.fields import Fields
from distsim.interop.huggingface.windows import LOCAL

Values = dict[str, Any]


def mimo(fields: Fields, values: Values) -> Values:
    """MiMo V2 Flash: layers with a window have twice the key-value heads and, as files of the hub say, sink logits.
    Those name the layers in ``hybrid_layer_pattern`` (1: window) and ``moe_layer_freq``."""
    found: Values = {
        "value_dim": fields.whole("v_head_dim"),
        "attention_sinks": fields.flag("add_full_attention_sink_bias"),
    }
    for name, same in (("swa_head_dim", values["head_dim"]), ("swa_v_head_dim", found["value_dim"])):
        if (width := fields.whole(name)) not in (None, same):
            raise fields.wrong(name, width, f"{same}, as in layers without a window, is needed")
    pattern = fields.row("hybrid_layer_pattern", length=values["layers"])
    if pattern and "layer_types" not in fields.data:
        found["window_pattern"] = tuple(bool(fields.as_whole("hybrid_layer_pattern", one, 0, 1)) for one in pattern)
    elif "window_pattern" not in values and "window" in values and "layer_types" not in fields.data:
        found["window_pattern"] = tuple(layer > 0 and (layer + 1) % 6 > 0 for layer in range(values["layers"]))
    if "window" not in values:
        return found
    return {**found, "windowed": {
        "heads": fields.whole("swa_num_attention_heads"),
        "kv_heads": fields.whole("swa_num_key_value_heads") or 2 * values["kv_heads"],
        "attention_sinks": fields.flag("add_swa_attention_sink_bias", default=True),
    }}  # fmt: skip


def step(fields: Fields, values: Values) -> Values:
    """Step 3.5: layers with a window have heads of their own, by either of two keys or layer by layer."""
    other = "attention_other_setting"
    heads = fields.whole("num_sliding_attention_heads", f"{other}.num_attention_heads")
    for name, same in (
        (f"{other}.num_attention_groups", values["kv_heads"]),
        (f"{other}.head_dim", values["head_dim"]),
    ):
        if (count := fields.whole(name)) not in (None, same):
            raise fields.wrong(name, count, f"{same}, as in layers without a window, is needed")
    each = fields.find("per_layer_config")[1] or {}
    local = {index for index, kind in enumerate(fields.row("layer_types") or []) if kind in LOCAL}
    stated = {str(layer): dict(one) for layer, one in each.items()} if isinstance(each, dict) else {}
    if heads and any(one != {"num_attention_heads": heads} or int(layer) not in local for layer, one in stated.items()):
        problem = "per_layer_config differs from num_sliding_attention_heads"
        raise DistsimError(problem, "only heads of layers with a window may differ", where=fields.where)
    for name in fields.unused():
        if name.startswith(("per_layer_config.", f"{other}.")):
            fields.settled(name)
    # The code clamps in every layer, to infinity where no limit is stated, and lists go on to layers that predict more.
    fields.settled("swiglu_limits", "swiglu_limits_shared", "mtp_layer_types", "mtp_mlp_layer_types")
    return {"windowed": {"heads": heads}} if heads and "window" in values else {}


def mistral_large4(fields: Fields, values: Values) -> Values:
    """Mistral Large 4: layers that read another layer's keys and values are refused."""
    source = fields.row("kv_source_layers", length=values["layers"])
    if source is not None and source != list(range(values["layers"])):
        hint = "only models whose layers all have keys and values of their own are supported"
        raise DistsimError("kv_source_layers makes layers share keys and values", hint, where=fields.where)
    return {}


def longcat(fields: Fields, values: Values) -> Values:
    """LongCat: a layer is two, which ``num_hidden_layers`` counts one by one."""
    fields.settled("zero_expert_type", "attention_method")  # identity, latent: there are no others
    if "num_hidden_layers" not in fields.data:
        return {}
    blocks = fields.needed("num_hidden_layers")
    return {} if "num_layers" in fields.data else {"layers": max(blocks // 2, 1)}
