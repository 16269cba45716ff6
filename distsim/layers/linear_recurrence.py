"""The real-gated linear recurrent unit (RG-LRU; De et al. 2024, Griffin, arXiv:2402.19427, section 2.4): a convolution,
two gates of blocks of channels, a recurrence of every channel, and a branch that gates it.

Fused kernels keep what the elementwise steps before the recurrence read. Transformers composes it token by token, which
keeps each token's decay and state in fp32 besides.
"""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.formulas.compute import product_flops
from distsim.layers.ledger import RATE_GRADIENT_ONLY, Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.specs.mixers import LinearRecurrence
from distsim.units import FP32_BYTES, MASK_BYTES

GATES = 2
"""Gates of the input and of the recurrence."""
STEPS = ("input_gate", "recurrent_gate", "gated_input", "normalisation")
"""What the elementwise steps keep: both sigmoids, both factors of the normalised input."""
DECAYS = ("decay", "decay_squared", "kept_squared")
"""Both exponentials and what the root is taken of, in the wider of the activations' and the rates' formats."""
RESETS = 2
"""Masks of sequences' first tokens."""


def linear_recurrence(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one mixer; ``source`` is the normalised input."""
    model, tokens = ctx.model, ctx.layout.tokens
    mixer = model.recurrence
    assert mixer is not None
    width = mixer.width
    output = Tensor("recurrence.output", tokens * width, ctx.activation, "s b w")
    gate, before = output._replace(name="recurrence.gate"), output._replace(name="recurrence.gate_input")
    gated = output._replace(name="recurrence.gated", bytes_each=ctx.precision.kept_input_bytes)
    return [
        linear(ctx, "recurrence.project_gate", tokens, model.hidden, width, source, bias=True, sharded=False,
               cast_input=True),
        linear(ctx, "recurrence.project_in", tokens, model.hidden, width, source, bias=True, sharded=False,
               cast_input=True),
        _convolution(ctx, mixer),
        _gates(ctx, mixer),
        _scan(ctx, mixer, output),
        Operation(
            "recurrence.gating", "elementwise", bytes_read=2 * output.size_bytes, bytes_written=output.size_bytes,
            shape=(output.elements,), saved=(before, gate, output),
            transient_backward=(gate._replace(name="recurrence.gate_gradient"),),
        ),
        linear(ctx, "recurrence.project_out", tokens, width, model.hidden, gated, bias=True, sharded=False),
    ]  # fmt: skip


def _convolution(ctx: Context, mixer: LinearRecurrence) -> Operation:
    """A convolution of each channel over few tokens."""
    rows = Tensor("recurrence.projected", ctx.layout.tokens * mixer.width, ctx.activation, "s b w")
    return Operation(
        "recurrence.convolution", "elementwise", bytes_read=rows.size_bytes, bytes_written=rows.size_bytes,
        shape=(rows.elements,), saved=(rows,),
        transient_backward=(rows._replace(name="recurrence.convolved_gradient"),),
        parameters=(
            Parameter("recurrence.convolution.weight", mixer.width * mixer.convolution, "vector"),
            Parameter("recurrence.convolution.bias", mixer.width, "vector"),
        ),
    )  # fmt: skip


def _gates(ctx: Context, mixer: LinearRecurrence) -> Operation:
    """The products that both gates are made of, a square for each block of channels; they read the convolution's
    output, of which a batch of several sequences needs a copy in another order."""
    layout, act, width = ctx.layout, ctx.activation, mixer.width
    tokens, block = layout.tokens, mixer.width / mixer.blocks
    padded = layout.micro_batch * (layout.seq + mixer.convolution - 1) * width
    copied = tokens * width * where(layout.micro_batch > 1, 1, 0)
    elements = GATES * width * block
    flops = product_flops(tokens, block, block, GATES * mixer.blocks)
    cast = elements * ctx.precision.autocast
    return Operation(
        "recurrence.lru.gate", "matmul", flops, 2 * flops, (tokens * width + elements) * act,
        GATES * tokens * width * act, (tokens, block, block, GATES * mixer.blocks),
        saved=(Tensor("recurrence.convolved_rows", copied, act, "s b w"),
               Tensor("recurrence.convolved", padded, act, "s b w"),
               Tensor("recurrence.lru.weight_cast", cast, act, "cast weight", weight_copy=True)),
        output=Tensor("recurrence.gate_logits", GATES * tokens * width, act, "s b 2w"),
        parameters=(
            Parameter("recurrence.lru.weight", elements, "matrix", block, block, GATES * mixer.blocks, "dense", False),
            Parameter("recurrence.lru.bias", GATES * width, "vector", tensor_parallel=False),
        ),
    )  # fmt: skip


def _scan(ctx: Context, mixer: LinearRecurrence, output: Tensor) -> Operation:
    """Decays, normalisation of the input, and the recurrence: elementwise work."""
    layout, elements = ctx.layout, output.elements
    saved = [output._replace(name=f"recurrence.{step}") for step in STEPS]
    wide = output._replace(bytes_each=FP32_BYTES) if ctx.precision.autocast else output
    saved += [wide._replace(name=f"recurrence.{step}") for step in DECAYS]
    saved.append(output._replace(name=f"recurrence.scaled_gate{RATE_GRADIENT_ONLY}"))
    saved.append(Tensor("recurrence.resets", RESETS * layout.tokens, MASK_BYTES, "s b mask"))
    if ctx.kernels.linear_attention == "composed":
        steps: Number = 2 * elements - layout.micro_batch * mixer.width  # the first token has no state to decay
        saved.append(Tensor("recurrence.states", steps, FP32_BYTES, "s b 2w fp32"))
    kept = sum(tensor.size_bytes for tensor in saved)
    return Operation(
        "recurrence.scan", "elementwise", bytes_read=kept, bytes_written=kept, shape=(elements,),
        saved=tuple(saved), output=output, transient_backward=(output._replace(name="recurrence.gradient"),),
        parameters=(Parameter("recurrence.rate", mixer.width, "vector"),),
    )  # fmt: skip
