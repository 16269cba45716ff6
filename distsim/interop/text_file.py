"""Reads a text file that another tool wrote; an error names the file and what is wanted instead."""

from __future__ import annotations

from distsim.errors import DistsimError
from distsim.plain_files import text_of


def read_text(path: str, wanted: str) -> str:
    """All of a file's text."""
    try:
        return text_of(path)
    except OSError as error:
        raise DistsimError(f"cannot read {path}: {error.strerror}", wanted) from None
    except UnicodeDecodeError:
        raise DistsimError(f"cannot read {path}: it is not text", wanted) from None
