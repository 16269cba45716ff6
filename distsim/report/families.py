"""Families of Hugging Face configurations as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.report.console import table
from distsim.report.show import preset


def names(found: Mapping[str, str]) -> list[Any]:
    """Every family that can be read, with the one whose layers it shares."""
    made = table("model_type", "read as")
    for name, like in found.items():
        made.add_row(name, like)
    return [made, f"{len(found)} families    to see what one adds to a config.json: distsim show family llama"]


def one(data: Mapping[str, Any], file: str) -> list[Any]:
    """What one family adds to a file: values of keys that it may leave out, and what the family's code fixes."""
    shown = {key: value for key, value in data.items() if key != "name" and value != {}}
    return preset(data["name"], "config.json family", file, {**shown, "source": {"other": data["source"]}})
