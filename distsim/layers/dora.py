"""Weight-decomposed adapters (DoRA: Liu et al. 2024, arXiv:2402.09353, sections 4.1 and 4.3), as peft and torchtune run
them.

Rows W + s B A of the adapted weight are scaled to learned magnitudes m: y = (c - 1) x W' + c s x A' B' with
c = m / |W + s B A|. The norms are constants of backward, but need B A in each forward pass. Both packages send a unit
matrix of the input's width through A and B, since units of FSDP gather only what is called (peft tuners/lora/dora.py,
torchtune modules/peft/dora.py): n x n elements for each product, which are gone when its output is there.
"""

from __future__ import annotations

from distsim.arrays import Number, maximum
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import Size, product_row, weight_cast
from distsim.layers.names import DORA_BASE
from distsim.specs.tuning import Tuning


def magnitudes(ctx: Context, tuning: Tuning, operation: Operation, label: str, size: Size) -> list[Operation]:
    """What a product's adapter does beside its two products: norms of the whole weight, and scaling by them. A bias is
    taken off the module's output first, which makes that as wide as the bias."""
    name, again = operation.name, tuning.dropout and tuning.dora == "own"
    base = _base_again(ctx, tuning, f"{name}{DORA_BASE}{label}", size) if again else []
    biased = any(parameter.is_bias for parameter in operation.parameters)
    width = tuning.product_bytes if again else maximum(ctx.activation, ctx.precision.parameter_bytes * biased)
    return [*_norms(ctx, tuning, f"{name}.dora", label, size), *base, _scaled(tuning, name, label, size, width)]


def _norms(ctx: Context, tuning: Tuning, name: str, label: str, size: Size) -> list[Operation]:
    """Norms of W + s B A. What is alive then is told as backward's, where peaks are sought: a layer that is computed
    again passes through there, and the last layer's forward pass holds as much."""
    wide, each, inner = tuning.adapter.parameter_bytes, tuning.product_bytes, size.inner
    square, whole, casts = inner * inner, size.elements, tuning.adapter.parameter_bytes > tuning.product_bytes
    plain = maximum(ctx.activation, ctx.precision.parameter_bytes)
    unit = Tensor(f"{name}_unit{label}", square, each, "h h")
    made = Tensor(f"{name}_update{label}", whole, each, "h f")
    sums = Tensor(f"{name}_sums{label}", whole * (3 + (plain != wide)), wide, "h f")
    first = unit._replace(name=f"{name}_unit_wide{label}", bytes_each=wide * casts)
    eye = Operation(f"{name}_unit{label}", "adapter", bytes_read=square * wide * casts,
                    bytes_written=square * (wide + each * casts), shape=(square,), backward=False)  # fmt: skip
    rank = tuning.rank
    down = product_row(f"{name}_down{label}", Size(inner, inner, rank), each, [], (), ())
    up = product_row(f"{name}_up{label}", Size(inner, rank, size.outer), each, [], (), ())
    unpack = 0 if tuning.quantization is None else tuning.quantization.weight_bytes + 2 * plain
    read = whole * (each * casts + plain * (plain != wide) + 4 * wide + unpack)
    norm = Operation(f"{name}_norm{label}", "adapter", bytes_read=read,
                     bytes_written=whole * wide * (2 + casts + (plain != wide)), shape=(whole,),
                     transient_backward=(unit, sums), backward=False)  # fmt: skip
    return [eye, _once(down), _once(up, unit, first, made), norm]


def _once(product: Operation, *alive: Tensor) -> Operation:
    """A product of which nothing runs backward."""
    return product._replace(flops_backward=0, weight_gradient=False, backward=False, transient_backward=alive)


def _base_again(ctx: Context, tuning: Tuning, name: str, size: Size) -> list[Operation]:
    """The frozen product once more, of the input that dropout left (peft), in the adapter's format."""
    each = tuning.product_bytes
    casts = each != ctx.precision.parameter_bytes
    row = product_row(name, size, each, [weight_cast(name, size, each)] if casts else [], (), ())
    return [row._replace(flops_backward=row.flops_forward, weight_gradient=False)]


def _scaled(tuning: Tuning, name: str, label: str, size: Size, of_base: Number) -> Operation:
    """Both products times their scales, which keeps both for the gradient of the magnitudes; ``of_base`` is the bytes
    of an element of the frozen one's."""
    wide, each = tuning.adapter.parameter_bytes, tuning.product_bytes
    outputs = size.tokens * size.outer
    base = Tensor(f"{name}.dora_base_output{label}", outputs, of_base, "s b f")
    added = base._replace(name=f"{name}.dora_added{label}", bytes_each=each)
    scales = Tensor(f"{name}.dora_scales{label}", 3 * size.outer, wide, "3 f")
    magnitude = Parameter(f"{name}.dora_magnitude{label}.weight", size.outer, "vector", held="adapter")
    return Operation(
        f"{name}.dora_scale{label}", "adapter", bytes_read=outputs * (of_base + each + 3 * wide),
        bytes_written=outputs * 4 * wide, shape=(outputs,), saved=(base, added, scales), parameters=(magnitude,),
    )  # fmt: skip
