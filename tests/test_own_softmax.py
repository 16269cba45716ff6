"""A softmax that a network's author composed of elementary operations: what it keeps, moves and launches."""

from __future__ import annotations

from typing import Any

import pytest
from own_network import NETWORK

from distsim.engine.evidence import Replay, replay
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.passes import moved_bytes
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation

SCORES = 4 * 16 * 512 * 512
OWN, TORCHS = "network written by hand; own softmax", "network written by hand; softmax is torch's"


def _replay(notes: str, **cells: str) -> Replay:
    found = replay(Run({**NETWORK, **cells, "notes": notes}, 2))
    assert found.predicted_seconds and found.setup
    return found


def _softmax(notes: str, **cells: str) -> tuple[Setup, Operation]:
    setup = _replay(notes, **cells).setup
    assert setup is not None
    block = build_stages(setup)[0].layers[0][0]
    return setup, next(one for one in block.operations if one.role == "softmax")


def _difference(**cells: str) -> list[float]:
    """Bytes per score, forward and backward, that an author's softmax moves beyond torch's."""
    (setup, own), (other, theirs) = _softmax(OWN, **cells), _softmax(TORCHS, **cells)
    pairs = zip(moved_bytes(setup, own), moved_bytes(other, theirs), strict=True)
    return [float(mine - its) / SCORES for mine, its in pairs]


def test_passes_are_those_that_torch_counts() -> None:
    """Eight passes for two forward and 25 for six backward (benchmarks/torch_passes.py), of which a chip is at most a
    tenth slower than its memory; of fp32 scores 4 bytes each."""
    forward, backward = _difference(precision="fp32")
    assert 0.9 * (8 - 2) * 4 < forward < 1.6 * (8 - 2) * 4
    assert (25 - 6) * 4 <= backward < 1.6 * (25 - 6) * 4


def test_autocast_widens_all_but_the_first_steps() -> None:
    narrow, wide = _difference(), _difference(precision="fp32")
    assert all(0.5 * many < few < many for few, many in zip(narrow, wide, strict=True))


@pytest.mark.parametrize(("precision", "more"), [("fp32", 4), ("bf16", 0)])
def test_a_quotient_keeps_exponentials_in_the_place_of_weights_that_are_cast(precision: str, more: int) -> None:
    (_, own), (_, theirs) = (_softmax(notes, precision=precision) for notes in (OWN, TORCHS))
    kept = [sum(tensor.size_bytes for tensor in one.saved) for one in (own, theirs)]
    assert kept[0] - kept[1] == more * SCORES


def test_a_host_issues_its_steps_and_a_compiler_makes_one_kernel_of_them() -> None:
    seconds: dict[tuple[str, str], Any] = {
        (notes, compiled): _replay(notes, compile=compiled).predicted_seconds
        for notes in (OWN, TORCHS)
        for compiled in ("0", "1")
    }
    assert seconds[OWN, "0"] > 1.1 * seconds[TORCHS, "0"]
    assert seconds[OWN, "1"] == seconds[TORCHS, "1"]


@pytest.mark.parametrize(
    ("notes", "written"),
    [(OWN, True), ("softmax written out", True), ("a hand-written softmax", True),
     ("own LayerNorm, GELU and softmax", True), ("no own softmax", False),
     ("own attention with torch's softmax", False), ("own LayerNorm", False)],
)  # fmt: skip
def test_notes_that_tell_of_it(notes: str, written: bool) -> None:
    setup, _ = _softmax(f"network written by hand; {notes}")
    assert setup.kernels.softmax_written is written
