"""What split backwards gain over 1F1B and what memory they take, as it was measured: Qi et al. 2023 (arXiv:2401.10241),
samples per GPU and second on A100 in tables 4, 6 and 10, memory in tables 4 and 6, passes in table 9. Nothing is fitted
to these runs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest

import distsim
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import resolve
from distsim.engine.memory import memory_of
from distsim.engine.steps.report import StepReport
from distsim.engine.steps.timeline import timeline_of
from distsim.specs.job import Job
from distsim.specs.model import Model
from distsim.units import GIB


class Shape(NamedTuple):
    """A GPT of the paper. The first and the last stage have a layer less than the others."""

    layers: int
    hidden: int
    heads: int


SHAPES = {"1.5B": Shape(22, 2304, 24), "6.2B": Shape(30, 4096, 32), "14.6B": Shape(46, 5120, 40),
          "28.3B": Shape(62, 6144, 48)}  # fmt: skip

# model, stages, sequences of a micro-batch, micro-batches: 1F1B, ZB-1p, ZB-2p with stages that wait for each other
# before the optimizer's step (None where that was not measured)
TABLES_4_AND_10 = {
    ("1.5B", 8, 6, 24): (11.8, 12.9, 13.11), ("1.5B", 8, 6, 32): (12.5, 13.4, None),
    ("1.5B", 8, 6, 64): (13.6, 14.2, None), ("6.2B", 8, 3, 24): (3.50, 3.88, 4.00),
    ("6.2B", 8, 3, 32): (3.70, 4.00, None), ("6.2B", 8, 3, 64): (4.03, 4.20, None),
    ("14.6B", 16, 1, 48): (1.40, 1.61, 1.68), ("14.6B", 16, 1, 64): (1.49, 1.67, None),
    ("14.6B", 16, 1, 128): (1.64, 1.76, None), ("28.3B", 32, 1, 96): (0.76, 0.87, 0.91),
    ("28.3B", 32, 1, 128): (0.80, 0.90, None), ("28.3B", 32, 1, 256): (0.88, 0.96, None),
}  # fmt: skip
# the same: 1F1B, ZB-1p, ZB-V whose stages step as soon as they are done
TABLE_6 = {
    ("6.2B", 16, 6, 48): (3.38, 3.87, 4.15), ("6.2B", 16, 6, 64): (3.57, 4.00, 4.21),
    ("6.2B", 16, 6, 128): (3.91, 4.29, 4.35), ("14.6B", 24, 2, 72): (1.52, 1.72, 1.85),
    ("14.6B", 24, 2, 96): (1.61, 1.78, 1.88), ("14.6B", 24, 2, 192): (1.76, 1.89, 1.93),
    ("28.3B", 32, 2, 96): (0.82, 0.94, 1.01), ("28.3B", 32, 2, 128): (0.87, 0.97, 1.02),
    ("28.3B", 32, 2, 256): (0.95, 1.03, 1.06),
}  # fmt: skip
# model, stages, sequences of a micro-batch: GB of 1F1B, ZB-1p, ZB-2p, which do not change with the micro-batches
MEMORY = {
    ("1.5B", 8, 6): (30, 32, 59), ("6.2B", 8, 3): (39, 42, 70), ("14.6B", 16, 1): (32, 33, 51),
    ("28.3B", 32, 1): (43, 44, 74),
}  # fmt: skip
# the same: 1F1B, ZB-1p, ZB-V
MEMORY_OF_A_V = {("6.2B", 16, 6): (61, 62, 64), ("14.6B", 24, 2): (44, 46, 45), ("28.3B", 32, 2): (69, 73, 71)}
WEIGHTS = {("1.5B", 8, 6): 9.337, ("6.2B", 8, 3): 19.927, ("14.6B", 16, 1): 8.132, ("28.3B", 32, 1): 7.715}
"""Milliseconds of a micro-batch's weight gradients on a stage, profiled (table 9)."""


def gpt(name: str) -> Model:
    layers, hidden, heads = SHAPES[name]
    wide = {"layers": layers, "hidden": hidden, "ffn": 4 * hidden, "heads": heads, "kv_heads": heads}
    rest = {"head_dim": hidden // heads, "tied_embeddings": False}
    return load_model("gpt3-13b").spec.model_copy(update={**wide, **rest})


def options(name: str, stages: int, micro_batch: int, micro: int, schedule: str) -> dict[str, Any]:
    chunks = 2 if schedule == "zb-v" else 1
    whole, short = divmod(SHAPES[name].layers + 2, stages * chunks)
    inner = "" if short else f"{whole - 1},{whole}*{stages * chunks - 2},{whole - 1}"
    return {
        "gpu": "a100-sxm4-80gb", "gpus": stages, "pp": stages, "micro_batch": micro_batch, "seq": 1024,
        "global_batch": micro_batch * micro, "schedule": schedule, **({"stage_layers": inner} if inner else {}),
    }  # fmt: skip


@cache
def step(name: str, stages: int, micro_batch: int, micro: int, schedule: str) -> StepReport:
    return distsim.step(gpt(name), **options(name, stages, micro_batch, micro, schedule))


def gibibytes(run: tuple[str, int, int], schedule: str) -> float:
    """On the fullest GPU; Megatron-LM of 2023 composed attention unless told, and gradients had no places."""
    setup = resolve(Job(model=gpt(run[0]), **options(*run, 3 * run[1], schedule), attention="eager"))
    older = setup.kernels.model_copy(update={"gradient_places": "none"})
    return float(memory_of(replace(setup, kernels=older)).peak) / GIB


def gain(run: tuple[str, int, int, int], schedule: str) -> float:
    """Over 1F1B."""
    return step(*run, "1f1b").seconds / step(*run, schedule).seconds - 1


@pytest.mark.parametrize("run", TABLES_4_AND_10)
def test_gains_with_a_step_of_all_stages_at_once(run: tuple[str, int, int, int]) -> None:
    plain, one, two = TABLES_4_AND_10[run]
    assert gain(run, "zb-h1") == pytest.approx(one / plain - 1, abs=0.03)
    if two is not None:
        assert gain(run, "zb-auto") == pytest.approx(two / plain - 1, abs=0.03)
        assert gain(run, "zb-h2") == pytest.approx(two / plain - 1, abs=0.03)


@pytest.mark.parametrize("shape", WEIGHTS)
def test_weight_gradients_take_what_was_profiled(shape: tuple[str, int, int]) -> None:
    costs = timeline_of(step(*shape, 3 * shape[1], "zb-h1")).run.costs
    assert 1e3 * float(costs.weight_gradient[shape[1] // 2]) == pytest.approx(WEIGHTS[shape], rel=0.03)


@pytest.mark.parametrize("run", MEMORY)
def test_memory_of_split_backwards(run: tuple[str, int, int]) -> None:
    """The first stage holds what it does under 1F1B; the fullest is the second, which has a layer more, and holds the
    inputs and output gradients of a micro-batch beside it."""
    plain, one, two = MEMORY[run]
    found = gibibytes(run, "1f1b")
    assert found == pytest.approx(plain, rel=0.035)
    assert gibibytes(run, "zb-h1") == pytest.approx(one, rel=0.04)
    assert gibibytes(run, "zb-h1") - found == pytest.approx(one - plain, abs=1.6)  # of whole GB
    assert gibibytes(run, "zb-auto") == pytest.approx(two, rel=0.07)


@pytest.mark.parametrize("run", MEMORY_OF_A_V)
def test_memory_of_a_v(run: tuple[str, int, int]) -> None:
    for schedule, measured in zip(("1f1b", "zb-h1", "zb-v"), MEMORY_OF_A_V[run], strict=True):
        assert gibibytes(run, schedule) == pytest.approx(measured, rel=0.065)


@pytest.mark.parametrize("run", TABLE_6)
def test_gains_of_a_v(run: tuple[str, int, int, int]) -> None:
    """Stages that do not wait before their step gain 1 to 3.4 points more than is counted here: 28.3B on 32 stages, of
    both of whose arms the sends between nodes are taken to delay a stage by their fitted share. 6.2B has one layer in
    a chunk, whose transfers did not hide: 6 to 9 points less than predicted."""
    plain, one, folded = TABLE_6[run]
    assert gain(run, "zb-h1") == pytest.approx(one / plain - 1, abs=0.045)
    lost = 0.06 if run[0] == "6.2B" else 0.0
    assert lost - 0.035 < gain(run, "zb-v") - (folded / plain - 1) < lost + 0.03
