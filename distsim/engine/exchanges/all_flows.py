"""All exchanges of one rank of a stage, and where each meets the network for its price."""

from __future__ import annotations

from collections.abc import Hashable

from distsim import catalog
from distsim.arrays import Number, maximum, minimum, nothing, where
from distsim.engine.exchanges.data import data_flows
from distsim.engine.exchanges.flows import Fixed, Flow, Span, present
from distsim.engine.exchanges.model import model_flows, replicated_gradient_flows
from distsim.engine.exchanges.norms import norm_flows
from distsim.engine.exchanges.pipeline import pipeline_flows
from distsim.engine.exchanges.sent_once import once_per_domain
from distsim.engine.jobs.dispatch import sends_once
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.reference import runs_reference
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.networks import pricing
from distsim.engine.networks.links import network_for
from distsim.engine.networks.network import Network, Priced
from distsim.formulas.traffic import copy_seconds


def network_of(setup: Setup) -> Network:
    """The network of a setup's cluster."""
    accelerator, cluster, profile = setup.accelerator, setup.cluster, setup.job.profile
    asked = network_of, accelerator, cluster, profile
    found: Network = catalog.once(asked, lambda: network_for(accelerator, cluster=cluster, profile=profile))
    return found


def stage_flows(setup: Setup, exchange: Exchange, network: Network, stage: Stage) -> list[Flow]:
    """All that one rank of a stage exchanges, unpriced; layout fields may be arrays (all but pp)."""
    flows = _trained_flows(setup, exchange, network, stage)
    if runs_reference(setup):
        from distsim.engine.exchanges.reference import reference_flows, without_adapters

        flows += reference_flows(setup, _trained_flows(setup, exchange, network, without_adapters(setup, stage)))
    return flows


def _trained_flows(setup: Setup, exchange: Exchange, network: Network, stage: Stage) -> list[Flow]:
    """What the model that trains exchanges."""
    shared = data_flows(setup, exchange, stage)
    if not exchange.plain:
        from distsim.engine.exchanges.variants import varied

        shared = varied(setup, exchange, stage, present(shared), network)
    flows = model_flows(setup, exchange, stage)
    if sends_once(setup.framework, setup.kernels):
        flows = [once_per_domain(setup, flow, network) for flow in flows]
    flows += replicated_gradient_flows(setup, exchange, stage) + shared
    flows += pipeline_flows(setup, stage)
    if stage.mirror is not None:
        from distsim.engine.exchanges.both_copies import both_copies_flows

        flows += both_copies_flows(setup, exchange, stage)
    flows += norm_flows(setup, exchange, stage)
    if setup.offload:
        from distsim.engine.exchanges.offloading import offload_flows

        flows += offload_flows(setup, exchange, stage)
    return present(flows)


def price_of(flow: Flow, network: Network) -> Fixed:
    """The price of one call; the one place where exchanges meet the network."""
    if flow.fixed is not None:
        return flow.fixed
    seconds, algorithm, _, wire, link = _remembered(flow.pattern, flow.bytes_logical, flow.span, network)
    return Fixed(of_call(flow, seconds), wire, link, algorithm)


_PRICES: dict[Hashable, tuple[Network, Priced]] = {}


def _remembered(op: str, size: Number, span: Span, network: Network) -> Priced:
    """The price of a collective, looked up before its group is placed where plain numbers come again. The network is
    known by identity, and held."""
    asked = op, size, span, id(network)
    try:
        found = _PRICES.get(asked)
    except TypeError:  # arrays have no hash
        return pricing.price(op, size, span.placed(network))
    if found is None:
        if len(_PRICES) >= pricing.MOST_PRICES:
            _PRICES.clear()
        found = _PRICES[asked] = network, pricing.remembered(op, size, span.placed(network))
    return found[1]


def of_call(flow: Flow, seconds: Number) -> Number:
    """Seconds of one call that the library takes so many for."""
    if not nothing(flow.own_rate):
        own = copy_seconds(flow.bytes_logical, maximum(flow.own_rate, 1.0))
        seconds = where(flow.own_rate > 0, minimum(seconds, own), seconds)
    for floor in flow.floors:
        seconds = maximum(seconds, floor.seconds)
    return seconds * where(flow.bytes_logical > 0, 1, 0)  # arrays hold layouts that do not exchange this
