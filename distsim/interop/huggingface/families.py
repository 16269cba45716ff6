"""What a config.json does not say: per architecture family, the keys' defaults and what its modelling code fixes.

One TOML file per family in ``families/``, named as ``model_type``; only the file asked for is read.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError, did_you_mean, nearest
from distsim.interop.huggingface.refused import REFUSED

FOLDER = Path(__file__).parent / "families"
LIKE = 0.75
"""How like another name must be to be hinted at: a family of unlike layers is a worse hint than none."""
UNREAD = ("dinov2", "dinov3_vit", "glm-130b", "openelm", "palm", "pangu_pro_moe", "switch_transformers")
"""Families of shipped models whose configuration files are not read."""


@dataclass(frozen=True)
class Family:
    """One architecture family, its parent's tables (``like``) merged in."""

    name: str
    source: str
    keys: dict[str, Any] = field(default_factory=dict)
    """Value of a configuration key that a file leaves out."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """Names of keys that this family uses before the common ones, by what they mean (``aliases.py``)."""
    model: dict[str, Any] = field(default_factory=dict)
    """Fields of the model that no key states."""
    flags: dict[str, str | list[str]] = field(default_factory=dict)
    """Fields of the model that a key (or the first stated of several) switches; ``!key`` switches them off."""
    numbers: dict[str, str] = field(default_factory=dict)
    """Fields of the model that a key states as a whole number."""
    experts: dict[str, Any] | None = None
    """Fields of the mixture of experts that no key states; None for dense families."""
    latent: bool | dict[str, Any] = False
    """Attention is multi-head latent attention; or its fields that no key states."""
    images: bool = False
    """Images are read: there is no vocabulary, and tokens per image follow from their size."""
    special: str = ""
    """Name of the function in ``special.py`` that reads what no table can say."""
    recurrent: str = ""
    """What some layers have in attention's place (``recurrent.py``)."""
    unlatent: str = ""
    """The family that has its layers with plain attention, which some files switch to."""


def supported() -> list[str]:
    """All families that can be read, from file names alone."""
    return sorted(entry.removesuffix(".toml") for entry in os.listdir(FOLDER) if entry.endswith(".toml"))


def parent(name: str) -> str:
    """The family whose tables this one takes over; empty for none."""
    return str(_stated(name).get("like", ""))


def _stated(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def load_family(model_type: str, where: str = "", *, sparse: bool | None = None) -> Family:
    """The family with this ``model_type``; an error says what is supported where it is none of them. A file with
    experts (``sparse``) is of no dense family, and one without of no mixture, as far as hints go."""
    refuse(model_type, where)
    name = model_type.strip().lower()
    if not re.fullmatch(r"[a-z0-9_-]+", name) or not (FOLDER / f"{name}.toml").is_file():
        like = nearest(name, supported(), least=LIKE)
        known = [one for one in like if sparse is None or (_merge(one).experts is not None) == sparse]
        near = did_you_mean(name, known, LIKE)
        raise _unsupported(model_type, near or "write the name of a supported family with the same layers", where)
    return _merge(name)


def refuse(model_type: object, where: str = "") -> None:
    """An error where ``model_type`` is known to have layers that distsim has not."""
    if isinstance(model_type, str) and (what := REFUSED.get(model_type.strip().lower())):
        raise _unsupported(model_type, f"{what}; distsim does not model such layers", where)


def _unsupported(model_type: str, why: str, where: str) -> DistsimError:
    shown = model_type if len(model_type) <= 60 else model_type[:57] + "…"
    return DistsimError(f"model_type {shown!r} is not supported", why, listed(), where=where)


def listed() -> str:
    """Where the supported families are listed: they are too many for a message."""
    return f"{len(supported())} families are supported: distsim show families"


def _merge(name: str) -> Family:
    own = _stated(name)
    above = _merge(own["like"]) if "like" in own else Family(name, "")
    experts = own.get("experts")
    if above.experts is not None:
        experts = {**above.experts, **(experts or {})}
    return Family(
        name=name,
        source=own.get("source", above.source),
        keys={**above.keys, **own.get("keys", {})},
        names={**above.names, **own.get("names", {})},
        model={**above.model, **own.get("model", {})},
        flags={**above.flags, **own.get("flags", {})},
        numbers={**above.numbers, **own.get("numbers", {})},
        experts=experts,
        latent=own.get("latent", above.latent),
        images=own.get("images", above.images),
        special=own.get("special", above.special),
        recurrent=own.get("recurrent", above.recurrent),
        unlatent=own.get("unlatent", above.unlatent),
    )
