"""The Mamba-1 mixer (Gu and Dao 2023, arXiv:2312.00752): projections around a convolution and a scan of each channel.

``--attention flash`` is the fused kernel that training uses (``mamba_inner_fn`` of state-spaces/mamba): it keeps the
projections' outputs and the scan's, and computes all between them again in backward. ``eager`` is what transformers
composes where that kernel is not installed, token by token, which keeps every state.
"""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, where
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.units import FP32_BYTES

CHUNK = 2048
"""Tokens after which the fused scan writes down its states (selective_scan_fwd_kernel.cuh, ``n_chunks``)."""
PAIR = 2
"""Values of one element of the scan: a decay and a state."""
FUSED_READS, FUSED_WRITES = 4, 3
"""Tensors of the inner width that the fused kernels read forward (the convolution's input and output, step widths,
gate) and write (the convolution's output, the scan's before and after the gate)."""
SCAN_FLOPS = 9
"""Operations per token, channel and state (Gu and Dao 2023, arXiv:2312.00752, appendix C: 9 B L D N)."""
SCAN_BACKWARD = 3
"""Operations of backward over forward's: the states again, and two gradients of each."""


def selective_scan(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one mixer; ``source`` is the normalised input."""
    model, tokens, act = ctx.model, ctx.layout.tokens, ctx.activation
    mixer = model.mamba
    assert mixer is not None and mixer.step_rank is not None
    inner, narrow = mixer.heads, mixer.step_rank + 2 * mixer.state
    fused = ctx.layout.attention == "flash"
    rows = tokens * inner * where(ctx.layout.micro_batch > 1, 1, 0)  # one sequence alone is transposed as a view
    convolved = None if fused else Tensor("mamba.convolved_rows", rows, act, "s b e")
    steps = None if fused else Tensor("mamba.steps_state", tokens * narrow, act, "s b r+2n")
    gated = None if fused else Tensor("mamba.gated", tokens * inner, act, "s b e")
    return [
        linear(ctx, "mamba.project_in", tokens, model.hidden, 2 * inner, source, bias=mixer.bias, sharded=False,
               cast_input=True),
        linear(ctx, "mamba.project_state", tokens, inner, narrow, convolved, sharded=False),
        linear(ctx, "mamba.project_step", tokens, mixer.step_rank, inner, steps, bias=True, sharded=False),
        _scan(ctx, inner, narrow, _fused(ctx, inner, narrow) if fused else _composed(ctx, inner)),
        linear(ctx, "mamba.project_out", tokens, inner, model.hidden, gated, bias=mixer.bias, sharded=False),
    ]  # fmt: skip


def _scan(ctx: Context, inner: int, narrow: int, saved: list[Tensor]) -> Operation:
    """Convolution, step widths, scan and gate: elementwise work, bound by memory or by vector units."""
    mixer, tokens, act = ctx.model.mamba, ctx.layout.tokens, ctx.activation
    assert mixer is not None
    parameters = [Parameter("mamba.convolution.weight", inner * mixer.convolution, "vector")]
    if mixer.convolution_bias:
        parameters.append(Parameter("mamba.convolution.bias", inner, "vector"))
    parameters += [
        Parameter("mamba.scan.decays", inner * mixer.state, "vector"), Parameter("mamba.scan.skip", inner, "vector"),
    ]  # fmt: skip
    if mixer.inner_norms:
        parameters.append(Parameter("mamba.inner_norms.weight", narrow, "vector"))
    whole, flops = tokens * inner * act, SCAN_FLOPS * tokens * inner * mixer.state
    kept = sum(tensor.size_bytes for tensor in saved)
    fused = ctx.layout.attention == "flash"
    return Operation(
        "mamba.scan",
        "elementwise",
        flops,
        SCAN_BACKWARD * flops,
        FUSED_READS * whole + tokens * narrow * act if fused else kept,
        FUSED_WRITES * whole if fused else kept,
        shape=(tokens * inner,),
        saved=tuple(saved),
        output=Tensor("mamba.scan_output", tokens * inner, act, "s b e"),
        transient_backward=(
            Tensor("mamba.scan_gradient", 2 * tokens * inner, act, "s b 2e"),
            Tensor("mamba.convolved", PAIR * tokens * inner, act, "s b 2e"),
            *(() if fused else _sums(tokens * inner * mixer.state)),
        ),
        parameters=tuple(parameters),
    )


def _sums(grown: Number) -> tuple[Tensor, ...]:
    """Gradients of all tokens' decays and inputs, to which plain operations add what each token's step gives: a tensor
    as large, of zeros but for that token (torch's select_backward)."""
    whole = Tensor("mamba.decay_gradients", grown, FP32_BYTES, "s b e n fp32")
    return whole, whole._replace(name="mamba.input_gradients"), whole._replace(name="mamba.token_gradients")


def _states(ctx: Context) -> tuple[int, Tensor]:
    """States of one channel, and what the decays of all channels keep: they are stored as logarithms."""
    mixer = ctx.model.mamba
    assert mixer is not None
    return mixer.state, Tensor("mamba.decays", mixer.heads * mixer.state, FP32_BYTES, "e n fp32")


def _fused(ctx: Context, inner: int, narrow: int) -> list[Tensor]:
    """What the fused kernel keeps."""
    layout, act = ctx.layout, ctx.activation
    state, decays = _states(ctx)
    chunks = layout.micro_batch * ceil_div(layout.seq, CHUNK)
    return [
        Tensor("mamba.projected", layout.tokens * 2 * inner, act, "s b 2e"),
        Tensor("mamba.steps_state", layout.tokens * narrow, act, "s b r+2n"),
        Tensor("mamba.state_inputs", layout.tokens * 2 * state, act, "s b 2n"),
        Tensor("mamba.scan_output", layout.tokens * inner, act, "s b e"),
        Tensor("mamba.scan_states", chunks * inner * PAIR * state, FP32_BYTES, "b e 2n fp32"),
        decays,
    ]


def _composed(ctx: Context, inner: int) -> list[Tensor]:
    """What plain operations keep: decays, inputs and states of every token, and each factor of a product."""
    layout, act, mixer = ctx.layout, ctx.activation, ctx.model.mamba
    assert mixer is not None
    state, decays = _states(ctx)
    autocast, wide = ctx.precision.autocast, act == FP32_BYTES
    tokens: Number = layout.tokens
    step = FP32_BYTES if autocast else act
    rows, grown = tokens * inner, tokens * inner * state
    first = layout.micro_batch * inner * state  # the state before the first token
    padded = layout.micro_batch * (layout.seq + mixer.convolution - 1) * inner
    found = [
        Tensor("mamba.projected", 2 * rows, act, "s b 2e"),
        Tensor("mamba.convolution_output", padded, act, "s b e"),
        Tensor("mamba.step_logits", rows, step, "s b e"),
        Tensor("mamba.steps", rows, step, "s b e"),
        Tensor("mamba.convolved", rows, act, "s b e"),
        Tensor("mamba.gate", rows, act, "s b e"),
        Tensor("mamba.scan_output", rows, FP32_BYTES, "s b e fp32"),
        Tensor("mamba.state_inputs", tokens * state, FP32_BYTES, "s b n fp32"),
        Tensor("mamba.decays_of_tokens", grown, FP32_BYTES, "s b e n fp32"),
        Tensor("mamba.inputs_of_tokens", grown, FP32_BYTES, "s b e n fp32"),
        Tensor("mamba.states", grown + first, act, "s b e n"),
        decays._replace(elements=2 * decays.elements),
    ]
    if not wide:  # each state in fp32 for the next token, beside its narrow copy for the output
        found.append(Tensor("mamba.states_fp32", grown - first, FP32_BYTES, "s b e n fp32"))
        found.append(Tensor("mamba.convolved_fp32", rows, FP32_BYTES, "s b e fp32"))
    if autocast:
        found.append(Tensor("mamba.convolution_input", rows, act, "s b e"))
    return found
