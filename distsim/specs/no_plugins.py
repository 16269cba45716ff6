"""Spares a command what pydantic loads to find its plugins, where these are off."""

import importlib
import os
import sys
from contextlib import suppress
from types import ModuleType

OFF = ("1", "true", "__all__")
"""Values of the variable by which pydantic is told to look for no plugins."""


def spare_search() -> None:
    """Have pydantic load its search for plugins without the reader of installed distributions that it would ask: that
    takes as long to load as a bare interpreter to start, and is not asked where plugins are off. Nothing is spared
    where they are wanted, or where another release of pydantic asks somebody else."""
    reader = "importlib.metadata"
    if reader in sys.modules or os.environ.get("PYDANTIC_DISABLE_PLUGINS") not in OFF:
        return
    import pydantic.plugin as plugins

    sys.modules[reader] = stand_in = ModuleType(reader)
    stand_in.entry_points = lambda **_: ()  # type: ignore[attr-defined]
    try:
        with suppress(ImportError):
            importlib.import_module(f"{plugins.__name__}._loader")
    finally:
        del sys.modules[reader]
