"""Vision towers of multi-modal configurations: one TOML table per kind of tower in ``towers/``, and one for the classes
that put one before a decoder (``wrappers.toml``)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from distsim.interop.huggingface.fields import Fields
from distsim.interop.huggingface.harmless import matters
from distsim.interop.huggingface.modalities import side
from distsim.interop.huggingface.projectors import PROJECTORS, VISION, Sight
from distsim.interop.huggingface.tower_kinds import KINDS

Values = dict[str, Any]

FOLDER = Path(__file__).parent / "towers"
TOWER = "vision_config"
"""Key of a tower's configuration."""
NAMES = {
    "layers": ("depth", "num_hidden_layers"), "hidden": ("hidden_size",), "heads": ("num_heads", "num_attention_heads"),
    "ffn": ("intermediate_size",), "channels": ("in_channels", "in_chans", "num_channels"),
}  # fmt: skip
"""Keys of what every tower has; a table may name others."""
USUAL_PIXELS = 448
"""A side of an image where towers keep images' own sizes and a job states none."""


@dataclass(frozen=True)
class Kind:
    """One kind of tower, its parent's tables (``like``) merged in."""

    name: str
    source: str
    called: tuple[str, ...] = ()
    """What files call it as ``model_type`` of their ``vision_config``."""
    keys: Values = field(default_factory=dict)
    """Value of a key that a file leaves out."""
    names: dict[str, list[str]] = field(default_factory=dict)
    tower: Values = field(default_factory=dict)
    """Fields of the tower that no key states, and of its projector."""
    projector: Values = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    """Fields of the tower that a key switches."""
    settled: tuple[str, ...] = ()
    """Keys that change nothing here."""
    positions: str = ""
    """``image``: a row of learned positions for each patch of the stated image and for each learned token."""
    special: str = ""
    """Name of the function in ``tower_kinds.py`` that reads what no table can say."""


class Seen(NamedTuple):
    """A tower as fields of its spec, and keys that were not used and could change memory or time."""

    tower: Values
    unused: tuple[str, ...]


def read_tower(data: Mapping[str, Any], wrappers: tuple[str, ...], width: int, where: str) -> Seen | None:
    """The tower before a decoder of that width; None where the file has none, or none that the spec can express."""
    outer, kind = _around(data, wrappers)
    wrapper = _wrapper(kind) if outer else None
    if outer is None or wrapper is None:
        return None
    stated = outer[TOWER].get("model_type")
    tables = map(_kind, wrapper["towers"])
    table = next((one for one in tables if stated is None or stated in one.called), None)
    if table is None:
        return None
    defaults = {f"{VISION}{key}": value for key, value in table.keys.items()} | wrapper.get("keys", {})
    fields = Fields(outer, defaults, where)
    fields.settled(*(f"{VISION}{key}" for key in table.settled))
    values = _tower(fields, table)
    found = PROJECTORS[wrapper["projector"]](Sight(fields, values, width)) if values else None
    if values is None or found is None:
        return None
    found["projector"] = {**table.projector, **found["projector"]}
    unused = tuple(key for key in fields.unused() if key.startswith(VISION) and matters(key))
    own = {"both_ways": True} if wrapper.get("both_ways") else {}
    return Seen({"family": table.name, **values, **found, **own}, unused)


def _around(data: Mapping[str, Any], wrappers: tuple[str, ...]) -> tuple[Mapping[str, Any] | None, str]:
    """The configuration that holds the tower's, on the way to the decoder's, and its kind."""
    kind = ""
    for _ in range(4):
        stated = data.get("model_type")
        kind = stated.strip().lower() if isinstance(stated, str) else kind
        if isinstance(data.get(TOWER), Mapping):
            return data, kind
        inner = next((data[key] for key in wrappers if isinstance(data.get(key), Mapping)), None)
        if inner is None:
            break
        data = inner
    return None, kind


def _tower(fields: Fields, table: Kind) -> Values | None:
    """The tower's fields but those of its projector; None where the spec cannot express it."""
    values = _plain(fields, table)
    return KINDS[table.special](fields, values) if table.special else values


def _plain(fields: Fields, table: Kind) -> Values:
    """What tables alone say of a tower."""

    def names(what: str) -> list[str]:
        return [f"{VISION}{key}" for key in table.names.get(what, NAMES.get(what, ()))]

    values: Values = {what: fields.needed(*names(what)) for what in NAMES if what not in ("channels", "ffn")}
    values["channels"] = fields.whole(*names("channels")) or 3
    values["ffn"] = fields.whole(*names("ffn")) or 4 * values["hidden"]
    values["patch"] = side(fields, f"{VISION}patch_size")
    values |= table.tower
    activations = table.names.get("activation", ["hidden_act"])
    if "activation" not in table.tower:
        values["activation"] = fields.text(*(f"{VISION}{key}" for key in activations), default="gelu")
    for what in ("head_dim", "position_rows"):
        if what in table.names:
            values[what] = fields.needed(*names(what))
    for what, key in table.flags.items():
        values[what] = fields.flag(f"{VISION}{key}")
    if values.get("fixed", True):
        values["image"] = side(fields, f"{VISION}image_size")
    values.setdefault("image", USUAL_PIXELS)
    if table.positions:
        image = side(fields, f"{VISION}image_size")
        if values["patch"] > image:
            raise fields.wrong(f"{VISION}patch_size", values["patch"], f"it must fit into image_size {image}")
        values["position_rows"] = (image // values["patch"]) ** 2 + values.get("learned_tokens", 0)
    return values


@functools.cache
def _kind(name: str) -> Kind:
    own = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    above = _kind(own["like"]) if "like" in own else Kind("", "")

    def merged(what: str) -> Values:
        return {**getattr(above, what), **own.get(what, {})}

    return Kind(
        name=name,
        source=own["source"],
        called=tuple(own["called"]),
        keys=merged("keys"),
        names=merged("names"),
        tower=merged("tower"),
        projector=merged("projector"),
        flags=merged("flags"),
        settled=(*above.settled, *own.get("settled", ())),
        positions=own.get("positions", above.positions),
        special=own.get("special", above.special),
    )


@functools.cache
def _wrappers() -> dict[str, Values]:
    return tomllib.loads((FOLDER / "wrappers.toml").read_text(encoding="utf-8"))


def _wrapper(kind: str) -> Values | None:
    """The class of that ``model_type``, over the one that it is like."""
    own = _wrappers().get(kind)
    if own is None or "like" not in own:
        return own
    return {**_wrappers()[own["like"]], **own}
