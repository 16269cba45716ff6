"""Searches with one field varied: values, what they change, and what the answer has to agree with."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts import fold as folds
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.footprint import Part, parts_of
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.layouts.space import Group
from distsim.engine.layouts.variants import base_setup
from distsim.engine.layouts.varied import FIELDS, values_of
from distsim.engine.layouts.vary import VaryReport, vary
from distsim.errors import DistsimError
from distsim.report.search_vary import lines
from distsim.report.style import Style
from distsim.specs.job import Job
from distsim.units import MICROSECOND

BOUNDS = parse_bounds({"recompute": "none", "schedule": "1f1b", "zero": "1", "cp": "1", "pp": "1,2"}, [])
REQUEST = Request(Job(model="llama-7b", gpu="h100-sxm", global_batch=64), (16,), BOUNDS)


def varied(name: str, text: str) -> VaryReport:
    return vary(REQUEST, name, text)


def speeds(report: VaryReport) -> list[float]:
    return [point.best.report.tokens_per_second for point in report.points if point.best]


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("gpu.memory", "40GB..160GB", [40e9, 40e9 * 2**0.5, 80e9, 80e9 * 2**0.5, 160e9]),
    ("gpu.bandwidth", "0.5..8", [50.0, 100.0, 200.0, 400.0, 800.0]),
    ("network.bandwidth", "1,3x,50 B/s", [100.0, 300.0, 50.0]),
    ("network.latency", "5s..5s", [5.0]),
    ("gpu.peak", "1..1.5", [100.0, 100 * 2**0.5, 150.0]),
    ("seq", "4096..20000", [4096, 8192, 16384, 20000]),  # as --gpus 64..100 has its end
    ("fabric.domain", "8..72", [8, 16, 32, 64, 72]),
    ("gpus", "256..2048", [256, 512, 1024, 2048]),
    ("seq", "1000,3000", [1000, 3000]),
    ("gpu.memory", "1x,40x", [80e9, 3200e9]),
])  # fmt: skip
def test_values(name: str, text: str, expected: list[float]) -> None:
    usual = 80e9 if name == "gpu.memory" else 100.0
    assert values_of(name, text, usual) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "text", "says"), [
    ("network.bandwith", "1..2", "did you mean network.bandwidth"),
    ("gpu", "1..2", "fields: gpu.memory"),
    ("gpu.memory", "40XB..80GB", "write e.g. --vary gpu.memory 40GB"),
    ("gpu.memory", "4..1", "write 1..4"),
    ("gpu.memory", "40..80", "40 is 40 times 80.00 GiB"),
    ("gpu.memory", "40..80", "write 40GB..80GB, or 40x..80x if that is meant"),
    ("gpu.memory", "40Gb..80Gb", "did you mean 40 GB? Otherwise write 4.66 GiB"),
    ("gpu.memory", "40,80 GB", "write 40GB,80 GB"),
    ("gpu.peak", "500..1000", "write 500TFLOP/s..1000TFLOP/s"),
    ("network.latency", "2..20", "write 2us..20us"),
    ("gpu.power", "400..700", "write 400W..700W"),
    ("gpu.power", "1x..40x", "40x is 40 times 700 W"),
    ("gpu.memory", "0..1", "0 times what gpu.memory is now"),
    ("gpu.peak", "1..1e9", "1,000,000,000 times what gpu.peak is now"),
    ("gpu.peak", "-1..1", "-1 times"),
    ("gpu.peak", "nan..1", "nan times"),
    ("seq", "1k..4k", "is not a whole number"),
    ("seq", "..4096", "is not a range"),
    ("seq", "0..4096", "is not a whole number"),
])  # fmt: skip
def test_slips_say_what_would_be_right(name: str, text: str, says: str) -> None:
    with pytest.raises(DistsimError) as slip:
        varied(name, text)
    assert says in str(slip.value)


HARDWARE = [name for name, field in FIELDS.items() if field.scaled and field.unit]


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return search(REQUEST).best[0].to_dict()


@pytest.mark.parametrize("name", HARDWARE)
def test_better_hardware_is_not_slower_worse_not_faster_and_the_same_is_the_same(
    name: str, plain: dict[str, Any]
) -> None:
    report = varied(name, "0.5,1,2")
    same = report.points[1]
    assert same.best is not None and same.factor == 1
    assert same.best.to_dict() == plain
    found = speeds(report)
    if name == "network.latency":
        found.reverse()
    assert found == sorted(found) and found[0] < found[-1]


def test_the_varied_spec_reaches_the_layout() -> None:
    report = varied("gpu.peak", "500TFLOP/s,1000TFLOP/s")
    slow, fast = (point.best.report.setup.accelerator for point in report.points if point.best)
    assert slow.peak.bf16 == pytest.approx(500e12) and fast.peak.bf16 == pytest.approx(1000e12)
    assert fast.peak.fp8 == pytest.approx(2 * slow.peak.fp8)  # type: ignore[operator]
    one = varied("network.latency", "7us").points[0].best
    assert one is not None and one.report.setup.cluster.network is not None
    assert one.report.setup.cluster.network.hop == pytest.approx(7 * MICROSECOND)


def test_a_larger_fabric_is_no_slower_and_a_smaller_node_no_quicker() -> None:
    report = varied("fabric.domain", "2,4,8,16")
    clusters = [point.best.report.setup.cluster for point in report.points if point.best]
    assert [(one.gpus_per_node, one.domain) for one in clusters] == [(2, 2), (4, 4), (8, 8), (8, 16)]
    shares = {round(one.network_bytes_per_second_per_gpu or 0) for one in clusters}
    assert len(shares) == 1  # an accelerator's share of the NICs stays
    found = speeds(report)
    assert found == sorted(found) and found[0] < found[-1]
    assert found[2] == speeds(varied("gpus", "16"))[0]
    with pytest.raises(DistsimError, match="12 is not a whole number of nodes"):
        varied("fabric.domain", "12")


def test_memory_bounds_the_layouts() -> None:
    report = varied("gpu.memory", "20GB..80GB")
    usable = base_setup(REQUEST.job, 16).accelerator
    share = usable.capacity / usable.memory
    for point in report.points:
        assert point.report is not None and point.report.limit == pytest.approx(point.value * share, rel=1e-9)
        assert point.best is None or point.best.report.memory.peak <= point.report.limit
    assert [p.report.fitting for p in report.points if p.report] == sorted(
        p.report.fitting for p in report.points if p.report
    )


def test_seq_and_gpus_are_those_of_step() -> None:
    for name, text in (("seq", "1024..2048"), ("gpus", "8..16")):
        for point in varied(name, text).points:
            assert point.best is not None
            layout = point.best.report.setup.layout
            assert getattr(layout, name) == point.value
            job = REQUEST.job.model_copy(update={**point.best.options, "seq": layout.seq})
            assert resolve(job).layout == layout


def test_gpus_share_one_batch() -> None:
    job = REQUEST.job.model_copy(update={"global_batch": None})
    report = vary(Request(job, (8,), BOUNDS), "gpus", "6,8")
    assert {point.report.global_batch for point in report.points if point.report} == {1536}


def test_a_value_without_layouts_is_a_row_and_no_error() -> None:
    report = varied("gpus", "37,16")
    assert report.points[0].report is None and "37 GPUs" in report.points[0].problem and report.points[1].best
    text = "\n".join(lines(report, Style(100, 0, True)))
    assert "none" in text and report.points[0].problem in " ".join(text.split())  # it may be folded
    with pytest.raises(DistsimError, match="37 GPUs"):
        varied("gpus", "37")


def test_report_names_each_best_layout_and_where_it_changes() -> None:
    report = varied("gpu.memory", "20GB..160GB")
    text = lines(report, Style(100, 0, True))
    bests = {tuple(point.best.options.items()) for point in report.points if point.best}
    assert len(bests) > 1 and sum("the best layout changes" in line for line in text) >= 1
    assert all(any(line.lstrip().startswith(f"{value} GB") for line in text) for value in ("40", "80", "160"))
    assert "\n".join(lines(report, Style(100, 0, False))).isascii()


def test_what_changes_nothing_is_told() -> None:
    """One node has no use for another network; faster units change the step of the same layout."""
    alone = replace(REQUEST, gpus=(8,))
    network, peak = (lines(vary(alone, name, "1,2"), Style(100, 0, True)) for name in ("network.latency", "gpu.peak"))
    assert "The best layout and its step are the same for all values." in network
    assert "The best layout is the same for all values." in peak


def test_json_and_exit_codes(capfd: pytest.CaptureFixture[str]) -> None:
    from distsim.cli.app import run as start

    def code(*words: str) -> tuple[int, str, str]:
        fixed = ["search", "llama-7b", "--gpu", "h100-sxm", "--recompute", "none", "--zero", "1", "--cp", "1"]
        ended = start([*fixed, *words])
        out, err = capfd.readouterr()
        return ended, out, err

    ended, out, _ = code("--gpus", "8", "--vary", "gpu.memory", "40GB,80GB", "--json")
    answer = json.loads(out)
    assert ended == 0 and answer["schema"] == "distsim.search-vary/1" and answer["unit"] == "B"
    assert [point["value"] for point in answer["points"]] == [40e9, 80e9]
    assert all(point["best"]["layout"]["tp"] >= 1 for point in answer["points"])
    assert code("--gpus", "8", "--vary", "gpu.memory", "1GB,2GB")[0] == 1
    for words, says in (
        (("--gpus", "8", "--vary", "gpus", "8..16"), "leave --gpus out"),
        (("--seq", "1024", "--vary", "seq", "1024..2048"), "leave --seq out"),
        (("--vary", "seq", "1024..2048", "--diff", "1,2"), "leave --diff out"),
        (("--vary", "sequence", "1024..2048"), "fields: "),
    ):
        ended, out, err = code(*words)
        assert ended == 2 and says in err and not out


@pytest.mark.parametrize(("gpu", "gpus", "each"), [("h100-sxm", 16, 8), ("gb200", 144, 4)])
def test_rates_of_a_node_are_told_as_such(gpu: str, gpus: int, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """400 GB/s are those of eight GPUs, 200 those of GB200's four: both are 50 GB/s per GPU."""
    monkeypatch.setenv("COLUMNS", "200")
    job = REQUEST.job.model_copy(update={"gpu": gpu, "global_batch": 576})
    report = vary(Request(job, (gpus,), BOUNDS), "network.bandwidth", "1,2")
    assert report.to_dict()["per_gpus"] == each
    told = lines(report, Style(200, 0, False))
    assert f"as network.bandwidth of a node of {each} GPUs varies" in told[0]
    head = next(line for line in told if line.startswith("network.bandwidth"))
    row = next(line for line in told if "GB/s" in line)
    assert "per GPU" in head and " ".join(row.split()).startswith(f"{each * 50} GB/s 50 GB/s ")
    fabric = vary(Request(job, (gpus,), BOUNDS), "fabric.bandwidth", "1,2")
    assert "as fabric.bandwidth per GPU varies" in lines(fabric, Style(200, 0, False))[0]
    assert varied("seq", "1024,2048").to_dict()["per_gpus"] is None


def test_sentences_are_folded_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but command lines, which are to copy; a pipe gets each sentence on its line."""
    report = varied("network.bandwidth", "0.5..2")
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = lines(report, Style(80, 0, True))
    titles = [line for line in wide if line.startswith(("llama-7b on", "Tokens per second"))]
    assert len(titles) == 2 and min(len(line) for line in titles) > 80
    monkeypatch.setenv("COLUMNS", "80")
    narrow = lines(report, Style(80, 0, True))
    assert [line for line in narrow if len(line) > 80 and "distsim search" not in line] == []
    assert all(title.split() in [(a + b).split() for a, b in pairwise(narrow)] for title in titles)


@pytest.mark.parametrize("name", ["gpu.memory", "network.bandwidth", "gpu.peak"])
def test_what_a_field_does_not_change_is_computed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the second search, for all that follow it; with the answers of searches that share nothing."""
    counted = []

    def parts(group: Group) -> list[Part]:
        counted.append(group)
        return parts_of(group)

    monkeypatch.setattr(folds, "parts_of", parts)
    bounds = parse_bounds({"tp": "2", "pp": "1", "recompute": "none", "zero": "1", "micro_batch": "1"}, [])
    shared = vary(replace(REQUEST, bounds=bounds), name, "0.6,0.8,1.5,2")
    once = len(counted)
    monkeypatch.setattr("distsim.engine.layouts.vary.MOST_SHARED", 0)
    apart = vary(replace(REQUEST, bounds=bounds), name, "0.6,0.8,1.5,2")
    assert once == (len(counted) - once) / (1 if name == "gpu.peak" else 2)
    assert [point.to_dict() for point in shared.points] == [point.to_dict() for point in apart.points]
