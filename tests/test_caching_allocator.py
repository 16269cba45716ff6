"""nanotron's figures against a simulation of torch's caching allocator, and the closed form against both."""

from __future__ import annotations

import pytest
from caching_allocator import Allocator, Step, reserved_bytes

from distsim.engine.memory import memory_of
from distsim.engine.runs.memory import held_by
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.years import run_year
from distsim.engine.validate import shipped_runs
from distsim.interop.runs import read_runs
from distsim.interop.runs.peaks import measured_peak_bytes
from distsim.units import MIB

RUNS = {run.id: run for run in read_runs(shipped_runs())}


def test_blocks_split_and_merge() -> None:
    pool = Allocator()
    first, second = pool.take(3 * MIB), pool.take(4 * MIB)
    assert pool.reserved == 20 * MIB  # both from one segment
    pool.give(first, second)
    assert pool.take(20 * MIB) == (0, 0)
    assert pool.take(11 * MIB + 1) == (1, 0)
    assert pool.reserved == 32 * MIB
    assert pool.take(MIB / 2) is None


@pytest.mark.parametrize(
    "name",
    [
        "0069", "0007", "0820", "1196", "1393", "1508",  # without ZeRO: DDP's buckets, or none
        "0061", "0748", "0066", "0016", "0071", "0022", "0097", "0067", "1043", "0324", "0116", "0528", "0628",
    ],
)  # fmt: skip
def test_measured_runs_are_what_the_allocator_reserves(name: str) -> None:
    """Nothing is fitted here but cuBLAS's and other workspaces, 0.1 of 15 to 65 GiB."""
    run = RUNS[f"nanotron-{name}"]
    held = held_by(run, setup_of(run), run_year(run))
    first, y, model = memory_of(held).stages[0], held.layout, held.model
    step = Step(
        first.layers, model.hidden, model.ffn, model.vocab, y.micro_batch, y.seq, int(first.in_flight), y.micro_batches,
        y.dp, y.zero, y.pp == 1, model.tied_embeddings,
    )  # fmt: skip
    simulated = reserved_bytes(step, 100e6)
    measured = measured_peak_bytes(run)
    assert measured is not None
    assert simulated / measured == pytest.approx(1, abs=0.025 if name != "0116" else 0.08)
    assert float(first.counted("reserved")) / simulated == pytest.approx(1, abs=0.045)
