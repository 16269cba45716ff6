"""stdout and stderr of the command: they take every text whatever their encoding, and a reader may leave early."""

from __future__ import annotations

import codecs
import io
import os
import sys

TYPE_CHECKING = False  # typing itself is left out: plain help costs no more than the interpreter
if TYPE_CHECKING:
    from typing import Any

PLAIN = {"…": "...", "×": "x", "−": "-", "–": "-", "—": "-", "→": "->", "≤": "<=", "≥": ">=", "µ": "u"}
"""What stands for signs that an encoding lacks; for all others their number does."""
ERRORS = "distsim"


class Outlet(io.FileIO):
    """A file whose reader may go away, which is no error: what is left goes nowhere, and the answer keeps its exit
    code."""

    def write(self, data: Any) -> int:
        """What the file takes; all once nobody reads. A full disk is told once, and what is left then goes nowhere."""
        try:
            return super().write(data)
        except OSError as failed:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(failed, BrokenPipeError):
                return len(data)
            raise


def spelt(failed: UnicodeError) -> tuple[str | bytes, int]:
    """An error handler of codecs: signs that an encoding lacks, in letters."""
    if not isinstance(failed, UnicodeEncodeError):
        raise failed
    lacking = failed.object[failed.start : failed.end]
    letters = (PLAIN.get(one) or codecs.encode(one, "ascii", "backslashreplace").decode() for one in lacking)
    return "".join(letters), failed.end


def open_streams() -> None:
    """Put streams that take all of it in the place of the interpreter's; nothing where they are closed or another's."""
    codecs.register_error(ERRORS, spelt)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and _file(stream):
            setattr(sys, name, _reopened(stream))


def _file(stream: io.TextIOWrapper) -> bool:
    """Whether a plain file lies below; a console of Windows does not."""
    return type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO


def _reopened(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The stream once more, with the same file, encoding and buffering, whose errors ``Outlet`` handles."""
    stream.flush()
    buffer = io.BufferedWriter(Outlet(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(
        buffer, stream.encoding, ERRORS, line_buffering=stream.line_buffering, write_through=stream.write_through
    )
