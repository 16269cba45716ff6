"""No test sees the configuration of whoever runs it."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

# `make test` says the same of the same code, whatever else the machine does; `make explore` draws anew each time.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

# Before anything loads numpy, and for processes that tests start: each test process would take as many threads for
# small matrices as there are processors, which wait for one another in a loop and double the time of fits.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="session")
def no_personal_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither a user's config and presets nor DISTSIM_ variables; tests that set some put them back."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("no-config")))
        for name in list(os.environ):
            if name.startswith("DISTSIM_"):
                variables.delenv(name)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, None, None]:
    """A test that neither has a folder to write presets into nor patches anything looks for each preset once. What one
    that patches something has a plan remember holds for no other."""
    if "monkeypatch" in item.function.__code__.co_varnames[: item.function.__code__.co_argcount]:
        from distsim.engine.plans.layouts import REMEMBERED

        REMEMBERED.forget()
        try:
            return (yield)
        finally:
            REMEMBERED.forget()
    if {"tmp_path", "monkeypatch"}.intersection(item.fixturenames):
        return (yield)
    from distsim import catalog

    with catalog.settled():
        return (yield)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, whose presets win."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of its own to work in, without configuration, and a wide terminal without colours."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


LONG = (
    "test_replays", "test_search_parallel", "test_packaging", "test_plan_report", "test_calibrate_runs",
    "test_search_dimensions", "test_own_runs", "test_shared_work", "test_repeated_runs", "test_collective_accuracy",
    "test_search_options", "test_mend_batch", "test_plan_settings", "test_plan_prices", "test_whole_runs",
)  # fmt: skip
"""Files of few tests that take long: 5 to 25 s."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long are begun first, then those of many tests, so that no process is left with a long one when
    the others have nothing more to do."""
    tests = Counter(item.path for item in items)
    begun = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: (begun.get(item.path.stem, len(LONG)), -tests[item.path], item.path))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the search for garbage need not go through all of it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
