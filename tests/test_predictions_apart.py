"""Layers of multi-token prediction on a stage before the loss, as Megatron-core places them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import distsim
from distsim.engine.exchanges.pipeline import SHAPE_BYTES, hop_flows, pipeline_flows, shape_flows
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.memory import memory_of
from distsim.engine.steps.pass_times import pass_times
from distsim.errors import DistsimError
from distsim.layers.mtp import SHARED_EMBEDDING
from distsim.layers.names import EMBEDDING_WEIGHT
from distsim.specs.job import Job
from distsim.specs.stage_layers import counted, parse, predicting, written

V3 = {"model": "deepseek-v3", "gpu": "h100-sxm", "gpus": 256, "pp": 4, "ep": 64, "seq": 4096, "global_batch": 256,
      "framework": "megatron-core", "zero": 1}  # fmt: skip
BESIDE, APART, BEHIND_LAYERS = "Et*20|t*21|t*20|mL", "Et*20|t*21|t*20m|L", "Et*30|t*31|m|L"
EMPTY = "Et*30|t*31m||L"


def _setup(text: str, **more: Any) -> Setup:
    return resolve(Job(**{**V3, **more}, stage_layers=text))


def _elements(stages: list[Stage]) -> Counter[str]:
    found: Counter[str] = Counter()
    for stage in stages:
        for parameter, times in stage.parameters:
            found[parameter.name] += round(parameter.elements * times)
    return found


def test_layouts_and_counts_say_where_predictions_are() -> None:
    assert (counted(parse(APART)), predicting(parse(APART))) == ((20, 21, 20, 0), -2)
    assert (counted(parse(EMPTY)), predicting(parse(EMPTY))) == ((30, 31, 0, 0), -3)
    assert predicting(parse(BESIDE)) is predicting(parse("4*15,1")) is None
    for text in ("20,21,20m,0", "15*4,1m,0", "3,...,2m,1"):
        assert written(parse(text)).replace("-1", "...") == text
    assert parse("20,21,20m,0") == parse(APART)
    for text, words in (("E|tm|mL", "all MTP layers m have to be in one part"), ("1m,1m,0", "in more than one part"),
                        ("E|tm|tL", "comes before the last layer t")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            parse(text)


@pytest.mark.parametrize("more", [{}, {"recompute": "full"}, {"model": "mimo-7b", "ep": 1}])
@pytest.mark.parametrize(("modules", "text"), [(1, APART), (1, BEHIND_LAYERS), (1, EMPTY), (2, APART), (2, EMPTY)])
def test_stages_hold_together_what_they_hold_beside_the_loss(modules: int, text: str, more: dict[str, Any]) -> None:
    """Parameters, floating-point operations and what a micro-batch keeps are on other stages, but no more."""
    if "model" in more:
        text = text.replace("20", "12").replace("21", "12").replace("30", "18").replace("31", "18")
    beside, apart = (
        _setup(one.replace("m", "m" * modules), **more) for one in (text.replace("m", "").replace("L", "mL"), text)
    )
    stages, moved = build_stages(beside), build_stages(apart)
    assert _elements(stages) == _elements(moved)
    assert sum(map(_flops, moved)) == pytest.approx(sum(map(_flops, stages)), rel=1e-12)
    kept = [sum(stage.saved.total for stage in memory_of(setup).stages) for setup in (beside, apart)]
    # the tokens of lookups and a norm's 4 bytes of each are remade with their layer where all layers are
    assert kept[1] == pytest.approx(kept[0], rel=0 if apart.layout.recompute_layers == 0 else 1e-4)


def _flops(stage: Stage) -> float:
    return float(sum(operation.flops_forward * times for operation, times in stage.operations()))


def test_its_stage_has_a_copy_of_the_embedding_and_the_last_one_only_losses() -> None:
    first, _, there, last = build_stages(_setup(APART))
    assert [p.name for p, _ in there.parameters].count(SHARED_EMBEDDING) == 1
    assert SHARED_EMBEDDING not in {p.name for p, _ in last.parameters}
    assert last.head is not None
    assert [row.name for row in last.head.operations] == ["head", "loss", "mtp.head", "mtp.loss"]
    hidden = 4096 * 7168 * 2
    # the hidden states that it received, and logits in bf16
    assert sum(t.size_bytes for row in last.head.operations for t in row.saved if "loss" not in t.name) == 2 * hidden
    elements = next(p.elements for p, _ in first.parameters if p.name == EMBEDDING_WEIGHT)
    for text, holders in ((BESIDE, (0, 3)), (APART, (0, 2)), (EMPTY, (0, 1))):
        setup = _setup(text)
        for stage in build_stages(setup):
            sums = [flow for flow in pipeline_flows(setup, stage) if flow.op == "all_reduce"]
            assert [flow.bytes_logical for flow in sums] == [elements * 2] * (stage.index in holders)


def test_a_tied_output_layer_is_a_third_copy() -> None:
    job = {"model": "qwen3-0.6b", "gpus": 8, "pp": 4, "mtp": 1, "zero": 1, "framework": "megatron-core"}
    beside, apart = (resolve(Job(**job, stage_layers=text)) for text in ("10,9,9,0", "10,9,9m,0"))
    first = next(p.elements for p, _ in build_stages(apart)[0].parameters if p.name == EMBEDDING_WEIGHT)
    sizes = [_elements(build_stages(setup)).total() for setup in (beside, apart)]
    assert sizes[1] - sizes[0] == first
    ranks = [
        [flow.span.ranks for flow in pipeline_flows(apart, stage) if flow.op == "all_reduce"]
        for stage in build_stages(apart)
    ]
    assert ranks == [[3], [], [3], [3]]


def test_hidden_states_of_modules_go_along_to_the_loss() -> None:
    size = 4096 * 7168 * 2

    def sent(text: str, **more: Any) -> list[dict[tuple[str, float], float]]:
        setup = _setup(text, **more)
        return [
            {(flow.phase, flow.bytes_logical / size): flow.calls for flow in pipeline_flows(setup, stage)
             if flow.purpose in ("pipeline activations", "pipeline gradients") and flow.calls}
            for stage in build_stages(setup)
        ]  # fmt: skip

    calls = 256 / (256 / 4)
    assert sent(BEHIND_LAYERS)[2:] == [{("forward", 2): calls, ("backward", 1): calls}, {("backward", 2): calls}]
    assert sent(EMPTY.replace("m", "mm"))[1:] == [
        {("forward", 3): calls, ("backward", 1): calls}, {("forward", 3): calls, ("backward", 3): calls},
        {("backward", 3): calls},
    ]  # fmt: skip
    # of two chunks only the second's message is wider, and the shape of each goes ahead
    text = "Et*10|t*10|t*10|t*10|t*10|t*10|tm|L"
    assert sent(text)[2] == {("forward", 1): calls, ("forward", 2): calls, ("backward", 1): 2 * calls}
    setup = _setup(text)
    found = pipeline_flows(setup, build_stages(setup)[2])
    assert sum(flow.calls for flow in found if flow.bytes_logical == SHAPE_BYTES) == 4 * calls
    assert [flow.bytes_logical / size for flow in hop_flows(setup)] == [1, 1, 1.5, 1]
    assert shape_flows(_setup(BESIDE)) == []


def test_a_stage_of_its_own_takes_the_time_of_what_it_runs() -> None:
    """The passes of all chunks take together what they took, and the last stage no longer waits for a layer."""
    beside, apart = (pass_times(_setup(text)) for text in (BESIDE, BEHIND_LAYERS))
    assert sum(apart["forward"]) == pytest.approx(sum(beside["forward"]), rel=0.01)
    assert sum(apart["backward"]) == pytest.approx(sum(beside["backward"]), rel=0.01)
    assert apart["forward"][3] < 0.8 * beside["forward"][3]
    assert apart["hop"][2] == pytest.approx(2 * apart["hop"][1], rel=0.1)
    even = [distsim.step(Job(**V3, stage_layers=text)) for text in ("Et*14|t*16|t*16|t*15mL", "Et*15|t*16|t*16|t*14mL")]
    assert even[1].seconds < even[0].seconds


def test_a_note_says_what_its_stage_has() -> None:
    told = [note for note in _setup(APART).notes if "MTP" in note]
    assert told == [
        "stage 2 has 1 MTP layer and a copy of the embedding, and sends 2 hidden states of each token on to the loss"
    ]
    assert not [note for note in _setup(BESIDE).notes if "MTP" in note]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stage_layers": "20,21,20m,0"}, "--mtp names none"),
        ({"stage_layers": APART, "framework": "megatron-deepspeed"}, "megatron-deepspeed has them on the last stage"),
        ({"stage_layers": "Et*30|t*31m|" + "|" * 5 + "L"}, "chunk 1 is not the last of its stage 1"),
        ({"stage_layers": "Et*61m|||L"}, "the first stage, which has the embedding"),
        ({"model": "nemotron-3-super", "mtp": 2, "stage_layers": "30,30,28m,0"}, "is a hybrid"),
    ],
)
def test_what_nobody_runs_is_said_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words) as caught:
        resolve(Job(**{**V3, **options}))
    assert str(caught.value).splitlines()[0].startswith("--stage-layers has MTP layers apart from the loss, but ")


def test_one_stage_has_them_all() -> None:
    assert _setup("Et*61mL", pp=1, gpus=64).mtp_chunk is None
