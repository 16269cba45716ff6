"""The preset that a measured run's name of its model stands for, however it is spelled."""

from __future__ import annotations

import functools
import re

from distsim import catalog
from distsim.errors import DistsimError
from distsim.interop.models import known_model
from distsim.specs.model import Model

KINDS = re.compile(
    r"-(w/o|without|no)-mtp$|-(tokendrop|dropless)$|-(?:w/|with|without)-lddl$|(?:-\(?(?:squad|glue)\S*)?-fine-?tun\w*$"
)
"""Ends of a model's name that say how it was trained, not what it is."""


@functools.lru_cache(maxsize=1024)
def preset_named(name: str) -> Model | None:
    """The preset that a row's model name stands for, trying the name without what follows it."""
    plain = catalog.plain(name)
    candidates = [
        plain,
        KINDS.sub("", plain),
        plain.split("-(")[0],
        plain.replace("/", "-"),
        plain.split("/")[-1],
        re.sub(r"-(instruct|chat|hf|base).*$", "", plain.split("/")[-1]),
    ]
    for candidate in dict.fromkeys(candidates):
        try:
            if model := known_model(candidate):
                return model
        except (DistsimError, OSError, ValueError):  # what is no preset, nor even taken as a name of a file
            continue
    alike = _alike(candidates[1])
    return known_model(alike) if alike else None


_WORDS = re.compile(r"[a-z]+|\d+")
_DECIMAL = re.compile(r"\d+\.\d+")
"""Llama 3.8B is no Llama 3 8B."""
_ACTIVE = re.compile(r"-a\d+(?:\.\d+)?b$")
"""What names of experts' models end in, and people leave out: Qwen3 235B."""


def _alike(name: str) -> str | None:
    """The one preset whose name has the same words and numbers between other marks, or without the parameters that work
    for a token; None where there is none, or more."""
    words = tuple(_WORDS.findall(name))
    meant = (index.get(words, set()) for index in _by_words())
    alike = next((next(iter(found)) for found in meant if len(found) == 1), None)
    return alike if alike and {*_DECIMAL.findall(name)} <= {*_DECIMAL.findall(alike)} else None


@functools.cache
def _by_words() -> tuple[dict[tuple[str, ...], set[str]], ...]:
    """Presets by the words and numbers of their names and aliases: whole, and without what ends experts' models."""
    known = {**{one: one for one in catalog.names("models")}, **catalog.aliases("models")}
    indices: tuple[dict[tuple[str, ...], set[str]], ...] = ({}, {})
    for one, meant in known.items():
        for index, shown in zip(indices, (one, _ACTIVE.sub("", one)), strict=True):
            index.setdefault(tuple(_WORDS.findall(shown)), set()).add(meant)
    return indices
