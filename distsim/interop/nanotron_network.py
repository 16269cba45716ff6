"""The network in nanotron's YAML, whose ``model_config`` has the keys of transformers (huggingface/nanotron
src/nanotron/config/models_config.py, recalled)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distsim.interop.huggingface import read_config
from distsim.interop.megatron_network import Network
from distsim.interop.other_stated import Stated

SECTION = "model.model_config."
KINDS = {"is_qwen2_config": "qwen2", "is_starcoder2_config": "starcoder2", "is_mistral_config": "mistral"}
"""Switch -> the family that it stands for; all others are Llama's."""


def nanotron_network(stated: Stated, path: Path) -> Network:
    """The network of a file that states the needed sizes."""
    found = {key.removeprefix(SECTION): _plain(value) for key, value in stated.keys.items() if key.startswith(SECTION)}
    data = {key: value for key, value in found.items() if not (key.startswith("is_") and key.endswith("_config"))}
    family = next((name for switch, name in KINDS.items() if found.get(switch) is True), "llama")
    reading = read_config({**data, "model_type": family}, str(path), path.stem)
    assumed = (f"{key} {value}" for key, value in reading.assumed.items() if type(value) is int)
    used = {key for key in found if key not in reading.unused}
    return Network(reading.model, tuple(assumed), frozenset({*used, "model_config"}))


def _plain(value: Any) -> Any:
    """A scalar of YAML that is no text, as JSON has it."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("null", "~", ""):
        return None
    try:
        return float(value)
    except ValueError:
        return value
