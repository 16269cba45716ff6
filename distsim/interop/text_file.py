"""Reads a text file that another tool wrote; an error names the file and what is wanted instead."""

from __future__ import annotations

from pathlib import Path

from distsim.errors import DistsimError


def read_text(path: str, wanted: str) -> str:
    """All of a file's text."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DistsimError(f"cannot read {path}: {error.strerror}", wanted) from None
    except UnicodeDecodeError:
        raise DistsimError(f"cannot read {path}: it is not text", wanted) from None
