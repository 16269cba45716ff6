"""The simulation and the named schedules held against orders recorded from the original implementations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.schedules import registry, text

ORACLE = Path(__file__).parent / "oracles" / "pipeline_schedules.jsonl.gz"
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress(ORACLE.read_bytes()).decode("utf-8").splitlines()
]
NAMED = {
    "gpipe": "gpipe", "1f1b": "1f1b", "interleaved_1f1b": "interleaved-1f1b", "looped_bfs": "looped-bfs",
    "zb1p": "zb-h1", "zb_h1": "zb-h1", "interleaved_zb1p": "interleaved-zb", "zbv": "zb-v", "dualpipe": "dualpipe",
    "dualpipev": "dualpipe-v", "pipedream_async": "pipedream", "1f1b_v": "1f1b-v", "chimera": "chimera",
    "hanayo": "hanayo", "interleaved_1f1b_group": "interleaved-1f1b-megatron",
    "interleaved_1f1b_ep_overlap": "interleaved-1f1b-overlap",
}  # fmt: skip


def times(row: dict[str, Any]) -> dict[str, Any]:
    """Recorded costs are per chunk; a scalar here is per whole stage."""
    costs = row["costs"]
    names = {"forward": "F", "backward": "B", "input_gradient": "I", "weight_gradient": "W"}
    found = {name: costs[key] for name, key in names.items() if key in costs}
    scaled = {name: one if isinstance(one, list) else one * row["v"] for name, one in found.items()}
    return {**scaled, "hop": costs.get("comm", 0)}


def check(report: Any, row: dict[str, Any]) -> None:
    assert report.makespan == pytest.approx(row["makespan"], rel=1e-9)
    assert report.idle == pytest.approx(row["idle"], abs=1e-6)
    assert report.bubble_fraction == pytest.approx(row["bubble_fraction"], abs=1e-6)
    assert report.span_bubble_fraction == pytest.approx(row["span_bubble_rate"], abs=1e-6)
    assert [peak * row["v"] for peak in report.peak_in_flight] == pytest.approx(row["peak_act"])
    assert [peak * row["v"] for peak in report.peak_until_weight_gradient] == pytest.approx(row["peak_act_until_w"])


def given(row: dict[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {"chains": row["chains"]} if len(row["chains"]) > 1 else {}
    if row["fused_fb"]:
        extra["fused"] = row["fused_fb"]
    size = {"stages": row["p"], "micro": row["m"], "chunks": row["v"], "placement": row["placement"]}
    return {**size, **times(row), **extra}


def test_recorded_orders_give_the_recorded_times_and_peaks() -> None:
    rows = [row for row in ROWS if row["p2p"] == "async"]
    assert len(rows) == 401
    for row in rows:
        report = distsim.pipeline(order=row["order"], **given(row))
        check(report, row)
        if "starts" in row and row["fused_fb"] != "split":
            assert [list(map(float, line)) for line in row["starts"]] == [
                pytest.approx(line) for line in report.timeline.starts
            ], row["id"]


def test_recorded_messages_replay_to_the_recorded_times() -> None:
    rows = [row for row in ROWS if row["p2p"] == "rendezvous"]
    assert len(rows) == 46
    for row in rows:
        check(distsim.pipeline(order=row["program"], **given(row)), row)


def test_rendezvous_of_plain_orders_is_what_torch_and_megatron_do() -> None:
    rows = [row for row in ROWS if row["p2p"] == "rendezvous" and row["schedule"] in ("gpipe", "1f1b")]
    assert len(rows) == 32
    for row in rows:
        check(distsim.pipeline(row["p"], row["m"], row["schedule"], p2p="rendezvous", **times(row)), row)


def test_named_schedules_are_the_recorded_orders() -> None:
    checked = 0
    for row in ROWS:
        name = NAMED.get(row["schedule"])
        if name is None:
            continue
        grouped = "group" in registry.find(name).options
        group = row["extra"]["microbatch_group_size_per_vp_stage"] if grouped else None
        schedule = registry.build(name, row["p"], row["m"], row["v"], group=group)
        assert text.write(schedule.orders) == row["order"], row["id"]
        assert (schedule.placement, schedule.chains) == (row["placement"], row["chains"])
        checked += 1
    assert checked == 417


def test_named_schedules_give_the_recorded_figures() -> None:
    checked = 0
    for row in ROWS:
        name = NAMED.get(row["schedule"])
        if name is not None and row["p2p"] == "async" and "group" not in registry.find(name).options:
            report = distsim.pipeline(row["p"], row["m"], name, row["v"], fused=row["fused_fb"], **times(row))
            check(report, row)
            checked += 1
    assert checked == 333


def test_weight_versions_of_pipedream() -> None:
    """Mini-batch i sees the updates of all but those in flight on its stage, in its forward and in its backward."""
    rows = [row for row in ROWS if row["schedule"] == "pipedream_async"]
    assert len(rows) == 6
    for row in rows:
        report = distsim.pipeline(row["p"], row["m"], "pipedream")
        assert list(report.weight_versions) == row["extra"]["weight_versions_stashed"]
        for stage, versions in enumerate(row["extra"]["forward_version"]):
            assert [max(0, i - (report.weight_versions[stage] - 1)) for i in range(row["m"])] == versions


def test_orders_survive_being_written_and_read() -> None:
    for row in ROWS:
        assert text.write(text.parse(row["order"])) == row["order"]
