"""Plans remember which layouts are best where: the same answer, without a search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.layouts.search import search
from distsim.engine.plans import layouts, remembered
from distsim.engine.plans.layouts import REMEMBERED
from distsim.specs.job import Job

BOUNDS = {"gpu": "h100-sxm", "gpus": 16, "provider": "aws", "tp": [1, 2], "pp": 1, "zero": 1, "price": "on-demand"}


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """GPUs of each search, as they are made."""
    found: list[int] = []

    def counted(request: Any, *known: Any, **options: Any) -> Any:
        found.append(max(request.gpus))
        return search(request, *known, **options)

    monkeypatch.setattr(layouts, "search", counted)
    REMEMBERED.forget()
    return found


def asked(**options: Any) -> dict[str, Any]:
    return distsim.plan("llama-7b", "10B", **{**BOUNDS, **options}).to_dict()


def test_a_plan_asked_again_searches_nothing_and_answers_as_anew(searched: list[int]) -> None:
    asked()
    first = len(searched)
    again = asked(deadline="9d", budget="1M", pace=1.5)
    assert first > 0 and len(searched) == first
    REMEMBERED.forget()
    assert asked(deadline="9d", budget="1M", pace=1.5) == again
    assert len(searched) == 2 * first


@pytest.mark.parametrize("other", [{"gpus": 8}, {"tp": 1}, {"margin": 0.1}, {"seq": 1024}, {"precision": "fp8"}])
def test_what_layouts_depend_on_is_searched_anew(searched: list[int], other: dict[str, Any]) -> None:
    asked()
    first = len(searched)
    asked(**other)
    assert len(searched) > first


def test_a_changed_preset_is_searched_anew(searched: list[int], own_folder: Path) -> None:
    shipped = catalog.path("gpus", "h100-sxm").read_text(encoding="utf-8")
    before = asked()["options"][0]["layout"]
    (own_folder / "presets" / "gpus").mkdir(parents=True)
    (own_folder / "presets" / "gpus" / "h100-sxm.toml").write_text(shipped, encoding="utf-8")
    first = len(searched)
    assert asked()["options"][0]["layout"] == before
    assert len(searched) == 2 * first


def test_what_a_file_states_is_always_searched(searched: list[int], own_folder: Path) -> None:
    own = 'name = "own"\nbased_on = "megatron-core"\n[source]\nother = "a test"\n'
    (own_folder / "own.toml").write_text(own, encoding="utf-8")
    asked(framework="own.toml")
    first = len(searched)
    asked(framework="own.toml")
    assert len(searched) == 2 * first > 0
    cluster = catalog.load("clusters", "dgx-h100")
    told: Callable[..., bool] = remembered.names_file
    assert told(Job(model="llama-7b", framework="./own"), cluster) and not told(Job(model="llama-7b"), cluster)


def test_only_so_many_places_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST", 2)
    known: remembered.Remembered[int] = remembered.Remembered()
    cluster, made = catalog.load("clusters", "dgx-h100"), []

    def ask(place: int) -> list[int]:
        return known(Job(model="llama-7b"), cluster, place, lambda: made.append(place) or [place])  # type: ignore[func-returns-value]

    for place in (1, 2, 1, 3, 1, 2):
        assert ask(place) == [place]
    assert made == [1, 2, 3, 2]
