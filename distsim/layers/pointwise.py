"""An activation that stands by itself, between two products."""

from __future__ import annotations

from distsim.layers.ledger import Operation, Tensor


def pointwise(name: str, kept: Tensor) -> Operation:
    """An activation, with what its backward reads."""
    return Operation(
        name, "elementwise", bytes_read=kept.size_bytes, bytes_written=kept.size_bytes, shape=(kept.elements,),
        saved=(kept,), transient_backward=(kept._replace(name=f"{name}.gradient"),),
    )  # fmt: skip
