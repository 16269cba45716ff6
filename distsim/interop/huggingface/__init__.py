"""Hugging Face ``config.json`` to a model spec: what the file states over what its family defaults and fixes."""

from __future__ import annotations

from distsim.interop.huggingface.reader import Reading, read_config, read_config_file

__all__ = ["Reading", "read_config", "read_config_file"]
