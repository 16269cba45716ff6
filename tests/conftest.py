"""No test sees the configuration of whoever runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, whose fitted presets are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    from distsim.engine.runs.likeness import evidence, own_sources
    from distsim.engine.step import timing_on
    from distsim.engine.steps.intervals import residuals_of

    for known in (evidence, own_sources, residuals_of, timing_on):
        known.cache_clear()
