"""Where a token's copies go: drawn at random or in turn, to each expert or once to each rank and node."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

import distsim
from distsim import Job
from distsim.engine.exchanges.all_flows import network_of, stage_flows
from distsim.engine.exchanges.flows import Flow
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.runs.setup import setup_of
from distsim.formulas.traffic import distinct_copies
from distsim.interop.runs import Run
from distsim.specs.experts import Experts
from tests.test_recipes import changed, first_stage

CONFIGS = Path(__file__).parent / "oracles" / "torch_mixtures_configs.json"
SHAPES = [(128, 8, 8), (256, 64, 8), (128, 64, 4), (384, 32, 8), (384, 32, 6), (8, 4, 3), (8, 2, 7), (64, 4, 6)]
CELLS = {
    "source": "a table", "model": "qwen3-30b-a3b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "4096",
    "micro_batch": "1", "ep": "8", "tp": "1", "pp": "1", "cp": "1", "dp": "8", "global_batch": "8",
    "precision": "bf16", "framework": "megatron-core", "year": "2026",
}  # fmt: skip


def in_turn(experts: int, choices: int, tokens: int) -> numpy.ndarray:
    """Experts of each token, one token's after the other's."""
    return numpy.arange(tokens * choices).reshape(tokens, choices) % experts


@pytest.mark.parametrize(("experts", "ranks", "choices"), SHAPES)
def test_turns_as_counted_token_by_token(experts: int, ranks: int, choices: int) -> None:
    """Every rank sends alike, so what it sends to each peer is what it gets back, and copies are those of the law."""
    tokens = math.lcm(experts, choices)
    held = experts // ranks
    reached = numpy.zeros((tokens, ranks), dtype=bool)
    numpy.put_along_axis(reached, in_turn(experts, choices, tokens) // held, True, axis=1)
    assert reached.sum() / (tokens * choices) == pytest.approx(distinct_copies(held, experts, choices, True))
    assert len(set(reached.sum(axis=0).tolist())) == 1  # each rank gets as many
    each = numpy.bincount(in_turn(experts, choices, tokens).ravel() // held, minlength=ranks)
    assert len(set(each.tolist())) == 1  # sent to each expert too: all-to-all does not see the order


@pytest.mark.parametrize(("experts", "ranks", "choices"), [(8, 4, 3), (8, 2, 7), (12, 3, 2), (10, 10, 4)])
def test_draws_as_counted_over_all_of_them(experts: int, ranks: int, choices: int) -> None:
    held = experts // ranks
    draws = list(itertools.combinations(range(experts), choices))
    distinct = sum(len({one // held for one in draw}) for draw in draws) / len(draws)
    assert distinct / choices == pytest.approx(distinct_copies(held, experts, choices, False))


def test_published_counts() -> None:
    """DeepSeek-V3 over 64 ranks and eight nodes: in turn two ranks of one node, at random 5.3 nodes; arrays alike."""
    assert 8 * distinct_copies(4, 256, 8, True) == 2
    assert 8 * distinct_copies(32, 256, 8, True) == 1
    assert 8 * distinct_copies(32, 256, 8, False) == pytest.approx(8 * (1 - math.comb(224, 8) / math.comb(256, 8)))
    assert distinct_copies(128, 128, 8, False) == distinct_copies(128, 128, 8, True) == 1 / 8
    held = numpy.array([4, 32, 256])
    for order in (True, False):
        found = distinct_copies(held, 256, 8, order)
        assert found.tolist() == pytest.approx([distinct_copies(one, 256, 8, order) for one in held.tolist()])


def limited_draws(experts: int, choices: int, groups: int, chosen: int) -> numpy.ndarray:
    """Experts of tokens whose router takes the groups with the largest sums of their best scores, then the best."""
    scores = numpy.random.default_rng(0).random((4_000, groups, experts // groups))
    best = numpy.sort(scores, axis=2)[:, :, -(choices // chosen) :].sum(axis=2)
    left_out = numpy.argsort(best, axis=1)[:, : groups - chosen]
    numpy.put_along_axis(scores, left_out[:, :, None], -1.0, axis=1)
    return numpy.argsort(scores.reshape(len(scores), experts), axis=1)[:, -choices:]


@pytest.mark.parametrize(("experts", "choices", "groups", "chosen"), [(256, 8, 8, 4), (160, 6, 8, 3)])
@pytest.mark.parametrize("destinations", [2, 4, 8, 16, 32])
def test_groups_that_are_chosen_first(experts: int, choices: int, groups: int, chosen: int, destinations: int) -> None:
    """DeepSeek-V3 sends a token to four nodes of eight at most, V2 to three: as a router does it, token by token."""
    drawn = limited_draws(experts, choices, groups, chosen) // (experts // destinations)
    reached = numpy.zeros((len(drawn), destinations), dtype=bool)
    numpy.put_along_axis(reached, drawn, True, axis=1)
    law = choices * distinct_copies(experts // destinations, experts, choices, False, groups, chosen)
    assert law == pytest.approx(reached.sum() / len(drawn), rel=0.06)
    assert law <= choices * distinct_copies(experts // destinations, experts, choices, False)


def test_all_in_one_group_is_no_limit() -> None:
    for held in (1, 4, 32, 256):
        free = distinct_copies(held, 256, 8, False)
        assert distinct_copies(held, 256, 8, False, 1, 1) == free
    assert 8 * distinct_copies(numpy.array([4, 32]), 256, 8, False, 8, 4)[1] == pytest.approx(4)


def test_deepseek_reaches_four_nodes() -> None:
    """Over eight nodes of H100 by DeepEP; NCCL's all-to-all sends a copy to each expert, whatever its group."""
    at = {"model": "deepseek-v3", "gpus": 64, "ep": 64, "global_batch": 64}
    each, once = job("megatron-core", **at), job("megatron-bridge", **at)
    assert dispatched(once) / dispatched(each) == pytest.approx(4 / 8)


def test_a_node_passes_tokens_on_to_its_ranks() -> None:
    """DeepSeek-V3 over eight nodes by DeepEP: a token crosses to 3.5 other nodes, and reaches 7.6 ranks, of which the
    one that it came by is an eighth."""
    options = {"gpus": 64, "ep": 64, "global_batch": 64, "seq": 4096, "gpu": "h100-sxm", "framework": "megatron-bridge"}
    row = next(one for one in distsim.comm("deepseek-v3", **options).collectives if one.purpose == "expert dispatch")
    token = row.calls * 4096 * 7168 * 2
    reached = 4 * 8 * (1 - math.comb(28, 2) / math.comb(32, 2))
    assert row.level_bytes[0] / token == pytest.approx(3.5)
    assert (row.wire_bytes_per_rank - row.level_bytes[0]) / token == pytest.approx(reached * 7 / 8)


def test_groups_of_a_configuration(tmp_path: Path) -> None:
    """DeepSeek's files state them; a greedy router has none, nor has one group."""
    known = json.loads(CONFIGS.read_text())["dsv32"]
    for more, found in (({}, (8, 4)), ({"topk_method": "greedy"}, (1, 1)), ({"n_group": 1, "topk_group": 1}, (1, 1))):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**known, **more}))
        experts = distsim.load_model(str(path)).spec.experts
        assert experts is not None and (experts.groups, experts.groups_per_token) == found


@pytest.mark.parametrize(
    ("groups", "chosen", "message"),
    [(7, 1, "do not divide"), (8, 9, "must not be more"), (64, 1, "more than the 4 experts")],
)
def test_groups_that_cannot_be(groups: int, chosen: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Experts(count=256, per_token=8, ffn=2048, groups=groups, groups_per_token=chosen)


def job(framework: str, **more: Any) -> Setup:
    options = {"model": "qwen3-235b-a22b", "gpu": "h100-sxm", "gpus": 32, "ep": 32, "global_batch": 32, "seq": 4096}
    return resolve(Job(**{**options, "framework": framework, **more}))


def dispatched(setup: Setup) -> float:
    def sent(flow: Flow) -> float:
        return float(flow.bytes_logical * flow.calls) if flow.purpose == "expert dispatch" else 0.0

    found = stage_flows(setup, exchange_of(setup), network_of(setup), build_stages(setup)[0])
    return sum(sent(flow) for flow in found)


def test_a_token_goes_once_to_a_node() -> None:
    """DeepEP over four nodes: of eight choices 3.6 nodes are distinct, in turn one; NCCL's all-to-all sends eight."""
    each, once = job("megatron-core"), job("megatron-bridge")
    assert dispatched(once) / dispatched(each) == pytest.approx(distinct_copies(32, 128, 8, False))
    turns = changed(once, router="round-robin")
    assert dispatched(turns) / dispatched(each) == pytest.approx(1 / 8)
    assert dispatched(changed(each, router="round-robin")) == dispatched(each)


def test_turns_give_every_expert_as_many() -> None:
    setup = job("megatron-bridge")
    drawn, turns = (first_stage(changed(setup, router=router)) for router in ("balanced", "round-robin"))
    assert turns["forward.grouped"] <= drawn["forward.grouped"] < first_stage(setup)["forward.grouped"]
    assert turns["ep_forward"] < 0.4 * drawn["ep_forward"]


@pytest.mark.parametrize(
    ("notes", "framework", "router"),
    [
        ("force-balanced", "megatron-bridge", "balanced"),
        ("--moe-router-force-load-balancing", "megatron-core", "balanced"),
        ("moe_router_force_load_balancing", "megatron-core", "balanced"),
        ("even routing (round robin)", "megatron-core", "round-robin"),
        ("moe_force_load_balance", "torchtitan", "round-robin"),
        ("nothing said", "torchtitan", "learned"),
    ],
)
def test_notes_and_frameworks_tell_how_routers_are_balanced(notes: str, framework: str, router: str) -> None:
    setup = setup_of(Run({**CELLS, "framework": framework, "notes": notes}, 1))
    assert setup.kernels.router == router


def test_notes_name_the_library_that_sends_once() -> None:
    plain, deep = (setup_of(Run({**CELLS, "notes": notes}, 1)) for notes in ("", "DeepEP, fused"))
    assert (plain.framework.traffic.expert_copies, plain.kernels.expert_order) == ("each", "around")
    assert (deep.framework.traffic.expert_copies, deep.kernels.expert_order) == ("once", "fused")
    assert dispatched(deep) < dispatched(plain)
    assert dispatched(replace(deep, framework=plain.framework)) == dispatched(plain)


def test_automodel_runs_experts_on_transformer_engine_and_all_else_with_liger() -> None:
    experts, dense = job("automodel"), job("automodel", model="llama-3.1-8b", ep=1)
    assert experts.framework.name == "nemo-automodel"
    assert experts.precision.state_bytes == experts.precision.parameter_bytes == 2
    assert (experts.kernels.attention_kernel, dense.kernels.attention_kernel) == ("own", "flash-2")
    assert (experts.kernels.expert_products, experts.kernels.expert_counts) == ("loop", "host")
    assert (experts.kernels.loss_upcast, dense.kernels.loss_upcast) == (False, True)
    assert {experts.kernels.norm, dense.kernels.norm, experts.kernels.rope, dense.kernels.rope} == {"fused"}
    each = replace(experts, framework=job("torchtitan").framework)
    assert dispatched(experts) < dispatched(each)
    replayed = setup_of(Run({**CELLS, "framework": "NeMo AutoModel", "notes": "fake balanced gate"}, 1))
    assert (replayed.framework.name, replayed.kernels.router) == ("nemo-automodel", "round-robin")
