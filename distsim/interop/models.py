"""A model by whatever name a user has for it: a preset, a TOML file, a Hugging Face config.json or its folder."""

from __future__ import annotations

import os
from pathlib import Path

from distsim.errors import DistsimError
from distsim.specs.model import Model


def read_model(name: str) -> Model:
    """The model that ``name`` stands for."""
    text = str(name)
    if not text.strip():
        raise DistsimError("no model is named", "list them with: distsim show models")
    if file := config_file(text):
        from distsim.interop.huggingface import read_config_file

        return read_config_file(file).model
    from distsim import catalog

    model = catalog.load("models", text)
    assert isinstance(model, Model)
    return model


def config_file(name: str) -> Path | None:
    """The config.json meant by a path to it or to its folder; None where ``name`` is something else."""
    looks_like_json = name.lower().endswith(".json")
    looks_like_path = looks_like_json or os.sep in name or "/" in name or name in (".", "..")
    if not looks_like_path or "\0" in name:
        return None
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return path / "config.json"
        raise DistsimError("the folder holds no config.json", where=name)
    if looks_like_json and not path.exists():
        raise DistsimError(f"no file {name!r}", "a Hugging Face config.json, or the folder that holds it, is needed")
    return path if looks_like_json else None
