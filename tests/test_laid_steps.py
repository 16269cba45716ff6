"""Steps that are sums of operators timed one by one: vTrain's, whose output layer no host hides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distsim import catalog
from distsim.engine.fitting.table import Table, example_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.kernels.sums import PHASES
from distsim.engine.step import step_of
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.compose import MicroBatch, compose, layout_numbers, micro_batch, stage_numbers
from distsim.engine.steps.figures import PASSES
from distsim.engine.steps.laid import PART
from distsim.engine.steps.stage_seconds import gpu_seconds, host_seconds, phase_seconds
from distsim.engine.steps.work import work_of
from distsim.report.step_explain import as_data
from distsim.specs.job import Job
from distsim.specs.model import Model

SMALL: dict[str, Any] = {"gpu": "a100-sxm4-80gb", "gpus": 4, "seq": 1024, "micro_batch": 1, "global_batch": 16,
                         "framework": "vtrain"}  # fmt: skip


def _setup(model: str = "gpt2", laid: bool = True, **options: Any) -> Setup:
    """A network of few layers, whose output layer counts."""
    few: Model = catalog.load("models", model).model_copy(update={"layers": 2})
    setup = resolve(Job(model=few, **{**SMALL, **options}))
    return replace(setup, framework=setup.framework.model_copy(update={"laid_end_to_end": laid}))


def _one(setup: Setup) -> tuple[MicroBatch, dict[str, Any], dict[str, Any], dict[str, float]]:
    """A micro-batch on the last stage, and what it is composed of."""
    numbers, layout = stage_numbers(work_of(setup))[-1], layout_numbers(setup)
    timing = timing_of(setup).model_dump()
    return micro_batch(numbers, layout, timing), numbers, layout, timing


def test_layers_wait_for_the_host_and_the_output_layer_for_the_gpu() -> None:
    batch, numbers, layout, timing = _one(_setup())
    whole, ends = ([gpu_seconds(numbers, f"{phase}{part}", timing) for phase in PHASES] for part in ("", PART))
    hosts, theirs = (host_seconds(numbers, layout, timing, part) for part in ("", PART))
    assert hosts[0] - theirs[0] > 2 * (whole[0] - ends[0])  # the host sets the pace of layers, not of the output layer
    assert ends[0] > 1.5 * theirs[0]
    layers = phase_seconds(whole[0] - ends[0], hosts[0] - theirs[0], layout)
    assert batch.forward == pytest.approx(layers + phase_seconds(ends[0], theirs[0], layout))


def test_a_real_step_hides_the_output_layer_behind_a_host_that_is_late() -> None:
    laid, real = (_one(_setup(laid=way))[0] for way in (True, False))
    assert laid.forward > 1.1 * real.forward and laid.backward > real.backward


def test_both_agree_where_the_gpu_sets_the_pace_throughout() -> None:
    laid, real = (_one(_setup("gpt3-6.7b", laid=way, micro_batch=16, global_batch=256))[0] for way in (True, False))
    assert laid.forward == pytest.approx(real.forward, rel=0.01)
    assert laid.backward == pytest.approx(real.backward, rel=0.01)


def test_exchanges_of_layers_wait_for_the_same_host() -> None:
    batch = _one(_setup(tp=2))[0]
    assert 0 <= batch.exchange["tensor_parallel"] < 0.2 * (batch.forward + batch.backward)


@pytest.mark.parametrize("framework", ["megatron-deepspeed", "megatron-lm", "torchtitan"])
def test_others_know_no_such_part(framework: str) -> None:
    numbers = stage_numbers(work_of(resolve(Job(model="gpt2", **{**SMALL, "framework": framework}))))
    assert not any(PART in name for one in numbers for name in one)


def test_a_table_holds_both_kinds() -> None:
    setups = [_setup(), _setup(laid=False)]
    examples = [example_of(setup, 0.1, str(place), "nobody", 2023.0) for place, setup in enumerate(setups)]
    for order in (examples, examples[::-1]):
        stages = Table.of(order).stages[0]
        sums = stages[f"forward{PART}.matmul"]
        assert np.count_nonzero(sums) == 1 and sums[int(order[0].id != "0")] > 0


def test_a_table_of_real_steps_alone_lacks_them() -> None:
    examples = [example_of(_setup(laid=False), 0.1, str(place), "nobody", 2023.0) for place in range(2)]
    table = Table.of(examples)
    timing = timing_of(_setup(laid=False)).model_dump()
    together = compose(table.stages, table.layout, timing)["compute"]
    alone = compose(examples[0].stages, examples[0].layout, timing)["compute"]
    assert together == pytest.approx([alone, alone])


def test_an_explanation_tells_layers_and_ends_apart_and_sums_them() -> None:
    figures = {one["label"]: one for one in as_data(step_of(_setup()))}
    for words in PASSES:
        layers, ends, whole = (figures[f"{words}{part}"] for part in (", layers", ", embedding and output layer", ""))
        assert layers["formula"] == "paced_seconds"
        assert layers["value"] + ends["value"] == pytest.approx(whole["value"]) and ends["value"] > 0
    real = {one["label"]: one for one in as_data(step_of(_setup(laid=False)))}
    assert all(real[words]["formula"] == "paced_seconds" and f"{words}, layers" not in real for words in PASSES)
