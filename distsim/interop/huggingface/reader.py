"""Turns a configuration into a model, and tells which keys it did not use and which it had to assume."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface.aliases import NAMES
from distsim.interop.huggingface.classes import first_class, of_two_stacks, other_output
from distsim.interop.huggingface.experts import read_experts, refuse_experts
from distsim.interop.huggingface.families import Family, listed, load_family, refuse, supported
from distsim.interop.huggingface.fields import Fields, look
from distsim.interop.huggingface.flat import OTHERS, WRAPPED, flat_decoder, flat_networks
from distsim.interop.huggingface.harmless import matters
from distsim.interop.huggingface.latent import plain_attention, read_latent_attention
from distsim.interop.huggingface.meta import from_meta
from distsim.interop.huggingface.recurrent import read_recurrent
from distsim.interop.huggingface.special import SPECIAL
from distsim.interop.huggingface.towers import TOWER, read_tower
from distsim.interop.huggingface.windows import read_window
from distsim.interop.json_file import read_json
from distsim.specs.model import Model

WRAPPERS = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
"""Keys under which multi-modal configurations keep the decoder's own."""
NO_NETWORKS = ("quantization_config", "generation_config", "compression_config", "linear_attn_config",
               "per_layer_config")  # fmt: skip
SENSES = ("vision_config", "audio_config")
"""Networks that a configuration may name beside its decoder without wrapping that one (Phi-4-multimodal)."""
WHOLE = ("clip",)
"""Families that are read with their text part and their other one."""
HEADLESS = ("text_config", "thinker_config")
"""Of the wrappers, those whose decoder has no output layer of its own: the class around it has, and says if it is
tied. Remote code (``llm_config``, …) wraps whole language models."""
OUTER = ("tie_word_embeddings", "architectures")
"""Keys that such a wrapper states for what it wraps."""
MOST_LAYERS = 10_000
REPOSITORY, SNAPSHOTS, REVISION = "models--", "snapshots", re.compile("[0-9a-f]{40}")
"""How a model's folder in the Hub's cache begins; its folder of revisions, and how these are named."""
SWITCHED = {"qk_norm": "none", "norms_per_layer": 2}
"""What a field that is not true or false is when its switch is off."""


@dataclass(frozen=True)
class Reading:
    """A model and how it was read."""

    model: Model
    family: Family
    unused: tuple[str, ...]
    """Keys that were not used and could change memory or time."""
    assumed: dict[str, Any]
    """Keys that the file leaves out, with the family's default that was taken."""
    beside: tuple[str, ...] = ()
    """Networks of other modalities that stand beside the decoder and were left out."""
    other_output: str = ""
    """The class of a decoder that computes no logits over the vocabulary, which are counted all the same."""
    derived: tuple[str, ...] = ()
    """What follows from the file by a rule of its own kind, told in words."""


def read_config_file(path: Path) -> Reading:
    """The model that a config.json describes, named after its repository in the Hub's cache, its folder, or its own
    file name."""
    repeated: list[str] = []
    reading = read_config(read_json(path, repeated), where=str(path), name=_name_of(path))
    return replace(reading, derived=(*reading.derived, *repeated))


def _name_of(path: Path) -> str:
    """A model's name from where its configuration lies. A cache's snapshots link to files named by their checksum,
    ``models--org--name/snapshots/<rev>/config.json`` to ``../../blobs/<sha>``: the link tells the name."""
    folder = path.parent.resolve()
    for one in (folder, *folder.parents):
        if one.name.startswith(REPOSITORY):
            return one.name.rpartition("--")[2]
    if folder.parent.name == SNAPSHOTS and REVISION.fullmatch(folder.name):
        return folder.parents[1].name
    return folder.name if path.stem in ("config", "params") else path.stem


def read_config(data: Mapping[str, Any], where: str = "config.json", name: str = "") -> Reading:
    """The model that a configuration describes."""
    refuse(data.get("model_type"), where)
    data, derived = from_meta(data, where)
    wrapped = data if data.get("model_type") in WHOLE else unwrap(data, where)
    flat = flat_decoder(data, where) if wrapped is data else ""
    sparse = any(look(wrapped, key)[0] for key in NAMES["experts"])
    family = load_family(flat or model_type(wrapped, data, where), where, sparse=sparse)
    if family.unlatent and plain_attention(wrapped):
        family = load_family(family.unlatent, where)
    fields = Fields(wrapped, family.keys, where)
    shape = (*_names(family, "hidden"), *_names(family, "layers"))
    if wrapped is data and not any(look(wrapped, key)[0] for key in shape):
        problem = "states neither a hidden size nor a number of layers"
        raise DistsimError(problem, "is it a model's config.json?", where=where)
    values = _values_of(fields, family)
    others, unused, tower = _others(data, wrapped, fields, family, flat, values["hidden"])
    source = {"other": f"{where}; keys left out as in {family.source}"}
    named = {"name": name or family.name, "family": family.name, "source": source, "beside": others}
    model = Model.read({**named, **values, **tower}, where)
    other = other_output(model, (wrapped if _wraps_whole(data) else data).get("architectures"))
    return Reading(model, family, unused, dict(fields.assumed), others, other, derived)


def _values_of(fields: Fields, family: Family) -> dict[str, Any]:
    """The fields of a model that a configuration states, or its family fills in."""
    if family.experts is None:
        refuse_experts(fields, family)
    if fields.flag("add_cross_attention"):
        raise fields.wrong("add_cross_attention", True, "cross-attention to a second model is not supported")
    values = base_values(fields, family)
    values.update(read_recurrent(fields, family, values) if family.recurrent else {})
    values.update(read_window(fields, family, values["layers"]))
    special = SPECIAL[family.special](fields, values) if family.special else {}
    values.update(special)
    if values.get("encoder_layers"):
        values.update(of_two_stacks(fields, family, values))
    if family.latent:
        stated = family.latent if isinstance(family.latent, dict) else {}
        values["latent_attention"] = stated | read_latent_attention(fields, values["head_dim"], values["layers"])
        values["head_dim"] = values["latent_attention"]["nope_dim"] + values["latent_attention"]["rope_dim"]
    if family.experts is not None:
        values["experts"] = read_experts(fields, family, values)
    for key, value in family.model.items():
        values.setdefault(key, value)
    values.update({key: fields.whole(name) for key, name in family.numbers.items()})
    for key, switch in family.flags.items():
        if key not in special:
            values[key] = _switched(fields, family, key, switch)
    if values["positions"] == "learned":
        values.setdefault("position_rows", values["context"])
    return values


def _others(
    data: Mapping[str, Any], wrapped: Mapping[str, Any], fields: Fields, family: Family, flat: str, hidden: int
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]:
    """Networks beside the decoder that are left out, keys that nobody used and that could matter, and the vision tower
    that is read."""
    tower: dict[str, Any] = {}
    others = () if family.name in WHOLE else beside(data) if wrapped is not data else _senses(data)
    unused = tuple(key for key in fields.unused() if matters(key) and key.split(".")[0] not in others)
    if TOWER in others and (seen := read_tower(data, WRAPPERS, hidden, fields.where)):
        tower, unused = {"tower": seen.tower}, (*unused, *seen.unused)
        others = tuple(key for key in others if key != TOWER)
    if flat:
        others += flat_networks(data)
        unused = tuple(key for key in unused if not OTHERS.fullmatch(key))
    return others, unused, tower


def unwrap(data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The decoder's own configuration, out of a multi-modal one that wraps it."""
    for _ in range(4):
        name = next((key for key in WRAPPERS if isinstance(data.get(key), Mapping)), "")
        if not name or (_has_width(data) and not _has_width(data[name])):
            return data
        outer = {key: data[key] for key in OUTER if name in HEADLESS and data.get(key) is not None}
        if data[name].get("architectures"):
            outer.pop("architectures", None)
        data = {**data[name], **outer}
    raise DistsimError("text configurations are nested too deep", where=where)


def _has_width(data: Mapping[str, Any]) -> bool:
    return any(isinstance(data.get(key), int) for key in NAMES["hidden"])


def beside(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Configurations of other networks than the decoder's, on the way to it."""
    found: list[str] = []
    for _ in range(4):
        found += [key for key in data if key.endswith("_config") and key not in (*WRAPPERS, *NO_NETWORKS)
                  and isinstance(data[key], Mapping)]  # fmt: skip
        inner = next((data[key] for key in WRAPPERS if isinstance(data.get(key), Mapping)), None)
        if inner is None:
            break
        data = inner
    return tuple(dict.fromkeys(found))


def _wraps_whole(data: Mapping[str, Any]) -> bool:
    """Whether what is wrapped is a language model with an output layer of its own, if any."""
    return any(isinstance(data.get(key), Mapping) for key in WRAPPERS if key not in HEADLESS)


def _senses(data: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in SENSES if isinstance(data.get(key), Mapping))


def model_type(data: Mapping[str, Any], outer: Mapping[str, Any], where: str) -> str:
    """``model_type``, or what the class name under ``architectures`` says."""
    stated = data.get("model_type")
    if isinstance(stated, str) and stated.strip():
        return stated
    if stated is not None and not isinstance(stated, str):
        likely = stated[0] if isinstance(stated, list) and stated and isinstance(stated[0], str) else "llama"
        hint = f'write "model_type": {json.dumps(likely)}'
        raise DistsimError(f"model_type {json.dumps(stated)} is not a string", hint, where=where)
    own = data.get("architectures")
    if own is not outer.get("architectures") and (inner := _of_class(own)) in supported():
        return inner
    if data is not outer and isinstance(kind := outer.get("model_type"), str):
        inner = f"{kind}_text" if f"{kind}_text" in supported() else WRAPPED.get(kind, kind)
        if inner not in supported():
            problem = f"the decoder's part of {kind!r} names no model_type"
            raise DistsimError(problem, 'add "model_type" to it, such as "llama"', where=where)
        return inner
    if named := _of_class(own or outer.get("architectures")):
        return named
    raise DistsimError("names no model_type", 'add "model_type", such as "llama"', listed(), where=where)


def _of_class(classes: Any) -> str:
    """The family that a class is named after, else its own name; empty where there is no class."""
    named = first_class(classes)
    plain = {one.replace("_", "").replace("-", ""): one for one in supported()}
    stem = named.lower().split("for")[0].removesuffix("lmheadmodel").removesuffix("model")
    return plain.get(stem, named)


def _names(family: Family, what: str) -> tuple[str, ...]:
    own = tuple(family.names.get(what, ()))
    return own + tuple(name for name in NAMES[what] if name not in own)


def base_values(fields: Fields, family: Family) -> dict[str, Any]:
    """The fields that most families state in the same way."""

    def whole(what: str, least: int = 1) -> int | None:
        return fields.whole(*_names(family, what), least=least)

    hidden, heads = fields.needed(*_names(family, "hidden")), fields.needed(*_names(family, "heads"))
    values: dict[str, Any] = {
        "hidden": hidden,
        "heads": heads,
        "layers": fields.needed(*_names(family, "layers"), most=MOST_LAYERS),
        **({} if family.images else {what: fields.needed(*_names(family, what)) for what in ("vocab", "context")}),
        "kv_heads": _kv_heads(fields, family, heads),
        "head_dim": whole("head_dim", 0 if family.latent else 1) or _even(fields, hidden, heads),
        "ffn": fields.repeated(*_names(family, "ffn"), of="their MLPs") or 4 * hidden,
        "activation": fields.text(*_names(family, "activation"), default="silu"),
        "tied_embeddings": fields.flag(*_names(family, "tied")),
        "mtp_layers": fields.whole(*_names(family, "mtp_layers"), least=0) or 0,
    }
    if fields.number("final_logit_softcapping", default=0.0, most=1e6) > 0:
        values["logit_softcap"] = True
    if fields.number("clip_qkv", "attn_config.clip_qkv", default=0.0, most=1e6) > 0:
        values["clips_projections"] = True
    rotated = fields.whole("rotary_dim", least=0)
    share = fields.number(*_names(family, "rotary_fraction"), default=1.0) or 1.0
    values["rotary_fraction"] = min(rotated / values["head_dim"], 1.0) if rotated else share
    for kind in ("attention_dropout", "hidden_dropout", "embedding_dropout"):
        values[kind] = fields.number(*_names(family, kind), default=0.0)
    return values


def _kv_heads(fields: Fields, family: Family, heads: int) -> int:
    """Key-value heads; a family's default that does not fit the stated heads means one for each."""
    names = _names(family, "kv_heads")
    count = fields.whole(*names) or heads
    return heads if heads % count and any(name in fields.assumed for name in names) else count


def _even(fields: Fields, hidden: int, heads: int) -> int:
    """Width of a head where no key states it."""
    if heads > hidden:
        raise DistsimError(f"{heads} heads do not fit into a hidden size of {hidden}", where=fields.where)
    return hidden // heads


def _switched(fields: Fields, family: Family, key: str, switch: str | list[str]) -> Any:
    """A field that a key turns on, or off where the switch begins with ``!``."""
    names = [switch] if isinstance(switch, str) else switch
    on = fields.flag(*(one.lstrip("!") for one in names)) != names[0].startswith("!")
    if key not in family.model:
        return on
    return family.model[key] if on else SWITCHED.get(key, False)
