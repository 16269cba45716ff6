"""How many bytes each role of a parameter and an activation takes in a precision recipe."""

from math import floor
from typing import Literal

from distsim.formulas.traffic import DTYPE_BYTES
from distsim.specs.base import Sourced, later
from distsim.specs.quantity import Amount, Factor, Fraction, MaybePositive, Positive, Share, WireFormat
from distsim.units import FP32_BYTES

ComposedCasts = later("composed_casts", "ComposedCasts")
Rate = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
"""A key of an accelerator's ``peak``."""


class Precision(Sourced):
    """Bytes per element for each role. ``master_bytes`` 0 means that no fp32 copy is kept."""

    aliases: tuple[str, ...] = ()
    parameter_bytes: Positive
    gradient_bytes: Amount
    """The gradient as it is accumulated and kept until the optimizer's step."""
    master_bytes: Amount
    state_bytes: Positive
    """One optimizer state (a moment) per parameter."""
    activation_bytes: Positive
    """Activations and the inputs of matrix products outside of them."""
    matmul_input_bytes: MaybePositive = None
    """What a matrix product keeps of its input (1 under fp8); None means ``activation_bytes``."""
    gathered_copies: Factor = 1.0
    """Copies of its quantised input that a module of norm and product keeps where tensor parallel ranks gather it: both
    directions of NVFP4."""
    residual_bytes: MaybePositive = None
    """The residual stream (4 under autocast); None means ``activation_bytes``."""
    weight_copy_bytes: Amount = 0.0
    """Further copies of the weights of matrix products (the fp8 weight)."""
    transpose_bytes: Amount = 0.0
    """The transposed copy that tensor cores before Blackwell need beside it: they read 8-bit operands one way only."""
    cast_bytes: tuple[float, float] = (4.0, 0.0)
    """Memory traffic per element of quantising an operand of an 8-bit product that is an activation or a gradient, and
    one that is a weight: once where one scale serves all products of a tensor (read 2 bytes, write it and its
    transpose), for each product anew where scales are found on the spot."""
    cast_each: bool = False
    """Each of a product's three quantises both its operands itself."""
    cast_kernels: Amount = 0.0
    """Kernels that quantise one operand of a product, launched one by one; 0 where few others are beside them."""
    turned_bytes: Amount = 0.0
    """Memory traffic per element of laying quantised operands of backward's products out across."""
    frozen_gradients: bool = False
    """Products in 8 bits compute the gradients of frozen weights, too."""
    composed: ComposedCasts | None = None  # type: ignore[valid-type]
    """How operands are quantised in jobs that are not compiled; None: as in others."""
    may_delay: bool = False
    """Scales may be those of earlier steps (Transformer Engine's delayed scaling), as a setting beside it says."""
    exchange_bytes: Amount = 0.0
    """Bytes per element of the inputs and gradients that tensor parallel ranks gather for 8-bit products, where they
    are cast first; 0 means the activation's."""
    rescale_bytes: Amount = 0.0
    """Memory traffic per element of what a product's two backward ones give, where a kernel of its own multiplies it by
    the scales of rows and columns."""
    wide_weight_gradient: bool = False
    """The weight gradient's product stays in 16 bits."""
    wide_layers: Fraction = 0.0
    """Part of the layers, the last ones, whose products all stay in 16 bits."""
    autocast: bool = False
    """fp32 parameters are cast for each matrix product, and the cast is kept for backward."""
    gather_dtype: WireFormat = "bf16"
    """Dtype on the wire when parameters are gathered."""
    reduce_dtype: WireFormat = "bf16"
    """Dtype on the wire when gradients are reduced."""
    scaled_share: Share = 1.0
    """Rate of products whose operands carry a scale per block over that of ones with a scale per tensor, on chips whose
    tensor cores multiply by the scales."""
    math: Rate = "bf16"
    """Peak that matrix products run against: a key of the accelerator's ``peak``."""
    needs: Rate | None = None
    """A further peak that an accelerator with units for the recipe states."""

    def wide_share(self, layers: int) -> float:
        """Part of so many layers whose products stay in 16 bits; those before them are a whole number, rounded down."""
        return 1 - floor((1 - self.wide_layers) * layers) / layers if self.wide_layers else 0.0

    @property
    def scales_blocks(self) -> bool:
        """Whether operands of products are in 8 or 4 bits with a scale per block, which tensor cores multiply by."""
        return "fp4" in (self.math, self.needs)

    @property
    def bf16_over_fp32(self) -> bool:
        """Whether products are in bf16, of weights that are fp32 themselves or have an fp32 copy."""
        return self.math == "bf16" and max(self.parameter_bytes, self.master_bytes) >= FP32_BYTES

    @property
    def gather_bytes(self) -> float:
        """Bytes per element of a gathered parameter."""
        return DTYPE_BYTES[self.gather_dtype]

    @property
    def gathers_cast(self) -> bool:
        """Whether gathering parameters is what casts them, which FSDP then does on a single rank too."""
        return self.parameter_bytes > self.gather_bytes and not self.autocast

    @property
    def kept_input_bytes(self) -> float:
        """Bytes per element of a matrix product's saved input."""
        return self.activation_bytes if self.matmul_input_bytes is None else self.matmul_input_bytes

    @property
    def stream_bytes(self) -> float:
        """Bytes per element of the residual stream."""
        return self.activation_bytes if self.residual_bytes is None else self.residual_bytes
