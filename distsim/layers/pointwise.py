"""An activation that stands by itself, between two products."""

from __future__ import annotations

from distsim.layers.ledger import Operation, Tensor
from distsim.layers.names import Role


def pointwise(name: str, kept: Tensor, role: Role = "", others: tuple[Tensor, ...] = ()) -> Operation:
    """An activation, with what its backward reads: ``kept``, or ``others`` of its size where it is composed."""
    return Operation(
        name, "elementwise", bytes_read=kept.size_bytes, bytes_written=kept.size_bytes, shape=(kept.elements,),
        saved=others or (kept,), transient_backward=(kept._replace(name=f"{name}.gradient"),), role=role,
    )  # fmt: skip
