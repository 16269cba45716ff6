"""The command line. Only ``main`` is public; every command imports what it needs when it runs."""

from __future__ import annotations

import atexit
import gc
import os
import sys


def main() -> None:
    """Entry point of the ``distsim`` command."""
    gc.set_threshold(100_000)  # start-up makes many objects and hardly any garbage: a tenth of its time was collecting
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # else every installed distribution is searched for plugins
    codes: list[int] = []
    atexit.register(_leave, codes)  # the first to be registered is the last to be called
    from distsim.cli.app import run
    from distsim.cli.streams import open_streams

    open_streams()
    codes.append(run(sys.argv[1:]))
    sys.exit(codes[0])


def _leave(codes: list[int]) -> None:
    """End the process without taking apart hundreds of modules and classes, which its end frees anyway. A failure and
    what cannot be written are left to the interpreter to tell; a profiler finds its usual end."""
    gc.freeze()  # the interpreter's last search for cycles would go through all modules for nothing
    if not codes or sys.getprofile() is not None or sys.gettrace() is not None:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(codes[0])
