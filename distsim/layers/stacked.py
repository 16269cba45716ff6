"""What JAX keeps of a layer that a loop stacks: what each primitive's rule of differentiation reads.

Residuals of ``jax.lax.scan`` are chosen before XLA sees the program, and its arrays are what XLA then allocates: no
fusion takes one away (tests/oracles/jax_saved.json). Outside of a loop XLA fuses them as it likes.
"""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number
from distsim.layers.ledger import Block, Operation, Parameter, distinct_saved
from distsim.specs.model import Model
from distsim.specs.precision import Precision
from distsim.units import FP32_BYTES, MASK_BYTES


class Factors(NamedTuple):
    """What an activation function keeps beside its input and its product, in tensors of the inner width."""

    kept: int
    mask: bool = False


# jax.vjp of a scanned layer, jax 0.10.2. Sigmoid and its derivative; the tanh form of GELU, which flax's and MaxText's
# "gelu" is: a square, tanh's output and derivative, the factor of x; which elements a ReLU let through.
SMOOTH = Factors(2)
ACTIVATIONS = {"silu": SMOOTH, "quick_gelu": SMOOTH, "relu": Factors(0, mask=True), "relu2": Factors(0, mask=True)}
COMPOSED = Factors(4)


def _norm(row: Operation, model: Model, each: Number) -> dict[str, Number]:
    """Its input, or that less the mean, and twice that, which a square's derivative is, and the normalised value before
    the weight: RMSNorms square in fp32, layernorms in the activations' format (MaxText's GPT-3)."""
    rows, width = row.shape
    wide = FP32_BYTES if model.norm == "rmsnorm" else each
    elements = rows * width
    normed = elements * each * (1 if row.parameters else 0)
    return {f"{row.name}.squared": elements * wide, f"{row.name}.doubled": elements * wide,
            f"{row.name}.normalised": normed}  # fmt: skip


def _activation(row: Operation, model: Model, each: Number) -> dict[str, Number]:
    """The factors of a composed activation, and its result where a gate's product reads that too."""
    factors = ACTIVATIONS.get(model.activation, COMPOSED)
    (elements,) = row.shape
    gate = model.gated and model.activation != "relu"  # whose result is what the ledger has for its input
    sizes: dict[str, Number] = {f"{row.name}.factors": elements * each * (factors.kept + gate)}
    return sizes | ({f"{row.name}.mask": elements * MASK_BYTES} if factors.mask else {})


def stacked_saved(block: Block, model: Model, precision: Precision) -> dict[str, Number]:
    """Bytes by name of what one layer adds to the arrays that its loop stacks, cast weights apart."""
    each = precision.activation_bytes
    sizes = distinct_saved(block.operations)
    for row in block.operations:
        if row.kind == "norm" and row.saved:
            source = row.saved[0].name
            if not any(source == one.name for other in block.operations if other.kind != "norm" for one in other.saved):
                sizes.pop(source, None)
            sizes.update(_norm(row, model, each))
        elif row.role == "activation":
            sizes.update(_activation(row, model, each))
        elif row.role == "core" and row.output is not None:  # as the kernel gives it, and as the projection reads it
            sizes[f"{row.name}.reordered"] = row.output.size_bytes
    return sizes


def cast_matrices(block: Block) -> list[Parameter]:
    """A layer's matrices, of which products read casts that the loop stacks."""
    return [one for row in block.operations for one in row.parameters if one.kind == "matrix"]
