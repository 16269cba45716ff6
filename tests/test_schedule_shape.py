"""Ramp and held micro-batches of every schedule as the event simulation has them, for numbers and for arrays."""

from __future__ import annotations

import numpy
import pytest

import distsim
from distsim.engine.jobs.stages import build_stages
from distsim.engine.timelines.ramps import EVEN, THIRD, even_ramp, uneven_number, uneven_ramp
from distsim.engine.timelines.schedule_shape import ANY_NUMBER, ROUNDS, STEADY, in_flight
from distsim.errors import DistsimError
from distsim.schedules.registry import SCHEDULES
from distsim.specs.layout import Layout
from distsim.specs.rules import interleaves

NAMES = [name for name in SCHEDULES if name != "zb-auto"]


def ramp_share(
    schedule: str, stages: int, micro: int, chunks: int, forward: float = THIRD, weights: float = THIRD
) -> float:
    """What a named schedule idles over what 1F1B does with as many chunks, by the shares of a micro-batch that are its
    forward and its weights' gradients."""
    number = uneven_number(schedule, stages)
    if number:
        return float(uneven_ramp(number, stages, micro, chunks, forward, weights))
    return float(even_ramp(schedule, stages, micro, chunks))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 3), (4, 8), (4, 20), (6, 36)])
def test_as_the_event_simulation(name: str, stages: int, micro: int) -> None:
    chunks = SCHEDULES[name].default_chunks
    try:
        run = distsim.pipeline(stages, micro, name, chunks)
    except DistsimError:
        if name not in ANY_NUMBER:
            with pytest.raises(DistsimError):
                ramp_share(name, stages, micro, chunks)
        return
    ramp = (run.makespan - 3 * micro) / (3 * (stages - 1) / chunks)
    assert ramp_share(name, stages, micro, chunks) == pytest.approx(ramp, abs=1e-9)
    held = [in_flight(name, stages, micro, chunks, stage) for stage in range(stages)]
    assert held == pytest.approx(list(run.peak_in_flight))


@pytest.mark.parametrize("name", STEADY)
@pytest.mark.parametrize("stages", [2, 3, 4, 6])
def test_more_rounds_change_nothing(name: str, stages: int) -> None:
    if name == "dualpipe" and stages % 2:
        return
    few, many = (distsim.pipeline(stages, rounds * stages, name) for rounds in (ROUNDS, ROUNDS + 5))
    assert few.peak_in_flight == many.peak_in_flight


def test_arrays_of_layouts_and_of_schedules() -> None:
    names = ["1f1b", "gpipe", "interleaved-1f1b", "looped-bfs", "naive"]
    chunks = numpy.array([1, 1, 4, 2, 1]).reshape(-1, 1)
    micro = numpy.array([4, 8, 24])
    schedule = numpy.array(names).reshape(-1, 1)
    ramps, held = even_ramp(schedule, 4, micro, chunks), in_flight(schedule, 4, micro, chunks, 1)
    for row, name in enumerate(names):
        assert name in EVEN
        for column, m in enumerate(micro.tolist()):
            v = int(chunks[row, 0])
            assert ramps[row, column] == pytest.approx(ramp_share(name, 4, m, v))
            assert held[row, column] == pytest.approx(in_flight(name, 4, m, v, 1))


def test_a_v_puts_embedding_and_head_on_the_first_stage() -> None:
    common = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 4, "pp": 4, "vpp": 2, "global_batch": 16}
    folded = distsim.memory(distsim.Job(**common, schedule="zb-v")).stages
    looped = distsim.memory(distsim.Job(**common, schedule="looped-bfs")).stages
    sums = [sum(stage.categories["parameters"] for stage in stages) for stages in (folded, looped)]
    assert sums[0] == sums[1]
    assert folded[0].categories["parameters"] > folded[3].categories["parameters"] == folded[1].categories["parameters"]
    last = looped[3].categories["parameters"]
    assert looped[0].categories["parameters"] == pytest.approx(last, rel=1e-4)  # but for the final norm


@pytest.mark.parametrize("schedule", ["dualpipe", "chimera"])
def test_two_copies_of_the_model_take_their_weights_twice(schedule: str) -> None:
    common = {"model": "llama-7b", "gpu": "b200", "gpus": 8, "pp": 4, "global_batch": 32, "zero": 1}
    one = distsim.memory(distsim.Job(**common, schedule="1f1b")).stages
    two = distsim.memory(distsim.Job(**common, schedule=schedule)).stages
    for name in ("parameters", "gradients", "optimizer"):
        sums = [sum(stage.categories[name] for stage in stages) for stages in (one, two)]
        assert sums[1] == pytest.approx(2 * sums[0])
        assert two[0].categories[name] == pytest.approx(two[3].categories[name])  # each holds both ends
    sent = [
        sum(row.wire_bytes_per_rank for row in distsim.comm(distsim.Job(**common, schedule=name)).stages[1]
            if row.group in ("dp", "zero") and row.purpose in ("gradients", "parameters"))
        for name in ("1f1b", schedule)
    ]  # fmt: skip
    assert sent[1] == pytest.approx(2 * sent[0])


@pytest.mark.parametrize(("framework", "taken", "refused"), [
    ("megatron-lm", (4, 5, 8, 13), (1, 3)),
    ("megatron-2021", (4, 8), (3, 5, 13)),
    ("torchtitan", (1, 3, 5, 10), (9, 13)),
])  # fmt: skip
def test_frameworks_interleave_the_micro_batches_that_they_can_deal(
    framework: str, taken: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    common = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 4, "pp": 4, "vpp": 2, "framework": framework}
    for micro in taken:
        assert distsim.memory(distsim.Job(**common, global_batch=micro)).setup.layout.micro_batches == micro
    for micro in refused:
        with pytest.raises(DistsimError, match="cannot interleave"):
            distsim.step(distsim.Job(**common, global_batch=micro))
        distsim.step(distsim.Job(**{**common, "vpp": 1}, global_batch=micro))


def test_megatron_holds_the_group_that_it_takes() -> None:
    """Of 9 micro-batches over 4 stages groups of 5, whose last has 4; of 13 groups of 7, as 6 leave one and 5 three."""
    groups = {4: 4, 5: 5, 8: 4, 9: 5, 10: 5, 13: 7}
    for micro, group in groups.items():
        report = distsim.memory("llama-7b", gpu="h100-sxm", gpus=4, pp=4, vpp=2, global_batch=micro)
        drawn = distsim.pipeline(4, micro, "interleaved-1f1b-megatron", 2, group=group)
        held = [stage.in_flight for stage in build_stages(report.setup)]
        assert (held, drawn.makespan) == (list(drawn.peak_in_flight), pytest.approx(3 * micro + 3 * 3 / 2))
        told = [note for note in report.notes if f"--microbatch-group-size-per-virtual-pipeline-stage {group}" in note]
        assert len(told) == (micro % 4 > 0)
    with pytest.raises(DistsimError, match="in groups of 4") as caught:
        distsim.pipeline(4, 9, "interleaved-1f1b-megatron", 2)
    assert "try groups of 5" in caught.value.hints


def test_groups_are_those_stated_with_a_model_too() -> None:
    """Where stages do not divide the micro-batches, and the groups as large as there are stages had been refused."""
    drawn = distsim.pipeline(3, 7, "interleaved-1f1b-megatron", 5, group=4, model="llama-2-7b")
    alone = distsim.pipeline(3, 7, "interleaved-1f1b-megatron", 5, group=4)
    assert drawn.peak_in_flight == alone.peak_in_flight
    with pytest.raises(DistsimError, match="in groups of 5"):
        distsim.pipeline(3, 7, "interleaved-1f1b-megatron", 5, group=5, model="llama-2-7b")


def test_interleaving_rule_for_arrays() -> None:
    micro = numpy.arange(1, 18)
    layout = Layout(pp=4, vpp=2, schedule="interleaved-1f1b", micro_batches=micro)
    kept = micro[interleaves(layout)]
    assert kept.tolist() == [4, 5, 6, 7, 8, 10, 12, 15, 16]
    for m in kept.tolist():  # the schedule deals them as its closed forms say
        assert distsim.pipeline(4, m, "interleaved-1f1b", 2).makespan == pytest.approx(3 * m + 3 * 3 / 2)
    assert numpy.all(interleaves(layout.with_(schedule="1f1b")))


@pytest.mark.parametrize("name", ["zb-h1", "zb-v", "interleaved-zb", "1f1b"])
def test_frozen_weights_leave_nothing_to_fill_bubbles_with(name: str) -> None:
    """Adapters' gradients take next to no time: zero-bubble schedules then idle as long as 1F1B over as many chunks."""
    chunks = SCHEDULES[name].default_chunks
    run = distsim.pipeline(4, 16, name, chunks, forward=1.0, input_gradient=1.0, weight_gradient=0.01, backward=1.01)
    ramp = (run.makespan - 2.01 * 16) / (2.01 * 3 / chunks)
    assert ramp_share(name, 4, 16, chunks, 1 / 2.01, 0.01 / 2.01) == pytest.approx(ramp, abs=1e-9)
    options = {"gpu": "h100-sxm", "gpus": 8, "pp": 8, "lora_rank": 16, "global_batch": 16, "seq": 4096}
    plain, split = (distsim.step("llama-2-70b", schedule=one, **options).seconds for one in ("1f1b", "zb-h1"))
    assert split == pytest.approx(plain, rel=0.01)
