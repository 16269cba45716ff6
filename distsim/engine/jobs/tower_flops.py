"""Model FLOPs of a vision tower, which a decoder's conventions do not tell of."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.layers.ledger import Operation
from distsim.layers.names import VISION
from distsim.layers.network import embedding_block, plain_context, tower_layers

FORWARD, FROZEN, TRAINED = 1, 2, 3
"""Products of a row over those of its forward pass: without a backward pass, with that of its input alone, with both
(as ``6 N`` counts a matrix and ``12 L H S`` attention)."""


def tower_flops(setup: Setup) -> float:
    """Of one token of ``--seq``: forward and backward passes over the images of its sequence; 0 without any."""
    tower = setup.model.shown_tower
    if tower is None:
        return 0.0
    seq = setup.layout.seq
    ctx = plain_context(setup.model, setup.tuning)
    ctx = ctx._replace(layout=ctx.layout.with_(seq=seq), tower_kernels=setup.tower_kernels)
    rows = [one for one in embedding_block(ctx).operations if one.name.startswith(VISION)]
    layers = tower_layers(ctx).values()
    whole = sum(map(_counted, rows)) + sum(len(of) * sum(map(_counted, one.operations)) for one, of in layers)
    return whole / float(seq)


def _counted(operation: Operation) -> float:
    times = FORWARD if not operation.backward else TRAINED if operation.weight_gradient else FROZEN
    return times * float(operation.flops_forward)
