"""Modules that an author wrote of elementary operations, and the network of a course that asks for all of them."""

from __future__ import annotations

import pytest
from own_network import NETWORK

from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.layers.ledger import saved_bytes

NEW = {**NETWORK, "year": "2026-06", "precision": "pure-bf16"}
"""Of a year in which torch's own RMSNorm is one kernel."""


def _setup(notes: str, **cells: str) -> Setup:
    return setup_of(Run({**NEW, **cells, "notes": f"network written by hand; {notes}"}, 2))


def _saved(setup: Setup) -> float:
    """Bytes that a layer keeps for backward."""
    return float(saved_bytes(build_stages(setup)[0].layers[0][0].operations))


@pytest.mark.parametrize(
    ("notes", "norm", "gates"),
    [("own RMSNorm", "eager", 1), ("own SwiGLU", "fused", 2), ("RMSNorm and SiLU written out", "eager", 2),
     ("own RMSNorm, SwiGLU and softmax", "eager", 2), ("no own RMSNorm", "fused", 1), ("RMSNorm, SwiGLU", "fused", 1),
     ("Stanford CS336", "eager", 2), ("cs336-basics", "eager", 2), ("no CS336 network", "fused", 1)],
)  # fmt: skip
def test_notes_that_tell_of_modules(notes: str, norm: str, gates: int) -> None:
    kernels = _setup(notes).kernels
    assert (kernels.norm, kernels.gate_tensors) == (norm, gates)


def test_a_source_names_the_course_too() -> None:
    kernels = setup_of(Run({**NEW, "source": "somebody/cs336-a2 README.md", "notes": ""}, 2)).kernels
    assert kernels.softmax_written and kernels.norm == "eager" and kernels.linears == "einsum"


def test_what_such_modules_keep() -> None:
    """Two norms keep their input and what they multiply by a weight in fp32, not the stream in bf16; a SiLU keeps its
    sigmoid beside what it gives."""
    plain, norms, gates = (_saved(_setup(notes)) for notes in ("", "own RMSNorm", "own SwiGLU"))
    tokens, hidden, inner = 4 * 512, 1024, 4096
    assert norms - plain == pytest.approx(2 * tokens * hidden * (4 + 4 - 2), rel=0.001)
    assert gates - plain == pytest.approx(tokens * inner * 2, rel=1e-9)


def test_a_compiler_makes_one_kernel_of_them() -> None:
    own, theirs = (_setup(notes, compile="1") for notes in ("own RMSNorm and SwiGLU", ""))
    assert _saved(own) == _saved(theirs)
