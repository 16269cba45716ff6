"""Scripts beside the package, loaded as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def load(place: str) -> ModuleType:
    """The script at a path from the project's root: ``benchmarks/replays.py``."""
    spec = importlib.util.spec_from_file_location(f"{Path(place).stem}_script", ROOT / place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
