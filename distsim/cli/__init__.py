"""The command line. Only ``main`` is public; every command imports what it needs when it runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``distsim`` command."""
    from distsim.cli.app import run

    sys.exit(run(sys.argv[1:]))
