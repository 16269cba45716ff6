"""What products lose to exchanges of experts that run beside them."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup

EXCHANGE_UNITS = 20
"""Units of the chip that send tokens to other nodes and pass on what comes from there, while products have the others
(DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.2; NVIDIA/Megatron-LM moe_deepep_num_sms). Within a rack eight units
reach the rate of the links (deepseek-ai/DeepEP, README of Hybrid-EP), which is not counted."""


def hidden_share(setup: Setup) -> Number:
    """What an exchange of experts saves of its time where computation runs beside it."""
    y, units = setup.layout, setup.accelerator.chip.units
    lost = EXCHANGE_UNITS / units if units and units > EXCHANGE_UNITS else 0.0
    return 1 - where(y.ep * y.etp > setup.cluster.domain, lost, 0.0)
