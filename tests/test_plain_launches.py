"""Launches of plain torch are those that torch issues (benchmarks/torch_launches.py, torch 2.13), part by part."""

from __future__ import annotations

from typing import Any

import pytest
from own_network import NETWORK

from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import _passes_beside
from distsim.engine.kernels.launches import launches
from distsim.engine.kernels.passes import moved_bytes
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation

GPT = {"family": "gpt", "gated_mlp": "0", "attention": "sdpa"}
ELEMENTS = 4 * 512 * 1024


def _layer(notes: str = "network written by hand", **cells: Any) -> tuple[Setup, dict[str, Operation]]:
    setup = replay(Run({**NETWORK, **cells, "notes": notes}, 2)).setup
    assert setup is not None
    return setup, {one.name: one for one in build_stages(setup)[0].layers[0][0].operations}


def _launched(part: str, notes: str = "network written by hand", **cells: Any) -> tuple[float, float]:
    setup, operations = _layer(notes, **cells)
    forward, backward = launches(setup, operations[part]).kernels
    return float(forward), float(backward)


@pytest.mark.parametrize(
    ("part", "cells", "counted"),
    [
        ("mlp.up", {"precision": "fp32"}, (2, 5)),  # two modules, and the sum of their inputs' gradients
        ("mlp.up", {"precision": "bf16"}, (6, 9)),  # casts of inputs and weights, and of their gradients
        ("mlp.up", {"precision": "pure-bf16"}, (2, 5)),
        ("mlp.up", {**GPT, "precision": "fp32"}, (1, 3)),  # its bias's gradient is a sum
        ("mlp.up", {**GPT, "precision": "bf16"}, (4, 6)),
        ("attention.norm", GPT, (1, 2)),
        ("attention.residual", {"precision": "fp32"}, (1, 1)),
        ("attention.residual", {"precision": "bf16"}, (1, 2)),
        ("attention.heads", {"precision": "fp32", "attention": "sdpa"}, (2, 4)),
        ("attention.heads", {"precision": "pure-bf16", "attention": "sdpa"}, (6, 8)),
        ("attention.heads", {"precision": "pure-bf16"}, (8, 10)),  # and copies of values and the output
        ("attention.heads", {**GPT, "attention": "eager"}, (5, 4)),
    ],
)  # fmt: skip
def test_parts_launch_what_torch_counts(part: str, cells: dict[str, str], counted: tuple[int, int]) -> None:
    assert _launched(part, **cells) == counted


@pytest.mark.parametrize(("precision", "counted"), [("fp32", (14, 26)), ("bf16", (16, 36)), ("pure-bf16", (16, 36))])
def test_a_rotation_of_pairs(precision: str, counted: tuple[int, int]) -> None:
    own = "network written by hand; rotation of pairs"
    assert _launched("attention.heads", own, precision=precision, attention="sdpa") == counted
    setup, operations = _layer(own, precision=precision, attention="sdpa")
    forward, backward = moved_bytes(setup, operations["attention.heads"])
    least = {"fp32": (72, 128)}.get(precision, (76, 120))  # queries and keys
    assert least[0] <= forward / ELEMENTS < 1.9 * least[0] and least[1] <= backward / ELEMENTS < 1.9 * least[1]


def test_products_by_einsum_copy_gradients_and_cost_the_host_more() -> None:
    modules, einsum = "network written by hand", "network written by hand; einsum linears"
    assert _launched("mlp.up", einsum, precision="fp32") == (2, 7)
    (setup, plain), (other, own) = (_layer(notes, precision="fp32") for notes in (modules, einsum))
    issued = [launches(setup, plain["mlp.up"]).issued, launches(other, own["mlp.up"]).issued]
    assert [float(more - less) for less, more in zip(*issued, strict=True)] == pytest.approx([2.0, 2 + 2.6])
    chip = Chip(other)
    less, more = (_passes_beside(one, chip, held["mlp.down"], False)[1]
                  for one, held in ((setup, plain), (other, own)))  # fmt: skip
    assert float(more - less) * chip.bandwidth == pytest.approx(2 * 4 * 1024 * 4096, rel=0.3)


def test_a_compiler_leaves_no_copies_and_casts() -> None:
    assert _launched("mlp.up", "network written by hand; einsum linears; rotation of pairs", compile="1") == (2, 4)
    assert _launched("attention.residual", compile="1") == (1, 1)
    assert _launched("attention.heads", "network written by hand; rotation of pairs", compile="1") == (1, 1)


def test_the_cast_of_a_branchs_gradient_moves_six_bytes() -> None:
    """A narrow branch and the stream are read and the stream written; two gradients are summed, one is cast."""
    setup, operations = _layer()
    assert [float(way) / ELEMENTS for way in moved_bytes(setup, operations["attention.residual"])] == [10, 18]


@pytest.mark.parametrize(
    ("notes", "linears", "pairs"),
    [("einsum linears; RoPE by pairs", "einsum", True), ("linear layers by einsum", "einsum", False),
     ("no einsum linears", "modules", False),
     ("Stanford CS336 BasicsTransformerLM", "einsum", True),
     ("einsum attention, rotation of halves", "modules", False)],
)  # fmt: skip
def test_notes_that_tell_of_them(notes: str, linears: str, pairs: bool) -> None:
    setup, _ = _layer(f"network written by hand; {notes}")
    assert (setup.kernels.linears, setup.kernels.rope_pairs) == (linears, pairs)


@pytest.mark.parametrize(("tokens", "samples", "seconds"), [("256", "4", 0.1604), ("128", "4", 0.1621)])
def test_a_course_network_whose_host_limits_it(tokens: str, samples: str, seconds: float) -> None:
    """24 layers in bf16 take 160 ms whatever the tokens (yyin-dev/cs336-a2 data/e2e_benchmark)."""
    notes = "own softmax, AdamW written out, einsum linears, rotation of pairs"
    found = replay(Run({**NETWORK, "seq_len": tokens, "micro_batch": samples, "notes": notes}, 2))
    assert found.predicted_seconds == pytest.approx(seconds, rel=0.12)
