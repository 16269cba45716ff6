"""Tensor parallelism on a grid of ranks: matrix products as SUMMA on a square, on stacked squares, or on a cube.

2D: Xu et al. 2021 (arXiv:2104.05343). 2.5D: Wang et al. 2021, Tesseract (arXiv:2105.14500). 3D: Bian et al. 2021
(arXiv:2105.14450). A square of q x q ranks runs q steps; in each, a block of one operand is broadcast along rows and
one of the other along columns (or the product's block is reduced).
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.exchanges.flows import Flow, Span, dtype_name
from distsim.engine.jobs.exchange import Exchange, grid_side
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.traffic import cube_face_bytes, summa_block_bytes
from distsim.layers.ledger import Operation

PURPOSE = "tensor parallel layers"


def grid_flows(setup: Setup, exchange: Exchange, operation: Operation, count: Number, again: Number) -> list[Flow]:
    """Flows of one matrix product on a grid; none for those that all ranks make whole, and for experts'."""
    tp = setup.layout.tp
    if not any(parameter.tensor_parallel and parameter.group == "dense" for parameter in operation.parameters):
        return []
    source, weight, product = _matrices(setup, operation)
    side = grid_side(int(tp), exchange.tp_mode, exchange.tp_depth)
    found = _cube(side, source, weight, product) if exchange.tp_mode == "3d" else _square(
        side, exchange.tp_depth, int(tp), source, weight
    )  # fmt: skip
    dtype = dtype_name(setup.precision.activation_bytes, setup.precision)
    flows: list[Flow] = []
    for op, phase, span, calls, size in found:
        times, span = calls * setup.layout.micro_batches, span._replace(world=setup.layout.gpus)
        flow = Flow(PURPOSE, op, span, dtype, phase, times * count, size)
        flows.append(flow)
        if phase == "forward":
            flows.append(flow.again(times * again))
    return flows


def _matrices(setup: Setup, operation: Operation) -> tuple[Number, Number, Number]:
    """Bytes of the whole input, weight and product, over all tp ranks. The shape is one rank's: (m, n, k, batch)."""
    tokens, outer, inner, _ = operation.shape
    each, tp = setup.precision.activation_bytes, setup.layout.tp
    rows = any(c.phase == "forward" and c.group == "tp" and c.op == "reduce_scatter" for c in operation.collectives)
    inner, outer = (inner * tp, outer) if rows else (inner, outer * tp)
    return tokens * inner * each, inner * outer * each, tokens * outer * each


Found = list[tuple[str, str, Span, Number, Number]]


def _square(side: int, depth: int, tp: int, source: Number, weight: Number) -> Found:
    """Three SUMMA products, made where they stay; activations are spread over all ranks, weights over one square and
    copied to ``depth``."""
    row, column = Span("tp", side, 1), Span("tp", side, side)
    a, b = summa_block_bytes(source, tp), summa_block_bytes(weight, side * side)
    found: Found = [
        ("broadcast", "forward", row, side, a),
        ("broadcast", "forward", column, side, b),
        ("broadcast", "backward", column, side, b),
        ("reduce", "backward", row, side, a),
        ("broadcast", "backward", row, side, a),
        ("reduce", "backward", column, side, b),
    ]
    if depth > 1:
        found.append(("all_reduce", "backward", Span("tp", depth, side * side), 1, b))
    return found


def _cube(side: int, source: Number, weight: Number, product: Number) -> Found:
    """Both operands are gathered along one side each and the product is reduced along the third; so in backward."""
    first, second, third = (Span("tp", side, side**axis) for axis in range(3))
    a, b, c = (cube_face_bytes(whole, side) for whole in (source, weight, product))
    return [
        ("all_gather", "forward", second, 1, a),
        ("all_gather", "forward", third, 1, b),
        ("reduce_scatter", "forward", first, 1, c),
        ("all_gather", "backward", first, 2, c),
        ("all_gather", "backward", third, 1, b),
        ("reduce_scatter", "backward", second, 1, a),
        ("all_gather", "backward", second, 1, a),
        ("reduce_scatter", "backward", third, 1, b),
    ]
