"""Tensors that autograd gets in the place of weights' gradients that products have added to wider ones themselves."""

from __future__ import annotations

from distsim.arrays import Number, maximum, nothing, where
from distsim.engine.figures import Figures
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.buffers import table_bytes
from distsim.layers.ledger import Parameter
from distsim.layers.names import ROUTER


def gradient_place_bytes(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """Bytes that Transformer Engine keeps for good, one tensor for all weights of a shape: their hooks must run, and so
    some gradient has to come (module/base.py, get_dummy_wgrad)."""
    kinds = setup.kernels.gradient_places
    if kinds == "none" or nothing(own := where(setup.layout.zero <= 1, 1, 0)):
        return 0.0
    sizes: dict[str, Number] = {}
    for block, _ in stage.layers:
        for operation in block.operations:
            if operation.kind == "matmul" and operation.name != ROUTER:
                for one in operation.parameters:
                    _count(sizes, one, experts=kinds == "experts")
    if stage.head is not None and kinds != "layers":
        for operation in stage.head.operations:
            for one in operation.parameters:
                _count(sizes, one, experts=False)
    return own * figures.use(
        "places of weights' gradients", table_bytes, elements=sum(sizes.values()),
        bytes_each=setup.precision.activation_bytes,
    )  # fmt: skip


def _count(sizes: dict[str, Number], one: Parameter, *, experts: bool) -> None:
    """Put a matrix's elements into ``sizes`` by name: layers' matrices of a name have one shape, but for the widest."""
    if one.trains and one.kind == "matrix" and (experts or one.group == "dense"):
        sizes[one.name] = maximum(sizes.get(one.name, 0), one.rows * one.columns)
