"""``python -m distsim`` is the same as ``distsim``."""

from distsim.cli import main

main()
