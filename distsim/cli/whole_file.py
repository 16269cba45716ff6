"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from distsim.cli.app import OUTPUTS
from distsim.errors import DistsimError, did_you_mean

OF_FILES = ("--job", "--order", "--nccl-tests")
"""Options that name a file to read, never a preset."""


class LeftOutError(Exception):
    """Raised inside ``whole`` when the file should not be written after all."""


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A scratch file that replaces ``path`` at the end; on failure the old file stays as it was. Where ``path`` is a
    link, its target is replaced; a device or a pipe is written to, never replaced."""
    scratch, target = "", Path(os.path.realpath(path))
    try:
        folder = tempfile.gettempdir() if _special(target) else target.parent
        named = os.path.join(folder, f".{target.name[:64]}.{os.urandom(8).hex()}.part")
        os.close(os.open(named, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # less the umask, as of any new file
        scratch = named
        with _ended_in_order():
            yield Path(scratch)
        if _special(target):
            with open(scratch, "rb") as made, open(target, "wb") as out:
                shutil.copyfileobj(made, out)
        else:
            os.replace(scratch, target)
    except LeftOutError:
        pass
    except OSError as error:
        raise DistsimError(f"cannot write: {error.strerror}", where=str(path)) from None
    finally:
        Path(scratch).unlink(missing_ok=True) if scratch else None


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """While it lasts, what ends the program from outside (a time limit, a job scheduler, a closed terminal) does so
    through its ``finally`` clauses: a scratch file may be gigabytes."""
    ends = [one for one in (signal.SIGTERM, getattr(signal, "SIGHUP", None)) if one is not None]
    mine = threading.current_thread() is threading.main_thread()
    before = {one: signal.getsignal(one) for one in ends if mine and signal.getsignal(one) == signal.SIG_DFL}
    for one in before:
        signal.signal(one, _end)
    try:
        yield
    finally:
        for one, kept in before.items():
            signal.signal(one, kept)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _is_preset(option: str, name: str) -> bool:
    """Whether what an option names is a preset, whatever file has the same name."""
    from distsim import catalog
    from distsim.preset_kinds import KINDS

    if option in OF_FILES or not os.path.isfile(name):
        return False
    return any(catalog.knows(kind, name) and catalog.origin(kind, name) != "path" for kind in KINDS)


def _special(path: Path) -> bool:
    """A device, a pipe or a socket."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_place(path: Path, flag: str) -> None:
    """Raise where a file could not be written, before anything is computed."""
    if not path.name or path.is_dir():
        raise DistsimError(f"{flag} {path} is not a file", f"name one, e.g. {flag} layouts.csv")
    if not path.parent.is_dir():
        raise DistsimError(f"{flag} {path}: there is no folder {path.parent}", f"create it: mkdir -p {path.parent}")
    if _special(path):
        return
    if not os.access(path.parent, os.W_OK):
        raise DistsimError(f"{flag} {path}: the folder {path.parent} is not writable", "name another file")


def check_suffix(path: Path, flag: str, kinds: tuple[str, ...]) -> None:
    """Raise where a file name's suffix is not one of the formats that can be written."""
    if path.suffix.lower() not in kinds:
        raise DistsimError(
            f"{flag} {path}: the name does not end in {' or '.join(kinds)}",
            did_you_mean(path.suffix, kinds), f"name it e.g. {path.with_suffix(kinds[0]) if path.stem else 'all.csv'}",
        )  # fmt: skip


def refuse_same(arguments: Sequence[str]) -> None:
    """Raise where a file would be written in the place of another one of the command line: what one wrote by hand, or
    the other of two answers."""
    named, flag = list[tuple[str, str]](), ""
    for word in arguments:
        own, _, value = word.partition("=") if word.startswith("--") else (flag, "", word)
        if value:
            named.append((own, value))
        flag = "" if value else own
    for at, (flag, value) in enumerate(named):
        if flag not in OUTPUTS or _special(Path(value)):
            continue
        for other, name in (*named[:at], *named[at + 1 :]):
            read = other not in OUTPUTS
            if read and _is_preset(other, name):
                continue
            if os.path.realpath(name) == os.path.realpath(value) and (os.path.isfile(value) or not read):
                whose = f"the file of {other}" if other else "a file that is read"
                raise DistsimError(f"{flag} {value} would replace {whose}", "name another file")
