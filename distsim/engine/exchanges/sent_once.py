"""Exchanges of experts that send a token once to each node, which passes it on to the ranks of its experts (DeepEP), or
once to each rank of a rack (HybridEP): what travels, and what keeps it from the rate of the links between nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim import catalog
from distsim.arrays import Number, where
from distsim.engine.exchanges.flows import Floor, Flow
from distsim.engine.jobs.dispatch import tokens_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.networks.links import link_rate
from distsim.engine.networks.network import Group, Network
from distsim.formulas.traffic import chunk_by_chunk_seconds, copy_seconds, distinct_copies, node_copies_passed_on
from distsim.last import while_same

DISPATCHERS = "dispatchers"
OWN_SHARE = 0.64
"""Rate of HybridEP's kernels over that of the links, however many ranks share a rack: bf16 tokens at 612 GB/s and back
at 543 with 16 units and 36 ranks of GB200, 750 and 684 with 8 (deepseek-ai/DeepEP, README of Hybrid-EP, kernels
alone), where NCCL's all-to-all falls from 660 to 480 between 8 and 64 ranks. DeepEP's reach 0.71 to 0.79 within a node
of H200 and H800 (320 of 450 GB/s, 153 to 158 of 200; uccl-project/uccl ep/README.md; DeepEP's page of its first
kernels)."""


@while_same(lambda: catalog.state("links", DISPATCHERS))
def dispatchers() -> dict[str, Any]:
    """How kernels cut what they send to other nodes, as ``presets/links/dispatchers.toml`` states it."""
    data: dict[str, Any] = catalog.load("links", DISPATCHERS)
    return data


def once_per_domain(setup: Setup, flow: Flow, network: Network) -> Flow:
    """An expert exchange whose tokens go once to each node, or to each rank where all share one."""
    experts = setup.model.experts
    if experts is None or flow.span.group != "ep" or flow.op != "all_to_all":
        return flow
    placed = flow.span.placed(network)
    in_turn = setup.kernels.router == "round-robin"
    to_nodes, to_ranks = (
        distinct_copies(experts.count / places, experts.choices, experts.per_token, in_turn, experts.groups,
                        experts.groups_per_token)
        for places in (where(placed.nodes > 1, placed.nodes, placed.ranks), placed.ranks)
    )  # fmt: skip
    rate = OWN_SHARE * (link_rate(setup.accelerator, setup.cluster) or 0.0)
    passed = node_copies_passed_on(to_nodes, to_ranks, placed.ranks, placed.near)
    size, chosen = flow.bytes_logical, tokens_of(setup.layout) * experts.per_token
    floors = [*_inside(size * to_ranks, placed, rate), *_chunks(chosen * to_nodes, placed)]
    return flow._replace(
        bytes_logical=size * to_nodes, own_rate=where(placed.nodes > 1, 0.0, rate), passed_on=size * passed,
        floors=tuple(floors),
    )  # fmt: skip


def _inside(to_ranks: Number, placed: Group, rate: float) -> Iterator[Floor]:
    """What comes from other nodes and from its own reaches a rank over the links of its node, but for its own copies;
    ``to_ranks`` bytes are those of all copies."""
    if rate:
        received = where(placed.nodes > 1, to_ranks * (placed.near - 1) / placed.near, 0.0)
        source = "DeepEP's kernels inside a node (engine/exchanges/sent_once.py, OWN_SHARE)"
        yield Floor(copy_seconds, {"size_bytes": received, "rate": rate}, source)


def _chunks(to_nodes: Number, placed: Group) -> Iterator[Floor]:
    """Chunks of a channel go one after another over a network without order: the signal that one is there must not
    overtake it. Of ``to_nodes`` rows those to the own node stay."""
    if placed.network.ordered:
        return
    deepep = dispatchers()["deepep"]
    chunk: Number = deepep["chunk_rows"][-1][1]
    for most, rows in reversed(deepep["chunk_rows"][:-1]):
        chunk = where(placed.ranks <= most, rows, chunk)
    yield Floor(
        chunk_by_chunk_seconds,
        {"rows": to_nodes * (placed.nodes - 1) / placed.nodes, "chunk_rows": chunk, "channels": deepep["channels"],
         "round_trip": 2 * placed.network.hop},
        "DeepEP's chunks over a network without order (presets/links/dispatchers.toml)",
    )  # fmt: skip
