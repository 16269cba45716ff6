"""Opens the files that users name: what is no file is refused before it is opened, for a pipe that nobody writes to
would be waited for without end."""

from __future__ import annotations

import codecs
import io
import os
import stat

from distsim.errors import DistsimError

HANDED = ("/dev/", "/proc/")
"""Where a pipe stands that a shell hands over with somebody at its other end: /dev/stdin, or /dev/fd/63 of <(...)."""

LARGEST = 2**28
"""Bytes of a text: a hundred times the largest that people write, and a fraction of what weights are."""
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt")
"""How files of weights are called, beside which a configuration mostly is."""
FIRST, BYTE_ORDER = 1024, b"\xef\xbb\xbf"
"""Bytes that tell how a file begins, and the mark that some editors put before all others."""


def special(path: str | os.PathLike[str]) -> str:
    """What is wrong with a path to a device, a pipe or a socket; empty for files, folders and what is not there."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # whoever opens it says so
        return ""
    named = os.fspath(path)
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else f"{named!r} is a device or a pipe, not a file"


def handed_over(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a pipe that the program was given open."""
    try:
        return os.fspath(path).startswith(HANDED) and stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Raise for a device, a socket, or a pipe that is not handed over."""
    if (problem := special(path)) and not handed_over(path):
        raise DistsimError(problem, "give a file")


def refuse_large(path: str | os.PathLike[str]) -> None:
    """Raise for a file of weights or data, which nobody is to wait for and no memory to hold."""
    named, size = os.fspath(path), os.stat(path).st_size
    if named.lower().endswith(WEIGHTS):
        raise DistsimError("is a file of weights", "give the config.json beside them, or the model's name", where=named)
    if size > LARGEST:
        raise DistsimError(f"has {size:,} bytes, too many for a text that is read", where=named)


def begins_object(path: str | os.PathLike[str]) -> bool:
    """Whether a file's text begins as a JSON object does, and no TOML."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(FIRST).removeprefix(BYTE_ORDER).lstrip().startswith(b"{")
    except OSError:  # told by whoever reads it
        return False


def text_of(path: str | os.PathLike[str], newline: str | None = None) -> str:
    """All text of a file. Raises OSError and UnicodeDecodeError, which whoever needs it tells in its own words."""
    refuse_special(path)
    refuse_large(path)
    with open(path, "rb") as file:
        wide = file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # as PowerShell's > writes
        return io.TextIOWrapper(file, "utf-16" if wide else "utf-8-sig", newline=newline).read()
