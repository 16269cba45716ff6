"""No test sees the configuration of whoever runs it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_personal_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither a user's config and presets nor DISTSIM_ variables."""
    empty: Path = tmp_path_factory.getbasetemp() / "no-config"
    empty.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(empty))
    for name in list(os.environ):
        if name.startswith("DISTSIM_"):
            monkeypatch.delenv(name)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, whose presets win."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the search for garbage need not go through all of it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
