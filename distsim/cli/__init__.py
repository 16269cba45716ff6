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
    atexit.register(gc.freeze)  # the interpreter's last search for cycles would go through all modules for nothing
    from distsim.cli.app import run
    from distsim.cli.streams import open_streams

    open_streams()
    sys.exit(run(sys.argv[1:]))
