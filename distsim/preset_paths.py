"""What a preset's file names by a path, which starts at that file's own folder wherever the reader stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMED: dict[str, dict[str, tuple[str, ...]]] = {
    "clusters": {"": ("gpu",)}, "gpus": {"": ("default_cluster",)},
    "prices": {"offers": ("gpu", "cluster"), "purchases": ("gpu",)},
}  # fmt: skip
"""Fields that may name another preset's file: kind -> table, or none -> fields."""


def rooted(kind: str, data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A preset's data with paths that start at ``folder``, that of its file."""
    whole = dict(data)
    for table, fields in NAMED.get(kind, {}).items():
        if not table:
            whole |= _rooted(whole, fields, folder)
        elif isinstance(rows := whole.get(table), list):
            whole[table] = [{**row, **_rooted(row, fields, folder)} if isinstance(row, dict) else row for row in rows]
    return whole


def _rooted(row: dict[str, Any], fields: tuple[str, ...], folder: Path) -> dict[str, str]:
    paths = {name: value for name in fields if isinstance(value := row.get(name), str) and value.endswith(".toml")}
    return {name: str(folder / path) for name, path in paths.items()}
