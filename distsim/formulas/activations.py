"""Activation memory of pipeline stages."""

from __future__ import annotations

from distsim.arrays import Number, maximum, plus, product
from distsim.formula import formula


@formula(unit="B", source="Qi et al. 2023, arXiv:2401.10241, section 2.3 and table 1")
def split_backward_bytes(before: Number, kept_bytes: Number, waiting: Number, read_bytes: Number) -> Number:
    """What a stage keeps for micro-batches before their input gradient, and for those waiting for their weight
    gradient, which needs less."""
    return before * kept_bytes + waiting * read_bytes


@formula(unit="B", source="ledger: saved tensors, each storage once (docs/activations.md)")
def micro_batch_kept_bytes(layers: Number, embedding: Number, head_and_loss: Number) -> Number:
    """What one micro-batch keeps for backward when its forward has ended."""
    return layers + embedding + head_and_loss


@formula(unit="B", source="micro-batches in flight: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2")
def alive_bytes(
    newest_layers: Number, layers: Number, embedding: Number, in_flight: Number, head_and_loss: Number,
    head_in_flight: Number, beyond: Number, hoisted: Number,
) -> Number:  # fmt: skip
    """Bytes kept when the last forward of the peak has ended: of the newest micro-batch, whose layers may not all have
    left for the host, of those before it, of what waits beyond these, and casts made ahead of a loop."""
    kept = plus(newest_layers, product(layers, in_flight - 1))
    return plus(plus(plus(kept, embedding * in_flight + head_and_loss * head_in_flight), beyond), hoisted)


@formula(unit="B", source="ledger, operation by operation (distsim/engine/footprint/moments.py)")
def moment_bytes(alive: Number, made_less_freed: Number, gradients_to_come: Number) -> Number:
    """Activations at a moment: what was alive at the end of forward, and what is made since, less what is freed, and
    less what lies in the place of gradients that backward has not made yet."""
    return maximum(alive + made_less_freed - gradients_to_come, 0)
