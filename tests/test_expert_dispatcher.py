"""How tokens are sent to experts, as a job asks for it: each to all of its experts, or once to each node."""

import math

import pytest

import distsim
from distsim.engine.advice.faster import advise
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.step import seconds_of, step_of
from distsim.engine.traffic import comm_of
from distsim.errors import DistsimError
from distsim.specs.job import Job

EXPERTS = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 32, "ep": 32, "zero": 1, "seq": 4096,
           "global_batch": 256}  # fmt: skip


def setup(**more: object) -> Setup:
    return resolve(Job(**{**EXPERTS, **more}))


def to_other_nodes(**more: object) -> float:
    """Bytes that one rank sends to experts of other nodes in a step."""
    flows = distsim.comm(**{**EXPERTS, **more}).to_dict()["collectives"]
    return sum(flow["level_bytes"][0] for flow in flows if flow["purpose"] in ("expert dispatch", "expert combine"))


def test_tokens_that_go_once_to_each_node_send_as_many_copies_as_nodes_are_chosen() -> None:
    """128 experts on four nodes, of which a token has eight: a node is left out if all are among the other 96."""
    each, once = to_other_nodes(expert_dispatcher="alltoall"), to_other_nodes(expert_dispatcher="deepep")
    nodes = 4 * (1 - math.comb(96, 8) / math.comb(128, 8))
    assert once / each == pytest.approx(nodes / 8, rel=1e-6)
    assert to_other_nodes() == each


def test_gathering_all_tokens_is_cheaper_among_fewer_ranks_than_a_token_has_experts() -> None:
    """Each rank of four takes the tokens of four, where eight copies of its own tokens leave; of 32, those of 32.
    tests/oracles/megatron_core.md has the calls."""
    for ranks in (4, 32):
        job = {"framework": "megatron-core", "ep": ranks, "expert_imbalance": 1.0}
        each, all_tokens = (setup(**job, expert_dispatcher=name) for name in ("alltoall", "allgather"))
        sent = [
            sum(row.calls * row.bytes_per_call for row in comm_of(one).stages[0] if row.purpose == "expert dispatch")
            for one in (each, all_tokens)
        ]
        assert sent[1] / sent[0] == ranks / 8
        assert ranks > 4 or seconds_of(all_tokens) < seconds_of(each)
        assert all_tokens.to_dict()["expert_dispatcher"] == "allgather"
    with pytest.raises(DistsimError, match="not what its allgather dispatcher does"):
        setup(framework="megatron-core", expert_dispatcher="allgather", expert_overlap=True)


def test_a_recipe_with_one_way_is_told_to_take_the_other() -> None:
    bridge = {"framework": "megatron-bridge", "gpus": 64, "ep": 32}
    own, other = setup(**bridge), setup(**bridge, expert_dispatcher="alltoall")
    assert own.to_dict()["expert_dispatcher"] == "deepep" and other.to_dict()["expert_dispatcher"] == "alltoall"
    assert seconds_of(other) > seconds_of(own)
    core = {"gpus": 64, "ep": 32, "framework": "megatron-core"}
    assert setup(**core).to_dict()["expert_dispatcher"] == "alltoall"
    assert seconds_of(setup(**core, expert_dispatcher="deepep")) < seconds_of(setup(**core))


def test_racks_of_several_nodes_have_hybridep() -> None:
    rack = setup(gpu="gb200", framework="megatron-bridge")
    assert rack.to_dict()["expert_dispatcher"] == "hybridep"
    assert "expert_dispatcher" not in setup(ep=1).to_dict()


def test_it_is_proposed_where_it_is_faster_and_not_twice() -> None:
    named = {one.options.get("expert_dispatcher"): one for one in advise(step_of(setup()))}
    assert named["deepep"].seconds == seconds_of(setup(expert_dispatcher="deepep"))
    again = advise(step_of(setup(expert_dispatcher="deepep")))
    assert not any("expert_dispatcher" in one.options for one in again)


@pytest.mark.parametrize(
    ("more", "problem", "hint"),
    [
        ({"model": "llama-7b", "ep": None}, "llama-7b has no experts", "leave --expert-dispatcher out"),
        ({"gpu": "rtx-4090"}, "needs links between GPUs", "--expert-dispatcher alltoall"),
        ({"gpu": "v100-sxm2-32gb", "precision": "fp16"}, "v100-sxm2-32gb lacks that", "--expert-dispatcher alltoall"),
        ({"framework": "deepspeed"}, "deepspeed has no expert dispatcher deepep", "e.g. megatron-core"),
    ],
)
def test_what_has_none_is_refused(more: dict[str, object], problem: str, hint: str) -> None:
    with pytest.raises(DistsimError, match=problem) as told:
        setup(expert_dispatcher="deepep", **more)
    assert hint in " ".join(told.value.hints)


@pytest.mark.parametrize(("framework", "other"), [("megatron-core", "deepep"), ("megatron-bridge", "alltoall")])
def test_it_has_no_effect_on_one_rank(framework: str, other: str) -> None:
    alone = {"ep": 1, "gpus": 32, "framework": framework}
    step = step_of(setup(**alone, expert_dispatcher=other))
    assert f"--expert-dispatcher {other} has no effect with ep 1" in step.notes
    assert step.seconds == seconds_of(setup(**alone))


def test_a_search_has_the_times_of_a_step_with_experts_on_one_rank() -> None:
    job = {**EXPERTS, "gpu": "gb200", "ep": [1, 2], "tp": 1, "pp": 1, "cp": 1, "zero": 3, "micro_batch": 1}
    found = distsim.search(**job, expert_dispatcher="alltoall", framework="megatron-bridge", top=50).best
    assert {one.report.setup.layout.ep for one in found} == {1, 2}
    for one in found:
        assert one.found.seconds == pytest.approx(one.report.seconds, rel=1e-9)


def test_deepseek_v3_as_it_was_trained() -> None:
    """2.664 million GPU hours for 14.8T tokens on 2,048 H800 (DeepSeek-AI 2024, arXiv:2412.19437, table 1): 19.9 s a
    step of 15,360 sequences, with 16 stages, experts on 64 ranks, DualPipe, 8 bits and tokens sent once per node."""
    measured = 2.664e6 * 3600 / 14.8e12 * 15360 * 4096 / 2048
    job = Job(
        model="deepseek-v3", gpu="h800-sxm", gpus=2048, seq=4096, pp=16, ep=64, etp=1, zero=1, global_batch=15360,
        precision="fp8", schedule="dualpipe", recompute_modules="moe_act,layernorm,mla_up_proj",
        expert_dispatcher="deepep",
    )  # fmt: skip
    assert step_of(resolve(job)).seconds == pytest.approx(measured, rel=0.12)
