"""How process groups fall onto nodes: the worst of them, against a count of every rank."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy
import pytest
from shell import piped

import distsim
from distsim import catalog
from distsim.engine.exchanges.all_flows import network_of, stage_flows
from distsim.engine.exchanges.flows import Span
from distsim.engine.exchanges.reach import domain_gpus
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.networks.links import network_for
from distsim.engine.networks.pricing import price
from distsim.engine.networks.spread import spread
from distsim.engine.step import step_of
from distsim.engine.traffic import comm_of
from distsim.specs.job import Job

TP6: dict[str, Any] = {"model": "gpt3-175b", "gpu": "h100-sxm", "gpus": 24, "tp": 6, "global_batch": 64, "seq": 1536}


def counted(ranks: int, stride: int, blocks: int, domain: int) -> list[tuple[int, int]]:
    """(fewest ranks on a domain, domains) of every group."""
    found = []
    for first in (block * ranks * stride + at for block in range(blocks) for at in range(stride)):
        domains = Counter((first + index * stride) // domain for index in range(ranks))
        found.append((min(domains.values()), len(domains)))
    return found


def test_the_worst_group_is_found() -> None:
    draw = random.Random(3)
    for _ in range(3000):
        ranks, stride, blocks, domain = (draw.randint(1, most) for most in (24, 12, 5, 16))
        domains, fewest = spread(ranks, stride, ranks * stride * blocks, domain, domain)
        worst = min(counted(ranks, stride, blocks, domain), key=lambda one: (one[0], -one[1]))
        assert (fewest, domains) == worst, (ranks, stride, blocks, domain)


@pytest.mark.parametrize(("domain", "node"), [(8, 8), (72, 4), (6, 0)])
def test_arrays_are_spread_like_numbers(domain: int, node: int) -> None:
    draw = numpy.random.default_rng(5)
    ranks, stride, blocks = draw.integers(1, 20, (3, 200))
    together = spread(ranks, stride, ranks * stride * blocks, domain, node)
    for index, sizes in enumerate(zip(ranks.tolist(), stride.tolist(), blocks.tolist(), strict=True)):
        alone = spread(sizes[0], sizes[1], sizes[0] * sizes[1] * sizes[2], domain, node)
        assert (together[0][index], together[1][index]) == alone


def in_nodes_of(size: int, **options: Any) -> Setup:
    cluster = catalog.usual_cluster("h100-sxm").adapted(gpus_per_node=size)
    return resolve(Job(**{**TP6, **options}), {"cluster": cluster})


def links(setup: Setup) -> set[str]:
    return {str(row.link) for row in comm_of(setup).collectives if row.group == "tp"}


def test_groups_that_do_not_divide_a_node_are_priced_across() -> None:
    assert links(in_nodes_of(8)) == links(in_nodes_of(4)) == links(in_nodes_of(16)) == {"ib-ndr"}
    assert links(in_nodes_of(12)) == links(in_nodes_of(6)) == links(in_nodes_of(72)) == {"nvlink-4"}
    assert links(in_nodes_of(8, gpus=6)) == {"nvlink-4"}  # of six there is one group
    assert all(row.level_bytes[0] > 0 for row in comm_of(in_nodes_of(8)).collectives if row.group == "tp")
    apart, near = (step_of(in_nodes_of(size)).breakdown["tensor_parallel"] for size in (8, 12))
    assert apart > 4 * near


def test_the_smaller_part_of_a_group_sets_its_rate() -> None:
    """Six ranks as two and four: two NICs carry what each ring sends."""
    net = network_for("h100-sxm")
    span = Span("tp", 6, 1, world=24)
    assert (span.placed(net).nodes, span.placed(net).least) == (2, 2)
    bus = 5 / 6 * 2**32 / float(price("all_gather", 2.0**32, span.placed(net)).seconds)
    assert bus == pytest.approx(2 * 48e9, rel=0.05)
    assert span._replace(ranks=4).placed(net).nodes == 1


def test_bytes_between_nodes_are_those_of_pairs_apart() -> None:
    group = Span("ep", 6, 1, world=24).placed(network_for("h100-sxm"))
    apart = sum((one < 2) != (other < 2) for one in range(6) for other in range(6))
    assert 6 * (group.ranks - group.near) == pytest.approx(apart)


def test_a_rack_is_filled_with_whole_groups() -> None:
    """Of 72 GPUs 64 are taken where groups have 64: inside a rack, and the next stage is in another one."""
    net = network_for("gb200")
    assert net.domain == 72
    assert Span("ep", 64, 1, world=256).placed(net).nodes == 1
    assert (Span("dp", 128, 1, world=128).placed(net).nodes, Span("dp", 128, 1, world=128).placed(net).least) == (2, 64)
    stages = [Span("pp", 2, 32, (32 * one, 32 * one + 32)).placed(net).nodes for one in range(3)]
    assert stages == [1, 2, 1]
    assert Span("pp", 2, 24, (24, 48)).placed(net).nodes == 1


def test_stages_whose_ranks_straddle_nodes_send_across() -> None:
    net = network_for("h100-sxm")
    assert Span("pp", 2, 3, (0, 3)).placed(net).nodes == 1
    assert Span("pp", 2, 3, (3, 6)).placed(net).nodes == 2  # rank 5 sends to rank 8


def test_every_exchange_knows_how_many_ranks_there_are() -> None:
    """Else a border that no group of the job crosses would be priced."""
    job = Job(model="mixtral-8x7b", gpu="h100-sxm", gpus=32, tp=2, pp=2, cp=2, ep=2, zero=1, micro_batch=1,
              global_batch=16)  # fmt: skip
    setup = resolve(job)
    for stage in build_stages(setup):
        for flow in stage_flows(setup, exchange_of(setup), network_of(setup), stage):
            assert flow.span.world == 32 or flow.span.ends is not None, flow.purpose


@pytest.mark.parametrize("command", ["step", "comm"])
def test_a_note_tells_of_groups_on_two_nodes(command: str) -> None:
    words = [command, "gpt2", "--gpu", "h100-sxm", "--gpus", "24", "--tp", "6", "--global-batch", "64",
             "--seq", "768"]  # fmt: skip
    told = " ".join(piped(*words).stderr.split())
    assert "6 neighbouring GPUs do not divide the 8 of a node, so some groups span two" in told
    words[words.index("6")] = "4"
    assert "neighbouring" not in piped(*words).stderr


def test_zero_plus_plus_needs_as_many_ranks_on_each_node() -> None:
    with pytest.raises(distsim.DistsimError, match="equally many data parallel ranks on each node"):
        distsim.comm("gpt2", gpu="h100-sxm", gpus=12, zero=3, zeropp="hpz", framework="deepspeed")


def test_memory_refuses_the_zero_plus_plus_that_traffic_refuses() -> None:
    """hpZ's second copy was priced where no such group is; where it is, a node's ranks share the parameters."""
    job: dict[str, Any] = {"model": "gpt2", "gpu": "h100-sxm", "zero": 3, "framework": "deepspeed"}
    for layout in ({"gpus": 12}, {"gpus": 8}, {"gpus": 48, "tp": 3, "sequence_parallel": False}, {"gpus": 48, "tp": 2}):
        for ask in (distsim.memory, distsim.comm, distsim.step):
            with pytest.raises(distsim.DistsimError, match=r"ZeRO\+\+|--zeropp"):
                ask(**job, **layout, zeropp="hpz")
    plain, copied = (distsim.memory(**job, gpus=48, **more).stages[0].categories["buffers"]
                     for more in ({}, {"zeropp": "hpz"}))  # fmt: skip
    assert copied - plain == pytest.approx(2 * 124_439_808 / 8)


@pytest.mark.parametrize(("layout", "each", "racks"), [
    ({"ep": 64, "etp": 1}, 64, 16), ({"ep": 64, "etp": 1, "tp": 8, "pp": 2}, 64, 16), ({"ep": 16, "etp": 1}, 64, 16),
    ({"ep": 8, "etp": 1, "tp": 8}, 72, 15), ({"ep": 128, "etp": 1}, 72, 15), ({}, 72, 15),
    ({"zero": 3, "zero_group": 32}, 64, 16),
])  # fmt: skip
def test_racks_are_counted_as_their_groups_are_priced(layout: dict[str, Any], each: int, racks: int) -> None:
    """No group that is priced inside of one rack lies on two where so many GPUs of each are taken."""
    job = {"model": "qwen3.5-397b-a17b", "cluster": "gb200-nvl72", "gpus": 1024, "seq": 4096, **layout}
    setup = resolve(Job(**job))
    assert domain_gpus(setup) == each
    exchange, network = exchange_of(setup), network_of(setup)
    for stage in build_stages(setup):
        for flow in stage_flows(setup, exchange, network, stage):
            span = flow.span
            if span.ends is None and span.placed(network).nodes == 1:
                blocks = 1024 // (span.ranks * span.stride)
                assert all(domains == 1 for _, domains in counted(span.ranks, span.stride, blocks, each))
    words = [word for name, value in layout.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    shown = piped("comm", job["model"], "--cluster", "gb200-nvl72", "--gpus", "1024", "--seq", "4096", *words).stdout
    assert f"{racks} domains of {each if each < 72 else 'up to 72'} GPUs" in shown
    assert ("(72 in each)" in shown) == (each < 72)


def test_a_rack_that_holds_the_job_is_one_domain() -> None:
    job = Job(model="qwen3.5-397b-a17b", cluster="gb200-nvl72", gpus=64, ep=32, seq=4096, zero=3)
    assert domain_gpus(resolve(job)) == 64
