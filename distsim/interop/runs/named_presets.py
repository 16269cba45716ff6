"""The preset that a measured run's name of its model stands for, however it is spelled."""

from __future__ import annotations

import re

from distsim import catalog
from distsim.errors import DistsimError
from distsim.interop.model_names import shorter_names
from distsim.interop.models import known_model
from distsim.last import while_same
from distsim.preset_files import plain
from distsim.specs.model import Model

KINDS = re.compile(
    r"(?:-cut|-proxy)?-(?:(?:to|of|with)-)?\d+-layers?$|-(w/o|without|no)-mtp$|-(tokendrop|dropless)$|-(?:w/|with|without)-lddl$"
    r"|(?:-\(?(?:squad|glue)\S*)?-fine-?tun\w*$"
)
"""Ends of a model's name that say how it was trained or what its row's cells say, not what it is."""
_RUN_TOGETHER = re.compile(r"(?<=[a-z])(\d)(\d)(?=-)")
"""Versions without their mark: llama31."""


@while_same(lambda: catalog.state("models"), 1024)
def preset_named(name: str) -> Model | None:
    """The preset that a row's model name stands for, trying the name without what follows it."""
    called = plain(name)
    *_, bare = shorter_names(KINDS.sub("", called), trained=True)
    candidates = [
        called,
        KINDS.sub("", called),
        bare,
        called.split("-(")[0],
        called.replace("/", "-"),
        bare.split("/")[-1],
        _RUN_TOGETHER.sub(r"\1.\2", bare.split("/")[-1]),
        re.sub(r"-(instruct|chat|hf|base).*$", "", bare.split("/")[-1]),
    ]
    for candidate in dict.fromkeys(candidates):
        try:
            if model := known_model(candidate):
                return model
        except (DistsimError, OSError, ValueError):  # what is no preset, nor even taken as a name of a file
            continue
    alike = _alike(KINDS.sub("", called)) or _alike(bare)
    return known_model(alike) if alike else None


_WORDS = re.compile(r"[a-z]+|\d+")
_VERSION = re.compile(r"-v(?=\d)")
"""The mark of a version."""
_DECIMAL = re.compile(r"\d+\.\d+")
"""Llama 3.8B is no Llama 3 8B."""
_ACTIVE = re.compile(r"-a\d+(?:\.\d+)?b$")
"""What names of experts' models end in, and people leave out: Qwen3 235B."""


def _alike(name: str) -> str | None:
    """The one preset whose name has the same words and numbers between other marks, or without the parameters that work
    for a token; None where there is none, or more."""
    words, decimals = _words_of(name), {*_DECIMAL.findall(name)}
    meant = (index.get(words, {}) for index in _by_words())
    alike = next((next(iter(found.items())) for found in meant if len(found) == 1), None)
    return alike[0] if alike and decimals <= alike[1] else None


def _words_of(name: str) -> tuple[str, ...]:
    """Words and numbers of a name; a plus is one (Command R+), the v of a version none (Nemotron V3 Ultra)."""
    return tuple(_WORDS.findall(_VERSION.sub("-", name.replace("+", "-plus-"))))


@while_same(lambda: catalog.state("models"))
def _by_words() -> tuple[dict[tuple[str, ...], dict[str, set[str]]], ...]:
    """Presets, with the decimals in what they are called, by the words and numbers of their names and aliases: whole,
    and without what ends experts' models."""
    known = {**{one: one for one in catalog.names("models")}, **catalog.aliases("models")}
    indices: tuple[dict[tuple[str, ...], dict[str, set[str]]], ...] = ({}, {})
    for one, meant in known.items():
        for index, shown in zip(indices, (one, _ACTIVE.sub("", one)), strict=True):
            found = index.setdefault(_words_of(shown), {}).setdefault(meant, set())
            found.update(_DECIMAL.findall(one), _DECIMAL.findall(meant))
    return indices
