"""Layers of one stack that differ in their heads, read others' keys, or have inputs of their own (Gemma 3n and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.interop.huggingface.fields import Fields, Words

Values = dict[str, Any]
CUTOFF_LAYERS = 10
"""Layers with a cutoff where a file names none, if there are more than so many (configuration_gemma3n.py)."""
PER_LAYER = {"head_dim": "head_dim", "num_key_value_heads": "kv_heads"}
"""Keys that a layer may have otherwise than the rest, as newer files state them under ``per_layer_config``."""


def gemma4(fields: Fields, values: Values) -> Values:
    """Gemma 4: the last layer has no window whatever the file says; heads differ between layers with and without."""
    name, both = fields.find("use_bidirectional_attention")
    if both == "all":
        raise fields.wrong(name, both, "only causal layers are supported")
    windows = _windows(values)
    found: Values = {"window_pattern": windows if any(windows) else (), "shared_keys": _shared(fields, values)}
    if not any(windows):
        found["window"] = None
    found["layer_inputs"] = _inputs(fields)
    shape = _global_shape(fields, values, windows)
    one = fields.flag("attention_k_eq_v")
    if shape != {"head_dim": values["head_dim"], "kv_heads": values["kv_heads"]} or one:
        found["global_attention"] = {**shape, "keys_as_values": one}
    return found


def _windows(values: Values) -> tuple[bool, ...]:
    """Which layers have a window: the last has none."""
    windows = values.get("window_pattern") or (bool(values.get("window")),) * values["layers"]
    return (*windows[:-1], False)


def embedding_gemma2(fields: Fields, values: Values) -> Values:
    """EmbeddingGemma 2: Gemma 4's layers, in which each token sees those on both sides; per-layer inputs without a
    table, and a projection behind the last norm. A file states half of the window."""
    windows = _windows(values)
    width = fields.whole("hidden_size_per_layer_input", least=0)
    return {
        "causal": False,
        "window": 2 * values["window"] + 1 if any(windows) else None,
        "window_pattern": windows if any(windows) else (),
        "global_attention": _global_shape(fields, values, windows),
        "layer_inputs": {"width": width, "rows": 0} if width else None,
        "output": {"predicts": "nothing", "projection": fields.needed("embedding_dim")},
        "tied_embeddings": False,
    }


def gemma3n(fields: Fields, values: Values) -> Values:
    """Gemma 3n: four residual streams, a way around attention, and MLPs with a cutoff in the first layers."""
    fields.settled("altup_active_idx", "altup_lr_multiplier")
    layers = values["layers"]
    name, pattern = fields.find("activation_sparsity_pattern")
    if pattern is None:
        pattern = [1.0] * CUTOFF_LAYERS if layers > CUTOFF_LAYERS else []
    if not isinstance(pattern, list):
        pattern = [pattern] * layers
    if len(pattern) > layers or not all(isinstance(one, (int, float)) and 0 <= one <= 1 for one in pattern):
        raise fields.wrong(name, pattern, f"expected a share from 0 to 1 for each of the {layers} layers")
    streams = {
        "count": fields.needed("altup_num_inputs"), "bypass_rank": fields.needed("laurel_rank"),
        "cutoff_layers": tuple(layer for layer, share in enumerate(pattern) if share > 0),
    }  # fmt: skip
    return {"streams": streams, "shared_keys": _shared(fields, values), "layer_inputs": _inputs(fields)}


def _shared(fields: Fields, values: Values) -> Values | None:
    """The last layers, which read others' keys, and the double width of their MLPs; a default that does not fit the
    stated number of layers means none."""
    count = fields.whole("num_kv_shared_layers", least=0) or 0
    if count >= values["layers"]:
        if "num_kv_shared_layers" not in fields.assumed:
            raise fields.wrong("num_kv_shared_layers", count, f"expected fewer than the {values['layers']} layers")
        count = 0
    double = fields.flag("use_double_wide_mlp")
    return {"layers": count, "ffn": 2 * values["ffn"] if double else None} if count else None


def _inputs(fields: Fields) -> Values | None:
    """Per-layer embeddings; a width of zero means none."""
    width = fields.whole("hidden_size_per_layer_input", least=0) or 0
    rows = fields.whole("vocab_size_per_layer_input", least=0)
    return {"width": width, "rows": rows or fields.needed("vocab_size")} if width else None


def _global_shape(fields: Fields, values: Values, windows: tuple[bool, ...]) -> Values:
    """Heads of layers without a window: by the keys for them, or by what each such layer states of its own."""
    own = {"head_dim": values["head_dim"], "kv_heads": values["kv_heads"]}
    fields.settled("global_head_dim", "num_global_key_value_heads")
    if isinstance(stated := fields.data.get("per_layer_config"), Mapping):
        return own | _per_layer(fields, stated, windows)
    heads = fields.whole("num_global_key_value_heads") if fields.flag("attention_k_eq_v", default=True) else None
    return {"head_dim": fields.needed("global_head_dim"), "kv_heads": heads or own["kv_heads"]}


def _per_layer(fields: Fields, stated: Mapping[str, Any], windows: tuple[bool, ...]) -> Values:
    """The one shape that all layers without a window state, and no other."""
    shapes: list[Values] = []
    for layer, windowed in enumerate(windows):
        name = next((key for key in stated if key.isdigit() and int(key) == layer), None)
        shape = stated[name] if name else {}
        where = f"per_layer_config.{name or layer}"
        if not isinstance(shape, Mapping) or (windowed and shape) or set(shape) - set(PER_LAYER):
            raise fields.wrong(where, shape, f"only layers without a window may differ, in {' and '.join(PER_LAYER)}")
        fields.settled(*(f"{where}.{key}" for key in shape))
        if not windowed:
            shapes.append({PER_LAYER[key]: fields.as_whole(f"{where}.{key}", one) for key, one in shape.items()})
    if any(shape != shapes[0] for shape in shapes):
        raise fields.wrong(
            "per_layer_config", Words("not the same everywhere"), "all layers without a window must have the same"
        )
    return shapes[0]
