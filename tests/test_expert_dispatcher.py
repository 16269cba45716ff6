"""How tokens are sent to experts, as a job asks for it: each to all of its experts, or once to each node."""

import csv
import functools
import math
import statistics
from pathlib import Path

import pytest

import distsim
from distsim.engine.advice.faster import advise
from distsim.engine.exchanges.all_flows import network_of, price_of, stage_flows
from distsim.engine.exchanges.flows import Flow
from distsim.engine.exchanges.sent_once import dispatchers
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.networks.network import Network
from distsim.engine.step import seconds_of, step_of
from distsim.engine.traffic import comm_of
from distsim.errors import DistsimError
from distsim.formulas.traffic import chunk_by_chunk_seconds
from distsim.specs.job import Job

EXPERTS = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 32, "ep": 32, "zero": 1, "seq": 4096,
           "global_batch": 256}  # fmt: skip

HIDDEN, WIDTHS = 7168, {"bf16": 2.0, "fp8": 1 + 4 / 128}
"""Bytes of an element, in eight bits with a scale of four bytes for 128."""
with (Path(__file__).parent / "oracles" / "expert_exchanges.csv").open(encoding="utf-8") as file:
    MEASURED = list(csv.DictReader(file))


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


@functools.cache
def sent_to_experts(cluster: str, ranks: int) -> tuple[Flow, Network]:
    """DeepEP's exchange over so many ranks, whatever the width of its rows."""
    resolved = resolve(Job(model="kimi-k2", cluster=cluster, gpus=ranks, ep=ranks, seq=4096, global_batch=ranks, zero=1,
                           framework="megatron-core", expert_dispatcher="deepep"))  # fmt: skip
    network = network_of(resolved)
    flows = stage_flows(resolved, exchange_of(resolved), network, build_stages(resolved)[0])
    return next(flow for flow in flows if flow.purpose == "expert dispatch"), network


def over_measured(row: dict[str, str]) -> float:
    """Predicted over measured time of kernels alone. As their own tests count, a token's own node is one of its nodes.
    Chunks of dispatch and combine are those that a library comes with; blank: the best found by trying, or none."""
    rows = int(row["tokens"]) * float(row["nodes"])
    flow, network = sent_to_experts(row["cluster"], int(row["ranks"]))
    nodes = flow.span.placed(network).nodes

    def seconds(width: float, chunk: str) -> float:
        size = rows * HIDDEN * width
        copies = flow.floors[0].arguments["size_bytes"] * size / flow.bytes_logical
        inside = flow.floors[0]._replace(arguments={**flow.floors[0].arguments, "size_bytes": copies})
        told = float(price_of(flow._replace(bytes_logical=size, floors=(inside,)), network).seconds)
        if not chunk:
            return told
        away = rows * (nodes - 1) / nodes
        return max(
            told, chunk_by_chunk_seconds(away, float(chunk), dispatchers()["deepep"]["channels"], 2 * network.hop)
        )

    width, (there, back) = WIDTHS[row["dtype"]], row["chunks"].split("/") if row["chunks"] else ("", "")
    told = seconds(width, there) + (seconds(WIDTHS["bf16"], back) if row["kernel"] == "both" else 0.0)
    return told / (float(row["us"]) / 1e6 if row["us"] else rows * HIDDEN * width / float(row["gb_s"]) / 1e9)


def test_kernels_that_send_tokens_once_take_what_was_measured() -> None:
    """Of five publishers. Where nothing waits for a signal, links between nodes, on H800 those of a node, say the
    time; on EFA through proxies of the CPU a tenth is missing, and more by UCCL on two nodes and on p5."""
    found: dict[str, list[float]] = {}
    for row in MEASURED:
        library = row["library"].removesuffix(" NVSHMEM")
        proxies = (
            library in ("DeepEP", "UCCL") and sent_to_experts(row["cluster"], int(row["ranks"]))[1].ordered is False
        )
        found.setdefault(library if proxies else "paced by links", []).append(over_measured(row))
    paced, deepep, uccl = found["paced by links"], found["DeepEP"], found["UCCL"]
    assert len(paced) == 33 and statistics.median(paced) == pytest.approx(1.0, abs=0.01)
    assert all(0.77 < one < 1.16 for one in paced)
    assert all(0.66 < one < 1.02 for one in deepep) and statistics.median(deepep) == pytest.approx(0.89, abs=0.01)
    assert max(uccl) < 1.1 and statistics.median(uccl) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(("library", "least", "most"), [("DeepEP NVSHMEM", 0.88, 0.93), ("UCCL", 0.99, 1.02)])
def test_chunks_wait_for_each_other_on_a_network_without_order(library: str, least: float, most: float) -> None:
    """Four nodes of B200, each library's own chunks: eight tokens, or 32 on the way there and eight on the way back.
    Links alone would say 0.5 to 0.8."""
    for row in MEASURED:
        if row["library"] == library and row["chunks"] and row["ranks"] == "32":
            assert least < over_measured(row) < most
            assert over_measured({**row, "chunks": ""}) < 0.85


def test_chunks_are_in_the_mean_those_of_dispatch_and_combine() -> None:
    most, rows = zip(*dispatchers()["deepep"]["chunk_rows"], strict=True)
    assert most == (16, 64, 160) and list(rows) == [
        statistics.harmonic_mean(pair) for pair in ((20, 12), (8, 8), (12, 8))
    ]


def test_experts_over_efa_take_longer_and_searches_know() -> None:
    """Small rows on four nodes of p5: 2,048 tokens a rank, of which 3.6 copies leave for three of four nodes."""
    job = {
        **EXPERTS,
        "gpu": None,
        "framework": "megatron-core",
        "expert_dispatcher": "deepep",
        "tp": 2,
        "micro_batch": 1,
    }
    efa, band = ({**job, "cluster": name} for name in ("p5.48xlarge", "dgx-h100"))
    rows = {row["purpose"]: row for row in distsim.comm(**efa).to_dict()["collectives"]}
    sent = rows["expert dispatch"]
    away = 2048 * 4 * (1 - math.comb(96, 8) / math.comb(128, 8)) * 3 / 4
    assert sent["seconds"] / sent["calls"] == pytest.approx(away / 8 / 10 * 50e-6, rel=1e-6)
    assert distsim.step(**efa).seconds > 1.05 * distsim.step(**band).seconds
    for one in distsim.search(**{**efa, "ep": [16, 32], "pp": 1, "cp": 1}, top=50).best:
        assert one.found.seconds == pytest.approx(one.report.seconds, rel=1e-9)
