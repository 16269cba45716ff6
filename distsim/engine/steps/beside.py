"""Exposed time of exchanges that overlap computation, and what matrix products lose to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distsim.arrays import Number, maximum, nothing, product, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.sums import PHASES
from distsim.formulas.step import LEAST_SECONDS, exposed_seconds

EXCHANGE_UNITS = 20
"""Units of the chip that send tokens to other nodes and pass on what comes from there, while products have the others
(DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.2; NVIDIA/Megatron-LM moe_deepep_num_sms). Within a rack eight units
reach the rate of the links (deepseek-ai/DeepEP, README of Hybrid-EP), which is not counted."""


def hidden_share(setup: Setup) -> Number:
    """Share of an expert exchange's time that overlapping it with computation saves."""
    layout, units = setup.layout, setup.accelerator.chip.units
    lost = EXCHANGE_UNITS / units if units and units > EXCHANGE_UNITS else 0.0
    return 1 - where(layout.ep * layout.etp > setup.cluster.domain, lost, 0.0)


def exposed(exchange: Number, compute: Number, never: Number) -> Number:
    """Exposed seconds of an exchange that overlaps ``compute`` seconds of computation; 0 where there is no exchange."""
    return 0.0 if nothing(exchange) else exposed_seconds(exchange, compute, never)


def beside_another(exchange: Sequence[Number], computed: Number, paired: Number) -> tuple[Number, Number]:
    """Seconds of experts' exchanges of forward and of backward that run beside the computation of another micro-batch,
    in the share ``paired`` of passes. They do not lengthen a pass, so that nothing else hides beside them; and none
    hides while the GPU waits for the host (``computed`` is what the GPU computes)."""
    if nothing(paired):
        return 0.0, 0.0
    whole = exchange[0] + exchange[1]
    hidden = (whole - exposed_seconds(whole, computed, 0.0)) * where(paired, paired, 0.0)
    share = hidden / maximum(whole, LEAST_SECONDS)
    return exchange[0] * share, exchange[1] * share


def beside_products(stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number]) -> Number:
    """Exposed seconds of a micro-batch's tensor parallel exchanges that overlap products of backward."""
    exchange = product(stage["tp_beside"], timing["tensor_factor"] / layout["micro_batches"])
    return exposed(exchange, stage["backward.cover"] / timing["matmul"], timing["exposed_fraction"])


def beside_attention(
    exchanges: Sequence[Number], stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number]
) -> list[Number]:
    """Exposed seconds of a ring's exchanges: keys and values of the next step travel during the attention of this one,
    in forward, backward and recomputation. Attention that is long enough hides all but the fitted share, which both
    lose to each other: without it, rings that nobody fitted come out 7% too fast, not 4%
    (docs/findings/exchanges-and-networks.md)."""
    if nothing(layout["ring"]):
        return list(exchanges)
    hiding = ring_attention(stage, layout, timing)
    return [exposed(one, beside, timing["exposed_fraction"]) for one, beside in zip(exchanges, hiding, strict=True)]


def ring_attention(
    stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number]
) -> tuple[Number, Number]:
    """Seconds of attention of a micro-batch that a ring's exchanges run beside, in forward and backward."""
    f, b, r = (stage[f"{phase}.attention"] / timing["attention"] * layout["ring"] for phase in PHASES)
    return f, b + r


def behind_first(setup: Setup) -> Number:
    """Share of a ring's attention that can hide the arrival of other ranks' keys and values: all but its last step."""
    layout = setup.layout
    return (layout.cp - 1) / layout.cp if layout.cp_mode == "ring" else 0.0
