"""Answers that are kept: the same as computed ones, and asked for once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distsim import arrays, catalog
from distsim.arrays import kept, maximum
from distsim.engine.exchanges import model
from distsim.engine.exchanges.flows import Flow
from distsim.engine.footprint.peak_error import peak_error
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.flops import active_parameters
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.layouts.money import _known
from distsim.engine.networks.link_factors import profiled
from distsim.engine.networks.nccl import tables
from distsim.engine.networks.network_classes import fabrics
from distsim.engine.networks.textbook import profiles
from distsim.engine.runs.cluster import _machines
from distsim.engine.runs.setup import setup_of
from distsim.formulas.compute import matmul_share
from distsim.interop.runs.named_presets import preset_named
from distsim.interop.runs.table import Run
from distsim.last import for_last, for_parts_of_last, while_same
from distsim.specs.job import Job

CELLS = {
    "model": "own",
    "family": "llama",
    "layers": "4",
    "hidden": "512",
    "heads": "8",
    "vocab": "32000",
    "seq_len": "1024",
    "gpu": "a100-sxm4-80gb",
    "n_gpus": "1",
    "global_batch": "4",
    "framework": "fsdp",
}


@pytest.mark.parametrize("least", [2, np.int64(2), np.array(2)])
def test_numbers_without_an_axis_go_with_arrays(least: object) -> None:
    values = np.arange(64) % 4
    assert list(kept(maximum)(values, least)) == list(np.maximum(values, 2))  # type: ignore[arg-type]


def test_numbers_and_arrays_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are told apart by what they hold; the oldest answers go where they would take much memory."""
    asked: list[object] = []

    @kept
    def above_two(value: object) -> object:
        asked.append(value)
        return maximum(value, 2)

    assert [above_two(5), above_two(5), above_two(1)] == [5, 5, 2]
    assert asked == [5, 1]
    for _ in range(2):
        assert list(above_two(np.array([1, 3]))) == [2, 3]  # type: ignore[call-overload]
        assert list(above_two(np.array([1.0, 3.0]))) == [2, 3]  # type: ignore[call-overload]
        assert above_two(np.arange(200)).sum() == 19903  # type: ignore[attr-defined]
    assert len(asked) == 5
    monkeypatch.setattr(arrays, "KEPT_BYTES", 1600)
    for _ in range(2):
        above_two(np.arange(200) + 1)
        above_two(np.array([1, 3]))
    assert len(asked) == 9


def test_shares_of_products_are_the_same_one_by_one_and_in_an_array() -> None:
    widths = np.array([64, 300, 4096, 50257])
    together = matmul_share(8192, widths, 4096, 1, 108)
    assert [matmul_share(8192, int(width), 4096, 1, 108) for width in widths] == list(together)


def test_runs_of_equal_cells_share_a_model_and_others_of_its_name_do_not() -> None:
    first, second, deeper = (setup_of(Run({**CELLS, **cells}, 2)) for cells in ({}, {}, {"layers": "8"}))
    assert first.model is second.model
    assert (first.model.layers, deeper.model.layers) == (4, 8)
    assert active_parameters(first) == active_parameters(second) < active_parameters(deeper)


def test_an_answer_is_kept_for_the_object_that_was_asked_about_last() -> None:
    """By identity: an equal object is another one, and what raises is asked again."""
    asked: list[list[int]] = []

    @for_last
    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        if not numbers:
            raise ValueError
        return sum(numbers)

    one, same = [1, 2], [1, 2]
    assert (total(one), total(one), total(same), total(one)) == (3, 3, 3, 3)
    assert len(asked) == 3
    for _ in range(2):
        with pytest.raises(ValueError):
            total([])
    assert len(asked) == 5 and total(one) == 3 and len(asked) == 5


def test_answers_about_parts_are_kept_for_the_object_that_was_asked_about_last() -> None:
    asked: list[int] = []

    @for_parts_of_last
    def longer(whole: list[int], part: list[int]) -> int:
        asked.append(len(part))
        return len(whole) - len(part)

    one, same, parts = [1, 2, 3], [1, 2, 3], ([1], [2, 3])
    assert [longer(one, part) for part in (*parts, *parts)] == [2, 1, 2, 1]
    assert asked == [1, 2]
    assert longer(same, parts[0]) == 2 and asked == [1, 2, 1]


def test_an_answer_is_kept_while_files_are_the_same() -> None:
    states, asked = ["old", "old", "new"], []

    @while_same(lambda: states.pop(0), 2)
    def told(word: str) -> str:
        asked.append(word)
        return word.upper()

    assert [told("a"), told("a"), told("a")] == ["A"] * 3
    assert asked == ["a", "a"]


@pytest.mark.parametrize(
    ("kind", "name", "old", "new", "answer"),
    [
        ("links", "fabrics", "hop = ", "hop = 1", lambda: fabrics()["network"]),
        ("links", "backends", "hop = ", "hop = 1", profiles),
        ("links", "nccl-2.30", "nic_share = ", "nic_share = 1", lambda: tables()["graph"]),
        ("links", "factors", "bandwidth = ", "bandwidth = 1", lambda: profiled(None)),
        ("timing", "peaks", "runs = ", "runs = 1", lambda: peak_error(1e9, 2e9)),
        ("prices", "lambda", "on_demand = ", "on_demand = 1", lambda: _known("on-demand", ("lambda",))),
        ("models", "llama-7b", "layers = ", "layers = 1", lambda: preset_named("llama-7b")),
        ("clusters", "dgx-h100", "\n", "\naliases = ['near-the-window']\n", _machines),
    ],
)  # fmt: skip
def test_what_a_program_changes_in_its_presets_holds_at_once(
    kind: str, name: str, old: str, new: str, answer: Callable[[], object], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An own preset that comes, one that is written again, and the shipped one when it is gone."""
    monkeypatch.chdir(tmp_path)
    text, shipped, own = catalog.path(kind, name).read_text(), answer(), tmp_path / "presets" / kind / f"{name}.toml"
    assert old in text
    own.parent.mkdir(parents=True)
    own.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert answer() != shipped
    own.write_text(text, encoding="utf-8")
    os.utime(own, ns=(1, 1))
    assert answer() == shipped
    own.unlink()
    assert answer() == shipped


def test_exchanges_of_a_layer_are_made_once_for_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages share blocks; their exchanges and gradients that wait were counted anew for each, and for each place."""
    made: list[str] = []
    one = model._flow

    def counted(*given: Any) -> Flow:
        made.append(given[1].name)
        return one(*given)

    monkeypatch.setattr(model, "_flow", counted)
    job = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 32, "tp": 2, "ep": 4, "global_batch": 32}
    counts = []
    for pp in (2, 4, 8):
        made.clear()
        setup = resolve(Job.read({**job, "pp": pp, "zero": 1}))
        for stage in build_stages(setup):
            model.model_flows(setup, exchange_of(setup), stage)
        counts.append(len(made))
    assert counts[0] == counts[1] == counts[2] > 0


def test_exchanges_among_one_rank_are_not_counted_for_recomputation() -> None:
    """Of a layer that runs again, what nobody sends is left out before its passes are told apart."""
    setup = resolve(Job.read({"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 32, "ep": 4, "recompute": "full",
                              "global_batch": 32}))  # fmt: skip
    flows = model.model_flows(setup, exchange_of(setup), build_stages(setup)[0])
    assert {flow.span.group for flow in flows} == {"ep"} and any(flow.recomputed for flow in flows)
