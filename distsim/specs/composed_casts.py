"""How a recipe of narrow products quantises operands where nothing compiles it: one plain operation after another."""

from distsim.specs.base import Spec
from distsim.specs.quantity import Amount


class ComposedCasts(Spec):
    """What is otherwise than in the recipe that a compiler fuses. Operands are kept as they came, and quantised anew
    for each of a product's three."""

    bytes_moved: Amount
    """Memory traffic per element that is quantised."""
    turned_bytes: Amount = 0.0
    """The same of laying an 8-bit operand out across, which backward's products need of three of their four."""
    kernels: Amount
    """Kernels that quantise one operand, those that make its scale of a few numbers included."""
    frozen_gradients: bool = False
    """Gradients of frozen weights are computed as well, and dropped; a compiler leaves them out."""

    def recipe(self) -> dict[str, object]:
        """Fields of a ``Precision`` that this takes the place of."""
        return {
            "cast_bytes": (self.bytes_moved, self.bytes_moved), "cast_each": True, "cast_kernels": self.kernels,
            "turned_bytes": self.turned_bytes, "matmul_input_bytes": None, "weight_copy_bytes": 0.0,
            "transpose_bytes": 0.0, "frozen_gradients": self.frozen_gradients,
        }  # fmt: skip
