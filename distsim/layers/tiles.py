"""A dense MLP that runs on one tile of tokens after another: it keeps its input alone and computes each tile again.

What tiles make is there once for all of them; between them stand the whole input's gradient and that of the output.
Source: DeepSpeed runtime/sequence_parallel/ulysses_sp.py, TiledMLP; linkedin/Liger-Kernel ops/tiled_mlp.py; peaks
recorded with torch 2.13 (tests/oracles/tiled_mlp.json).
"""

from __future__ import annotations

from collections.abc import Iterable

from distsim.arrays import Number, ceil_div, maximum
from distsim.layers.ledger import Operation, Tensor


def usual_tiles(tokens: Number, hidden: Number) -> Number:
    """Tiles of a sequence of ``tokens`` on a rank where nobody says how many: as long as the model is wide."""
    return maximum(1, ceil_div(tokens, hidden))


def tiled(rows: list[Operation], tiles: Number) -> list[Operation]:
    """The rows of an MLP from its first product to its last, where each tile runs forward again in backward."""
    first, last = rows[0], rows[-1]
    made = {one.name: one for row in rows for one in row.saved if not (one.weight_copy or _reads(one, first))}
    inside = _parts(made.values(), tiles)
    around = (last.transient_backward[0], first.transient_backward[1])
    names = {one.name for one in around}
    found = []
    for row in rows:
        passing = _parts((one for one in row.transient_backward if one.name not in names), tiles)
        found.append(
            row._replace(
                saved=tuple(one for one in row.saved if one.weight_copy or (row is first and _reads(one, first))),
                transient_forward=inside, transient_backward=(*around, *inside, *passing),
                recompute_class="", reruns=True,
            )
        )  # fmt: skip
    return found


def _reads(tensor: Tensor, first: Operation) -> bool:
    """Whether a kept tensor is what the first product reads."""
    return not tensor.weight_copy and any(tensor.name == one.name for one in first.saved)


def _parts(tensors: Iterable[Tensor], tiles: Number) -> tuple[Tensor, ...]:
    """Of tensors what one tile has of them."""
    return tuple(one._replace(name=f"{one.name}.tile", elements=one.elements / tiles) for one in tensors)
