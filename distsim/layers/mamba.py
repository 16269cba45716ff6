"""The Mamba-2 mixer (Dao and Gu 2024, arXiv:2405.21060): projections around a convolution and a chunked scan.

Rows are those of the fused kernels that training uses (``mamba_split_conv1d_scan_combined`` of state-spaces/mamba, as
Megatron core calls it): the projection's output and the scan's output are kept, the rest is computed again in backward.
Transformers gives that kernel the norm and the output projection besides (``scan_projects``).
"""

from __future__ import annotations

from distsim.arrays import Number, maximum
from distsim.formulas.scans import chunked_scan_flops
from distsim.layers.context_parallel import channels_for_tokens
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import Bias, linear
from distsim.layers.tensor_parallel import column_collectives, row_collectives
from distsim.specs.mixers import Mamba
from distsim.units import FP32_BYTES

CONVOLUTION_PASSES = 2
"""The convolution reads and writes its channels once each, apart from the scan."""
SCAN_BACKWARD = 2.5
"""Products of the scan's backward over forward's: two gradients, and states computed again."""


def mamba(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one mixer; ``source`` is the normalised input."""
    model, layout = ctx.model, ctx.layout
    mixer = model.mamba
    assert mixer is not None
    tokens, act, kept = layout.tokens, ctx.activation, ctx.precision.kept_input_bytes
    heads, groups = mixer.heads / layout.tp, mixer.groups / layout.tp
    inner = heads * mixer.head_dim
    mixed = inner + 2 * groups * mixer.state  # channels of the convolution: x, B, C
    wide = inner + mixed + heads  # and the gate z and the step widths
    project_in = linear(
        ctx, "mamba.project_in", tokens, model.hidden, wide, source, cast_input=True, bias=mixer.bias,
        collectives=column_collectives(ctx),
    )  # fmt: skip
    scanned = FP32_BYTES if mixer.scaled and ctx.precision.autocast else act  # factors are stored in fp32
    y = Tensor("mamba.scan_output", tokens * inner, scanned, "s b e/t")
    gated = Tensor("mamba.gated", tokens * inner, act, "s b e/t")
    read = Tensor("mamba.normalised" if mixer.norm else "mamba.gated", tokens * inner, kept, "s b e/t")
    project_out = linear(
        ctx, "mamba.project_out", tokens, inner, model.hidden, None if ctx.kernels.scan_projects else read,
        bias=(mixer.bias if mixer.output_bias is None else mixer.output_bias) and Bias(whole=True),
        collectives=row_collectives(ctx),
    )  # fmt: skip
    return [
        project_in,
        *([_scaling(ctx, tokens * wide, scanned)] if mixer.scaled else []),
        _scan(ctx, tokens, heads, groups, mixed, wide, y),
        *([_gated_norm(ctx, gated, groups)] if mixer.norm else []),
        project_out,
    ]  # fmt: skip


def _scaling(ctx: Context, elements: Number, each: Number) -> Operation:
    """Fixed factors of the channels; nothing is kept for constants."""
    return Operation("mamba.scaling", "elementwise", bytes_read=elements * ctx.activation,
                     bytes_written=elements * each, shape=(elements,))  # fmt: skip


def _gated_norm(ctx: Context, gated: Tensor, groups: Number) -> Operation:
    """The norm of the gated output; its kernel keeps what it reads, the scan's own computes that again."""
    statistics = Tensor("mamba.norm.statistics", ctx.layout.tokens * groups, FP32_BYTES, "s b g")
    inner = gated.elements / ctx.layout.tokens
    return Operation(
        "mamba.norm", "norm", bytes_read=gated.size_bytes, bytes_written=gated.size_bytes,
        shape=(ctx.layout.tokens, inner), saved=(statistics,) if ctx.kernels.scan_projects else (gated, statistics),
        transient_backward=(gated, gated), recompute_class="norm",
        parameters=(Parameter("mamba.norm.weight", inner, "vector"),),
    )  # fmt: skip


def _scan(
    ctx: Context, tokens: Number, heads: Number, groups: Number, mixed: Number, wide: Number, output: Tensor
) -> Operation:
    """Convolution, scan in chunks, gate: products within chunks and of states, states between chunks."""
    mixer, layout, act = ctx.model.mamba, ctx.layout, ctx.activation
    assert mixer is not None
    inner = heads * mixer.head_dim
    chunk = mixer.chunk if ctx.kernels.scan_chunk is None else ctx.kernels.scan_chunk
    states = tokens / chunk * inner * mixer.state * FP32_BYTES  # one per chunk: written, passed on, read
    # in fp32, and narrowed for products (state-spaces/mamba, ops/triton/ssd_combined.py)
    passed = Tensor("mamba.states", states / FP32_BYTES, FP32_BYTES + act, "s/c b e n")
    flops = chunked_scan_flops(tokens, inner, groups, mixer.state, chunk)
    shared = maximum(groups, layout.cp) * mixer.state  # B or C: ranks that share a group get a copy each
    copies = 2 * (shared - groups * mixer.state)
    projected = Tensor("mamba.projected", tokens * (wide + copies), output.bytes_each, "s b 2e/t")
    return Operation(
        "mamba.scan",
        "scan",
        flops,
        SCAN_BACKWARD * flops,
        bytes_read=projected.size_bytes + CONVOLUTION_PASSES * tokens * (mixed + copies) * act + 2 * states,
        bytes_written=output.size_bytes + 2 * states,
        shape=(tokens, inner, mixer.state),
        saved=(projected, output),
        output=output,
        transient_forward=(passed,),
        transient_backward=(
            output,
            projected,
            projected._replace(name="mamba.convolved", elements=tokens * (mixed + copies)),
            passed,
            passed._replace(name="mamba.state_gradients"),
        ),
        parameters=_scan_parameters(mixer, mixed, heads),
        collectives=channels_for_tokens(
            ctx, *(tokens * width for width in (inner, inner, shared, shared, heads)), tokens * inner
        ),  # gate, x, B, C and step widths; the output
    )


def _scan_parameters(mixer: Mamba, mixed: Number, heads: Number) -> tuple[Parameter, ...]:
    """The convolution's, and three scalars a head: A, D and the bias of the step width."""
    return (
        Parameter("mamba.convolution.weight", mixed * mixer.convolution, "vector"),
        *([Parameter("mamba.convolution.bias", mixed, "vector")] if mixer.convolution_bias else []),
        Parameter("mamba.scan.scalars", 3 * heads, "vector"),
    )
