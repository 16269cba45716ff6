"""A file that is written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from distsim.errors import DistsimError


class LeftOutError(Exception):
    """Raised inside ``whole``: the file is not to be written after all."""


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A scratch file that takes the place of ``path`` at the end; one that fails leaves the old one as it was."""
    scratch = ""
    try:
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.", suffix=".part")
        os.close(handle)
        yield Path(scratch)
        os.chmod(scratch, 0o666 & ~_umask())
        os.replace(scratch, path)
    except LeftOutError:
        pass
    except OSError as error:
        raise DistsimError(f"cannot write: {error.strerror}", where=str(path)) from None
    finally:
        Path(scratch).unlink(missing_ok=True) if scratch else None


def check_place(path: Path, flag: str) -> None:
    """A file could be written there; said before anything is computed."""
    if not path.name or path.is_dir():
        raise DistsimError(f"{flag} {path} is no file", f"name one, e.g. {flag} layouts.csv")
    if not path.parent.is_dir():
        raise DistsimError(f"{flag} {path}: there is no folder {path.parent}", f"make it: mkdir -p {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise DistsimError(f"{flag} {path}: the folder {path.parent} cannot be written to", "name another file")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
