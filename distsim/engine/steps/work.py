"""What one optimizer step asks of chips and links: per pipeline stage, seconds at the rates of datasheets and links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from distsim import catalog
from distsim.arrays import Number, plus, product, where
from distsim.engine.exchanges.all_flows import network_of, price_of, stage_flows
from distsim.engine.exchanges.flows import SLOW_LINK, Fixed, Flow, Role
from distsim.engine.exchanges.hidden import beside_each
from distsim.engine.exchanges.pipeline import beyond
from distsim.engine.jobs.exchange import Exchange, exchange_of
from distsim.engine.jobs.models import refuse_untimed
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.jobs.tp_overlap import without_tiles
from distsim.engine.kernels.compute import stage_compute
from distsim.engine.kernels.expert_load import busiest_exchange
from distsim.engine.kernels.expert_work import expert_sums
from distsim.engine.kernels.sums import PHASES, BlockSums, StageCompute, Sums
from distsim.engine.networks.network import Network
from distsim.engine.steps.vocabulary import shared_part
from distsim.last import for_last

Link = Literal["tp_forward", "tp_backward", "tp_beside", "tp_step", "cp_forward", "cp_backward", "ep_forward",
               "ep_backward", "gather_forward", "gather_once", "gather_backward", "reduce", "reduce_each", "dp_forward",
               "dp_backward", "dp_reduce", "dp_step", "dp_stated", "dp_ahead", "pp_forward", "pp_backward", "vocab",
               "vocab_beside", "offload_forward", "offload_backward", "offload_once", "offload_waited",
               "offload_step"]  # fmt: skip
"""A kind of traffic, whose seconds are kept apart because work of its own can hide them."""
LINKS: tuple[Link, ...] = get_args(Link)
OF_GROUPS: dict[tuple[str, str], Link] = {
    ("tp", "forward"): "tp_forward", ("tp", "backward"): "tp_backward", ("tp", "step"): "tp_step",
    ("cp", "forward"): "cp_forward", ("cp", "backward"): "cp_backward",
    ("ep", "forward"): "ep_forward", ("ep", "backward"): "ep_backward",
    ("pp", "forward"): "pp_forward", ("pp", "backward"): "pp_backward", ("pp", "step"): "dp_step",
    ("host", "forward"): "offload_forward", ("host", "backward"): "offload_backward", ("host", "step"): "offload_step",
}  # fmt: skip
"""Kinds by the group that exchanges and the phase in which it does; a tied table's gradient goes between stages with
those of data parallel ranks."""

OVERLAPPED_SHARE = 0.65
"""Exposed share of tensor parallel exchanges that are split to overlap products: Llama 3 steps with a quarter of
their time in such exchanges became 8% faster (PyTorch, Introducing Async Tensor Parallelism, 2024; recalled)."""

TILED_SHARE = 0.6
"""What is exposed of tensor parallel exchanges when Transformer Engine's products take in and send out tiles as they go
(assumed): where fitted numbers start from, and what those runs lack whose source turns it off (tp_comm_overlap), as
NVIDIA's for MLPerf does between L40S (mlcommons/training_results_v4.0 config_L40S_16x4x2xtp4pp1cp2.sh)."""
TILED = ("tp_forward", "tp_backward", "tp_beside")

ONCE: dict[Link, tuple[Link, Link, str]] = {
    "gather_forward": ("gather_forward", "gather_once", "forward"), "reduce": ("reduce_each", "reduce", "backward"),
    "offload_backward": ("offload_backward", "offload_once", "backward"),
    "dp_forward": ("dp_forward", "dp_step", "forward"), "dp_reduce": ("dp_reduce", "dp_step", "backward"),
}  # fmt: skip
"""Kinds of traffic of which each micro-batch or only the whole step may have its own, and the pass that has it."""

Pricing = Callable[[Flow, Network], Fixed]
"""Gives the price of one call of an exchange."""
Together = Callable[[list[Flow], Network], None]
"""Announces exchanges whose prices will be asked for."""


@dataclass(frozen=True, repr=False, eq=False)
class StageWork:
    """One stage, or ``count`` identical ones. ``traffic`` holds seconds per optimizer step by kind."""

    index: int
    count: int
    layers: int
    compute: StageCompute
    traffic: dict[str, Number]
    shared: Number = 0.0
    """Part of the computation that is for a vocabulary that all stages share."""
    experts: Mapping[str, Sums] = field(default_factory=dict)
    """Part of it that experts are, by phase, where that hides no exchange of parameters."""


class Work(NamedTuple):
    """The work of a setup: its distinct stages (first, those between by kind, last)."""

    setup: Setup
    stages: tuple[StageWork, ...]


@dataclass(repr=False, eq=False)
class Known:
    """What of a setup's work no network decides but by which ranks share a domain: kept for the same setup on
    others."""

    stages: dict[tuple[Any, ...], list[StageWork]] = field(default_factory=dict)
    """Its distinct stages, without traffic, by what ranks share a domain: stages are alike whose neighbours are as
    near."""
    flows: dict[tuple[Any, ...], list[list[Flow]]] = field(default_factory=dict)
    """What a rank of each exchanges, unpriced, by the domains that it is on."""

    def stages_of(self, setup: Setup, network: Network) -> list[StageWork]:
        """The computation of a setup's stages."""
        found = self.stages.setdefault((network.domain, network.node), [])
        if not found:
            blocks: dict[int, BlockSums] = {}
            computed: dict[tuple[Any, ...], tuple[StageCompute, Number, dict[str, Sums]]] = {}
            for stage, count in distinct(setup):
                same = stage.names, stage.embedding is None, stage.head is None
                if same not in computed:
                    whole = stage_compute(setup, stage, blocks)
                    computed[same] = whole, shared_part(setup, stage, whole), expert_sums(setup, stage)
                own, shared, experts = computed[same]
                found.append(StageWork(stage.index, count, stage.layer_count, own, {}, shared, experts))
        return found

    def flows_of(self, setup: Setup, exchange: Exchange, network: Network) -> list[list[Flow]]:
        """Their exchanges, kept where they are collectives of every step."""
        domains = network.domain, network.node, network.bridge, network.torus_axes
        if domains in self.flows:
            return self.flows[domains]
        found = [stage_flows(setup, exchange, network, stage) for stage, _ in distinct(setup)]
        if exchange.plain:
            self.flows[domains] = found
        return found


@catalog.settled()  # every row asks for what holds of its chip
def work_of(
    setup: Setup, price: Pricing = price_of, together: Together | None = None, known: Known | None = None
) -> Work:
    """Fold ledger and traffic of a setup; stages that hold the same layers, as near to their neighbours, are folded
    once. ``price`` may remember, and ``together`` is told all exchanges before it is asked for each. ``known`` is of
    setups that differ in their network alone."""
    refuse_untimed(setup.model, setup.layout.attention, setup.kernels)
    exchange, network, known = exchange_of(setup), network_of(setup), known or Known()
    flows = known.flows_of(setup, exchange, network)
    if together is not None:
        together([flow for each in flows for flow in each], network)
    return Work(setup, tuple(
        replace(stage, traffic=traffic_seconds(setup, exchange, network, some, price))
        for stage, some in zip(known.stages_of(setup, network), flows, strict=True)
    ))  # fmt: skip


def distinct(setup: Setup) -> list[tuple[Stage, int]]:
    """One of each kind of stages, the earliest, and their number."""
    return [(alike[0], len(alike)) for alike in kinds_of(setup)]


@for_last
def kinds_of(setup: Setup) -> list[list[Stage]]:
    """First stage, those between by what they hold and in which order and by which stages they reach on their own node,
    last stage."""
    stages = build_stages(setup)
    if len(stages) <= 2:
        return [[stage] for stage in stages]
    kinds: dict[tuple[Any, ...], list[Stage]] = {}
    for stage in stages[1:-1]:
        kinds.setdefault((stage.names, beyond(setup, stage.index)), []).append(stage)
    return [[stages[0]], *kinds.values(), [stages[-1]]]


def traffic_seconds(
    setup: Setup, exchange: Exchange, network: Network, flows: list[Flow], price: Pricing = price_of
) -> dict[str, Number]:
    """Seconds per step of each kind of traffic of one rank of a stage, of all that it exchanges."""
    sums: dict[str, Number] = dict.fromkeys(LINKS, 0.0)
    shared: dict[tuple[Link, Role, str], Number] = {}
    counted: dict[Link, Number] = {}
    for flow in flows:
        kind = kind_of(flow)
        if kind not in counted:
            counted[kind] = share_counted(setup, kind)
        seconds = price(flow, network).seconds * product(flow.calls_per_step, counted[kind])
        if kind in ONCE:
            key = (kind, flow.role, flow.span.group)
            shared[key] = shared[key] + seconds if key in shared else seconds
        else:
            sums[kind] = plus(sums[kind], seconds)  # not in place: arrays broadcast
    for (kind, role, group), seconds in shared.items():
        often, once, phase = ONCE[kind]
        each = beside_each(setup, exchange, group, role, phase)
        sums[often] = sums[often] + product(seconds, each)
        sums[once] = sums[once] + product(seconds, 1 - each)
    return sums


def share_counted(setup: Setup, kind: Link) -> Number:
    """Share of an exchange's price that a step counts: less where it is split to overlap products, more where it does
    not though fitted numbers hold that it does, and of experts what the busiest rank has."""
    if kind.startswith("ep_"):
        return busiest_exchange(setup)
    pieces = OVERLAPPED_SHARE if setup.framework.traffic.tp_in_pieces and kind.startswith("tp_") else 1.0
    return pieces / where(without_tiles(setup), TILED_SHARE, 1.0) if kind in TILED else pieces


def kind_of(flow: Flow) -> Link:
    """Which kind of traffic an exchange is: by who exchanges and when, and whether it may run beside computation."""
    group, phase = flow.span.group, flow.phase
    if flow.fixed is not None and flow.fixed.link == SLOW_LINK:
        return "dp_stated"
    if group in ("dp", "zero"):
        return _of_replicas(flow)
    if group == "host" and phase != "step" and not flow.hides:
        return "offload_waited"
    if flow.role == "vocabulary":
        return "vocab_beside" if flow.hides else "vocab"
    return "tp_beside" if group == "tp" and flow.hides and phase != "step" else OF_GROUPS[group, phase]


def _of_replicas(flow: Flow) -> Link:
    """The kind of link time of what data parallel ranks exchange: parameters gathered for a pass, gradients, or all
    else; of passes, apart where nothing hides it."""
    if flow.phase == "step":
        return "dp_ahead" if flow.hides else "dp_step"
    if flow.role == "parameters" and flow.phase == "forward":
        return "gather_forward" if flow.hides else "dp_forward"
    if flow.role == "parameters":
        return "gather_backward" if flow.hides else "dp_backward"
    if flow.phase == "backward":
        return "reduce" if flow.hides else "dp_reduce"
    return "dp_step"


def recompute_factor(work: Work) -> float:
    """Floating-point work with recomputation over that without, from the ledger's products."""
    plain = again = 0.0
    for stage in work.stages:
        for phase in PHASES:
            size = stage.compute.phases[phase].flops * stage.count
            plain, again = (plain, again + size) if phase == "recompute" else (plain + size, again)
    return 1 + again / plain if plain else 1.0
