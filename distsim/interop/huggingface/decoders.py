"""Decoders of 2026 that are a few facts away from others: what no table can say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface.fields import Fields
from distsim.interop.huggingface.recurrent import shortest
from distsim.interop.huggingface.windows import LOCAL, sliding

Values = dict[str, Any]
LARA_PERIOD = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")
"""Kinds of Lara's layers where a file names none (transformers 5.24, models/lara_mini/configuration_lara_mini.py)."""

GLIMMER_PERIOD = 4
"""Layers from one of Muse Glimmer's that sees all to the next, where a file names none (transformers 5.24,
models/muse_glimmer/configuration_muse_glimmer.py)."""


def listed_windows(fields: Fields, values: Values) -> Values:
    """Where no list names layers with a window, all see everything (Cohere's North Vision)."""
    if fields.row("layer_types") is not None:
        return {}
    fields.settled("sliding_window")
    return {"window": None, "window_pattern": ()}


def dense_first(fields: Fields, values: Values) -> Values:
    """Cohere's mixtures: layers before the experts have an MLP as wide as these are, or as one more key says."""
    return {"ffn": fields.whole("prefix_dense_intermediate_size") or values["ffn"]}


def muse_glimmer(fields: Fields, values: Values) -> Values:
    """Muse Glimmer: where no list says so, every fourth layer sees all, counted from the last one back. Which layers
    rotate changes neither parameters nor what is kept."""
    fields.settled("layer_rope_theta", "residual_gate_temperature")
    if fields.row("layer_types") is not None or "window" not in values:
        return {}
    layers = values["layers"]
    pattern = tuple((layers - layer) % GLIMMER_PERIOD != 1 for layer in range(layers))
    return {"window_pattern": pattern} if any(pattern) else {"window": None, "window_pattern": ()}


def muse_spark(fields: Fields, values: Values) -> Values:
    """Muse Spark: as Muse Glimmer, but its output layer never shares the embedding's matrix, whatever a file says."""
    fields.settled("tie_word_embeddings")
    return {**muse_glimmer(fields, values), "tied_embeddings": False}


def pruned_head(fields: Fields, values: Values) -> Values:
    """Apertus 1.5: an output layer for the first words alone, which words of images and sound are not among."""
    rows = fields.whole("output_vocab_size", most=values["vocab"])
    if rows in (None, values["vocab"]):
        return {}
    if values["tied_embeddings"]:
        hint = "an output layer with fewer rows cannot be the embedding's: a file with both does not run"
        raise DistsimError("output_vocab_size with tie_word_embeddings", hint, where=fields.where)
    return {"vocab": rows, "extra_words": values["vocab"] - rows}


def lara(fields: Fields, values: Values) -> Values:
    """Lara: where no list says so, delta rules, windows and layers that see everything take turns by a period of five,
    as in the published models."""
    kinds = fields.row("layer_types", length=values["layers"])
    if kinds is None:
        kinds = [LARA_PERIOD[layer % len(LARA_PERIOD)] for layer in range(values["layers"])]
    mixers = tuple(kind == "linear_attention" for kind in kinds)
    return {**sliding(fields, kinds), **({"recurrent": shortest(mixers)} if any(mixers) else {})}


def laguna(fields: Fields, values: Values) -> Values:
    """Laguna: heads of layers with a window and of those without, each rotated by a share of its own, and a gate of
    each head or, by its code wherever ``gating`` says anything else than true, of each element."""
    if fields.flag("moe_apply_router_weight_on_input"):
        raise fields.wrong("moe_apply_router_weight_on_input", True, "transformers does not build such experts either")
    name, gating = fields.find("gating")
    if gating not in (True, False, "per-head", "per-element"):
        raise fields.wrong(name, gating, "expected per-head or per-element")
    kinds = fields.row("layer_types", length=values["layers"]) or ["full_attention"] * values["layers"]
    heads, own = _heads_by_kind(fields, values, kinds), listed_windows(fields, values)
    shares = [_rotated_share(fields, kind) for kind in dict.fromkeys(kinds)]
    found: Values = {
        **own,
        "heads": heads[0],
        "attention_gate": "head" if gating in (True, "per-head") else "apart",
        "rotary_fraction": sum(shares) / len(shares),
    }
    if len(heads) > 1 and heads[1] != heads[0]:
        if own or "window" not in values:
            raise fields.wrong("sliding_window", None, "expected a window: layers that have it have their own heads")
        found["windowed"] = {"heads": heads[1]}
    return found


def _rotated_share(fields: Fields, kind: str) -> float:
    """Of a head's width in layers of a kind; the code's own settings hold where a file states none for any kind."""
    usual = {"full_attention": 0.5}.get(kind, 1.0) if not fields.data.get("rope_parameters") else 1.0
    return fields.number(f"rope_parameters.{kind}.partial_rotary_factor", default=usual)


def _heads_by_kind(fields: Fields, values: Values, kinds: list[Any]) -> tuple[int, ...]:
    """Heads of layers without a window, and behind them those of layers with one; or of the only kind there is."""
    key = "num_attention_heads_per_layer"
    each = [fields.as_whole(key, one) for one in fields.row(key, length=values["layers"]) or []]
    if not each:
        return (values["heads"],)
    found: list[int] = []
    for local in (False, True):
        own = {heads for heads, kind in zip(each, kinds, strict=True) if (kind in LOCAL) == local}
        if len(own) > 1:
            hint = "layers with a window may differ from the others, not from one another"
            raise DistsimError(f"{key} differs between layers of one kind", hint, where=fields.where)
        found += own
    return tuple(found)


DECODERS: Mapping[str, Callable[[Fields, Values], Values]] = {
    "dense_first": dense_first,
    "lara": lara,
    "listed_windows": listed_windows,
    "laguna": laguna,
    "muse_glimmer": muse_glimmer,
    "muse_spark": muse_spark,
    "pruned_head": pruned_head,
}
"""By the name that a family's ``special`` gives."""
