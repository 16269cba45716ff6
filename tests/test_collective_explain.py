"""``distsim comm --collective --explain``: the formula of the way that was chosen, and whole bytes in all data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from distsim import catalog
from distsim.cli.app import run
from distsim.engine.collective import collective, group_on
from distsim.engine.networks.pricing import OPS
from distsim.report.collective_explain import figures

SIZES = ("peak", "capacity", "headroom", "peak_memory", "bytes", "bytes_per_call")
COMMANDS = (
    "memory llama-3-8b --gpus 12 --zero 3 --tp 2 --explain", "comm llama-7b --gpus 16 --zero 3 --explain",
    "comm mixtral-8x7b --gpus 64 --ep 8 --pp 2", "step llama-3-8b --gpus 24 --zero 3 --explain",
    "search llama-7b --gpus 8", "search llama-7b --gpus 8 --vary gpu.memory 0.33,0.77",
    "plan llama-7b --tokens 1T --gpu h100-sxm --gpus 8", "comm --collective all_reduce --gpus 16 --explain",
)  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("cluster", "gpus"),
    [("dgx-h100", 8), ("dgx-h100", 32), ("tpu-v5p-pod", 64), ("dgx-1-v100-16gb", 8), ("nc80adis_h100_v5", 2)],
)
@pytest.mark.parametrize("size", [1000, 2**30])
def test_the_formula_gives_the_time_that_is_told(op: str, cluster: str, gpus: int, size: int) -> None:
    spec = catalog.load("clusters", cluster)
    one = collective(op, gpus=gpus, bytes=size, cluster=spec)
    sent, time, *_ = figures(one, group_on(gpus=gpus, cluster=spec))
    assert time.value == pytest.approx(one.seconds, rel=1e-9)
    assert round(sent.value) == one.to_dict()["wire_bytes_per_rank"]
    assert one.algorithm in time.source and one.link in time.source


def test_one_size_is_explained_in_words_and_in_data(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "comm",
        "--collective",
        "all_reduce",
        "--bytes",
        "1GB",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "16",
        "--explain",
    ]
    assert run(words) == 0
    told = capsys.readouterr().out
    assert "call_seconds = latency * latency_factor + size_bytes / bandwidth" in told and "1,000,000,000" in told
    assert run([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    time = next(one for one in answer["figures"] if one["formula"] == "call_seconds")
    assert time["value"] == pytest.approx(answer["sizes"][-1]["seconds"])


def test_a_size_with_a_fraction_is_rounded_once() -> None:
    """Two and a half bytes were told as two and priced as two and a half."""
    odd, whole = collective("all_reduce", bytes=1_000_001.6), collective("all_reduce", bytes=1_000_002)
    assert odd == whole and odd.bytes == 1_000_002


def _sizes(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Sizes in an answer; figures say what formulas give, which may be means."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from () if name == "figures" else _sizes(one, name)
        if value.get("unit") == "B" and "points" in value:
            yield from (("value", point["value"]) for point in value["points"])
    elif isinstance(value, list):
        for one in value:
            yield from _sizes(one, key)
    elif key.endswith("_bytes") or key in SIZES:
        yield key, value


@pytest.mark.parametrize("command", COMMANDS)
def test_sizes_are_whole_bytes_in_all_data(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--json"]) in (0, 1)
    found = list(_sizes(json.loads(capsys.readouterr().out)))
    assert found and not [(key, one) for key, one in found if isinstance(one, float)]
