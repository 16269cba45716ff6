"""What torch's caching allocator keeps of nanotron's steps: its figures are reserved memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distsim.engine.evidence import replay
from distsim.engine.figures import Figures
from distsim.engine.footprint.kept import kept_bytes
from distsim.engine.footprint.states import states
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import memory_of
from distsim.engine.validate import shipped_runs
from distsim.formulas.buffers import list_gather_bytes
from distsim.interop.runs import read_runs
from distsim.specs.job import Job
from distsim.units import MIB

RUNS = {run.id: run for run in read_runs(shipped_runs())}
OPTIONS: dict[str, Any] = {"model": "llama-7b", "gpu": "h100-sxm", "framework": "nanotron", "seq": 4096,
                           "micro_batch": 1, "global_batch": 256, "pp": 2, "zero": 1}  # fmt: skip


def _kept(setup: Setup) -> Any:
    stage, figures = build_stages(setup)[0], Figures()
    return kept_bytes(setup, stage, states(setup, stage.held(), figures), figures)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (64, 1000 + 0),  # parts of 16 fit where a layer's tensors were, all of them nowhere
        (4, 1000 + 1000 + 250),  # nor do parts of 250, one's own among them
    ],
)
def test_a_gather_of_lists_asks_for_what_no_free_block_holds(ranks: int, expected: float) -> None:
    assert list_gather_bytes(1000, ranks, 100, 0, 0, 0) == pytest.approx(expected)


def test_the_blocks_of_the_loss_and_of_the_embeddings_gradient_hold_some_parts() -> None:
    assert list_gather_bytes(1000, 4, 100, 300, 700, 0) == pytest.approx(1000 + 550)
    assert list_gather_bytes(1000, 4, 100, 0, 0, 600) == pytest.approx(1000 + 750)
    assert list_gather_bytes(1000, 4, 100, 2000, 5000, 0) == 0


def test_states_of_the_first_step_take_the_place_of_what_the_gather_leaves() -> None:
    """With few replicas Adam's states are the larger, with many the gather's tensor of all bf16 parameters."""
    found = {}
    for dp in (2, 64):
        setup = resolve(Job(**OPTIONS, gpus=2 * dp))
        memory = memory_of(setup).stages[0]
        whole, table = memory.categories["parameters"], 2 * 32000 * 4096
        assert table > 4096 * 2 * 11008 * 2  # one's gradient fits no block of a layer
        found[dp] = (_kept(setup) - table) / whole
    assert found[2] == pytest.approx(1 + 1 + 0.5 - 2, rel=0.05)  # a gather less 8 bytes of states over two ranks
    assert found[64] == pytest.approx(1 - 4 / 64, rel=0.01)
    assert _kept(resolve(Job(**OPTIONS | {"zero": 0}, gpus=128))) == table


def test_arrays_of_layouts_keep_what_each_layout_keeps() -> None:
    setup = resolve(Job(**OPTIONS, gpus=128))
    groups, zeros = np.array([2, 16, 64, 1, 64]), np.array([1, 1, 1, 1, 0])
    whole = _kept(replace(setup, layout=setup.layout.with_(zero_group=groups, zero=zeros)))
    for place, (group, zero) in enumerate(zip(groups, zeros, strict=True)):
        single = replace(setup, layout=setup.layout.with_(zero_group=int(group), zero=int(zero)))
        assert whole[place] == pytest.approx(_kept(single))


@pytest.mark.parametrize(
    ("zero", "precision", "buckets"),
    [(0, "bf16-fp32-grads", 1), (1, "bf16-fp32-grads", 0), (1, "bf16", 1), (0, "bf16", 1)],
)
def test_ddp_holds_every_gradient_twice(zero: int, precision: str, buckets: int) -> None:
    """Its buckets, in bf16: without ZeRO, or without an accumulator in fp32. One rank alone has none."""
    options = OPTIONS | {"zero": zero, "precision": precision}
    many, alone = (memory_of(resolve(Job(**options, gpus=gpus))).stages[0] for gpus in (8, 2))
    more = many.categories["buffers"] - alone.categories["buffers"]
    assert more == pytest.approx(buckets * many.categories["parameters"])
    assert many.categories["gradients"] == pytest.approx((1 + (precision != "bf16")) * many.categories["parameters"])


@pytest.mark.parametrize(
    "name",
    [
        "0069", "0104", "0007", "0694", "0820", "0584", "0825", "1196", "1393", "0702", "1508",  # without ZeRO
        "0066", "0181", "0377", "0930", "1059", "0313", "0191", "1043", "1418",  # one tensor of all parameters
        "0016", "0071", "0097", "0067", "0528", "0628",  # and the ranks' parts
    ],
)  # fmt: skip
def test_runs_without_tensor_parallelism_are_what_the_allocator_reserves(name: str) -> None:
    """Of models of 1.3 to 9 billion parameters, 2 to 256 replicas, 1 to 32 stages; none of it fitted to these runs."""
    error = replay(RUNS[f"nanotron-{name}"], strange=True).memory_error
    assert error is not None
    assert abs(error) < 0.055


def test_other_frameworks_gather_no_lists() -> None:
    setup = resolve(Job(model="llama-7b", gpu="h100-sxm", gpus=8, framework="megatron-core"))
    assert _kept(setup) == 0
    assert memory_of(setup).worst.categories["framework"] > 500 * MIB
