"""A command does not load what pydantic would search for plugins with, and leaves no trace of having spared it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import sys
from distsim.cli.app import run
code = run(["memory", "llama-7b", "--zero", "2", "--json"])
loaded = "importlib.metadata" in sys.modules
from importlib.metadata import version
print(code, loaded, version("pydantic") != "", file=sys.stderr)
"""


@pytest.mark.parametrize(("told", "loaded"), [("1", False), ("mine", True), (None, True)])
def test_the_reader_of_installed_distributions_is_loaded_for_plugins_only(told: str | None, loaded: bool) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYDANTIC_DISABLE_PLUGINS"}
    environment |= {} if told is None else {"PYDANTIC_DISABLE_PLUGINS": told}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.split() == ["0", str(loaded), "True"]
