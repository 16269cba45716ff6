"""What one operation moves through memory, fused or composed of elementary operations.

The ledger says what an operation reads and writes at best. Code that composes it passes over its tensors again for each
elementary step; each step reads its operands and writes its result. The counts follow from the steps.
"""

from __future__ import annotations

from distsim.arrays import Number, maximum, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.chunk_rule import chunk_rule_bytes
from distsim.engine.kernels.distance_passes import DISTANCE_COSTS, distance_bytes, in_plain_torch
from distsim.engine.kernels.expert_modules import picked_gradient_bytes, slice_bytes
from distsim.engine.kernels.expert_passes import EXCHANGES, bias_passes, by_indices, exchange_passes
from distsim.engine.kernels.loss_passes import loss_bytes
from distsim.engine.kernels.mask_passes import mask_bytes
from distsim.engine.kernels.norm_passes import composed_norm, norm_cost, plain_norm_bytes, plain_norms, skips_weights
from distsim.engine.kernels.plain_costs import (
    ADDING_ADAPTER,
    BACKWARD_BYTES,
    CLAMPED_GATE,
    COMPILED_ADAPTER,
    COMPILED_SLICE,
    EAGER_GATE,
    EAGER_SCALED_GATE,
    HALVES_GATE,
    HALVES_SCALED_GATE,
    SLICED,
    SLICED_GATE,
    STRIDED_PACE,
    SUMMED,
    SUMMED_IN_STEPS,
    Cost,
    composed_activation,
    slowed,
)
from distsim.engine.kernels.residual_passes import residual_bytes
from distsim.engine.kernels.rotation_costs import FUSED_ROPE, rotation_cost
from distsim.engine.kernels.softmax_passes import plain_torch, softmax_bytes
from distsim.engine.kernels.stream_passes import stream_passes
from distsim.engine.kernels.unpack_passes import unpack_bytes
from distsim.layers.layer_inputs import SLICE
from distsim.layers.ledger import Operation
from distsim.layers.mlp import COMPOSED_ACTIVATIONS
from distsim.layers.names import (
    COMBINE,
    DISPATCH,
    EXCHANGE,
    EXPERT_ACTIVATION,
    INPUT_CAST,
    KEY,
    MLP_ACTIVATION,
    MLP_UP,
    PREACTIVATION,
    QKV,
    QUERY,
    VALUE,
)
from distsim.units import FP8_BYTES, FP32_BYTES, HALF_BYTES

NORM_BACKWARD, FROZEN_NORM_BACKWARD = 2.5, 1.5
"""What a norm's backward moves over its forward: one kernel reads the output's gradient and the input and writes the
input's gradient, another reads both again for the weight's gradient, so five tensors to forward's two, or three."""
ONCE_MORE = ("adapter",)
"""Kinds whose backward moves what forward moves."""

COMPILED_TABLE_BYTES = 8.0
"""Bytes of an element of a table of words beyond those of its gradient, where inductor sums the rows' gradients in an
fp32 tensor: zeros (4), read again for a cast (4). On an H100 525 million elements take 637 and 1,021 us (profile of
"llama-3-8b by hand" in benchmarks/gpu)."""


def moved_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes through memory, forward and backward, of an operation that is no matrix product."""
    if (own := _counted_elsewhere(setup, operation)) is not None:
        return own
    size = operation.bytes_read + operation.bytes_written
    copied: Number = 0.0
    packed: Number = 0.0
    wide = setup.precision.activation_bytes
    if operation.role == "heads":
        rotated = setup.model.positions == "rotary"
        size = 2 * sum(t.size_bytes for t in operation.saved if t.name in ROTATED) * int(rotated)
        copied = _head_copies(setup, operation) * slowed(STRIDED_PACE, setup.accelerator, wide)
        packed = _packed_gradients(setup, operation)
    if operation.role == "activation" and setup.kernels.activation_kept == "fp8":  # cast to it, and back
        copied = (wide + FP8_BYTES) * sum(t.elements for t in operation.saved if t.name.endswith(PREACTIVATION))
    cost, bias = composed(setup, operation), bias_passes(setup, operation)
    if operation.name in EXCHANGES:
        own = exchange_passes(setup, operation)
        picked = picked_gradient_bytes(setup) + slice_bytes(setup) if operation.name == DISPATCH else 0.0
        return own.forward + bias.forward, own.backward + bias.backward + picked
    if operation.kind == "norm" and plain_norms(setup):
        rows, width = operation.shape[:2]
        read, frozen = operation.bytes_read, skips_weights(setup, operation)
        return plain_norm_bytes(setup.model.norm, composed_norm(setup), rows * width, read, setup.accelerator, frozen)
    slower = slowed(cost.pace, setup.accelerator, wide)
    again = 1.0 if operation.kind in ONCE_MORE else BACKWARD_BYTES
    if operation.kind == "norm":
        again = FROZEN_NORM_BACKWARD if skips_weights(setup, operation) else NORM_BACKWARD
    first, second = size * cost.forward * slower, size * again * cost.backward * slower
    return first + copied + bias.forward, second + copied + packed + bias.backward


def _counted_elsewhere(setup: Setup, operation: Operation) -> tuple[Number, Number] | None:
    """The same of operations whose passes are counted by themselves; None of all others."""
    if operation.kind == "loss":
        return loss_bytes(setup, operation)
    if operation.name == EXCHANGE:
        return _merged_bytes(setup, operation, 0), _merged_bytes(setup, operation, 1)
    if operation.role == "softmax":
        return softmax_bytes(setup, operation)
    if operation.kind == "unpack":
        return unpack_bytes(setup, operation), unpack_bytes(setup, operation)
    if (passes := stream_passes(setup, operation.role)) is not None:
        return operation.shape[0] * HALF_BYTES * passes[0], operation.shape[0] * HALF_BYTES * passes[1]
    if operation.role == "slot masks":
        return mask_bytes(setup, operation)
    if operation.role == "chunk rule":
        return chunk_rule_bytes(setup, operation)
    if in_plain_torch(setup, operation):
        return distance_bytes(setup, operation)
    if operation.role == "residual":
        return residual_bytes(setup, operation)
    if operation.kind == "norm" and setup.kernels.norm_adds:
        return 0.0, 0.0
    if operation.name == MLP_ACTIVATION and setup.kernels.product_epilogues and not setup.model.gated:
        return operation.bytes_written, operation.bytes_read
    return None


def table_gradient_bytes(setup: Setup, operation: Operation) -> Number:
    """What the gradient of a table of words costs beside its rows: zeros as large as the table."""
    if operation.kind != "embedding" or setup.kernels.compiler == "xla":
        return 0.0
    narrow, more = setup.precision.activation_bytes, COMPILED_TABLE_BYTES * fuses_neighbours(setup)
    wide = FP32_BYTES if setup.precision.autocast else narrow
    return sum(p.elements * ((narrow if p.held == "narrow" else wide) + more) for p in operation.parameters if p.trains)


def _packed_gradients(setup: Setup, operation: Operation) -> Number:
    """Gradients of queries, keys and values that become those of one product: torch's split is a view, its backward a
    concatenation. Composed attention in plain torch copies them anyway, XLA places results where they are read."""
    kernels, layout = setup.kernels, setup.layout
    composed_here = layout.attention == "eager" and plain_torch(setup)
    if kernels.qkv_matrices > 1 or kernels.compiler == "xla" or composed_here or setup.model.latent_attention:
        return 0.0
    sizes = [tensor.size_bytes for tensor in operation.saved if tensor.name in PACKED]
    return 2 * sum(sizes)


def _merged_bytes(setup: Setup, operation: Operation, way: int) -> Number:
    """What merges the results of a ring's steps passes over; nothing where there is no ring."""
    kernels, (queries, steps, keys) = setup.kernels, operation.shape
    first = where(steps > 0, 1, 0)
    return queries * (steps * kernels.cp_merge_bytes[way] + first * kernels.cp_first_bytes[way]) + keys * (
        steps * kernels.cp_merge_kv_bytes[way] + first * kernels.cp_first_kv_bytes[way]
    )


def _head_copies(setup: Setup, operation: Operation) -> Number:
    """Copies that batched products of plain torch make of what is not laid out by heads: values and the output, queries
    and keys where no rotation wrote them anew, keys where they are copied to all heads; backward their gradients."""
    if setup.layout.attention != "eager" or not plain_torch(setup):
        return 0.0
    sizes = {tensor.name: tensor.size_bytes for tensor in operation.saved}
    query, key, value = (sizes.get(name, 0.0) for name in PACKED)
    if setup.model.positions == "rotary":
        return 2 * (value + query + key * (setup.model.kv_heads < setup.model.heads))
    return 2 * (query + key + value + query)


def fuses_neighbours(setup: Setup) -> bool:
    """Whether a compiler makes casts and sums part of the kernels beside them."""
    return setup.compiled or setup.kernels.compiler != "none"


def bias_bytes(setup: Setup, operation: Operation) -> Number:
    """Outputs of products that are read and written once more to add a bias."""
    if fuses_neighbours(setup) or setup.kernels.product_bias == "epilogue":
        return 0.0
    return 2 * operation.shape[0] * _biases(operation) * setup.precision.activation_bytes


def _biases(operation: Operation, trained: bool = False) -> Number:
    """Elements of a product's biases, or of those that train."""
    biases = (p for p in operation.parameters if p.is_bias)
    return sum(p.elements for p in biases if p.trains or not trained)


def bias_gradient_bytes(setup: Setup, operation: Operation) -> Number:
    """Gradients of outputs that are read again for the gradient of a bias, which no product gives."""
    if setup.kernels.compiler == "xla" or setup.kernels.product_epilogues:
        return 0.0
    return operation.shape[0] * _biases(operation, trained=True) * setup.precision.activation_bytes


def copied_gradient_bytes(setup: Setup, operation: Operation) -> Number:
    """Weights' gradients that are copied because einsum gives them the other way round."""
    if setup.kernels.linears != "einsum" or fuses_neighbours(setup):
        return 0.0
    own = FP32_BYTES if setup.precision.autocast else setup.precision.activation_bytes
    return 2 * own * sum(one.elements for one in operation.parameters if one.trains and not one.is_bias)


def bias_sums(setup: Setup, operation: Operation) -> int:
    """Kernels of plain torch that sum gradients of outputs over all tokens for those of biases."""
    biased = any(p.is_bias and p.trains for p in operation.parameters)
    return matrices(setup, operation) if biased and plain_torch(setup) and not fuses_neighbours(setup) else 0


def input_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Copies and casts of what a product reads, forward; backward those of the gradients, and sums of these."""
    (first, second), (copied, given) = _cast_bytes(setup, operation), _edge_bytes(setup, operation)
    return first + copied, second + given


def _cast_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Casts of what autocast finds in fp32 before a product, forward; backward those of the gradients, and the sum of
    the gradients of separate modules, which there is without autocast, too."""
    if fuses_neighbours(setup):
        return 0.0, 0.0
    if not setup.precision.autocast:
        tokens, _, inner, copies = operation.shape
        more = matrices(setup, operation) - 1
        return 0.0, SUMMED * more * tokens * inner * copies * setup.precision.activation_bytes
    if setup.kernels.norm_adds:
        return 0.0, 0.0  # the norm gives 16 bits
    cast = sum(tensor.elements for tensor in operation.saved if tensor.name.endswith(INPUT_CAST))
    each = FP32_BYTES + setup.precision.activation_bytes
    tokens, _, inner, copies = operation.shape
    sums = SUMMED * FP32_BYTES * maximum(cast - tokens * inner * copies, 0.0)
    return cast * each, cast * each + sums


def _edge_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Copies where a tensor parallel region begins, of what each module reads, and backward of the gradient that its
    last product gets, without sequence parallelism."""
    if not setup.kernels.input_copies:
        return 0.0, 0.0
    reduced = [one for one in operation.collectives if one.group == "tp" and one.op == "all_reduce"]
    forward = sum(one.bytes_logical * one.matrices for one in reduced if one.phase == "backward")
    return 2 * forward, sum(2 * one.bytes_logical for one in reduced if one.phase == "forward")


def matrices(setup: Setup, operation: Operation) -> int:
    """Modules that an operation stands for."""
    if operation.name == QKV:
        return setup.kernels.qkv_matrices
    return 2 if operation.name == MLP_UP and setup.model.gated and not setup.kernels.gate_up_fused else 1


ROTATED = (QUERY, KEY)
PACKED = (*ROTATED, VALUE)


def clamped(setup: Setup, operation: Operation) -> bool:
    """Whether plain torch clamps what experts' activation reads."""
    experts = setup.model.experts
    apart = setup.kernels.expert_clamp != "fused" and not setup.compiled
    return operation.name == EXPERT_ACTIVATION and apart and experts is not None and experts.clamp


def halves(setup: Setup) -> bool:
    """Whether an eager gated activation reads both halves of one product's output, as Megatron's MLP chunks it."""
    return setup.kernels.gate_up_fused and setup.kernels.gate_halves


def composed(setup: Setup, operation: Operation) -> Cost:
    """How much more than one kernel the framework's code for this operation moves and launches."""
    kernels, model = setup.kernels, setup.model
    if operation.kind == "adapter" and setup.framework.adapters.summed == "product":
        return ADDING_ADAPTER
    if setup.compiled or kernels.compiler == "xla":
        if operation.kind == "adapter":
            return COMPILED_ADAPTER
        if operation.name == SLICE:
            return COMPILED_SLICE
        return FUSED_ROPE if operation.role == "heads" and model.positions == "rotary" else Cost()
    if in_plain_torch(setup, operation):
        return DISTANCE_COSTS[operation.role]
    if operation.kind == "norm":
        return norm_cost(setup)
    if operation.name == SLICE:
        return SLICED
    if operation.role == "heads" and model.positions == "rotary":
        return rotation_cost(setup)
    if clamped(setup, operation):
        return SLICED_GATE if kernels.expert_clamp == "sliced" else CLAMPED_GATE
    if operation.name == COMBINE and by_indices(setup):
        return SUMMED_IN_STEPS
    if operation.role == "activation" and kernels.activation != "fused":
        if model.activation in COMPOSED_ACTIVATIONS and kernels.activation == "eager":
            return composed_activation(model.activation, setup.precision.autocast, model.gated)
        if model.gated:
            scaled = operation.name == EXPERT_ACTIVATION and kernels.expert_scale == "before"
            if halves(setup):
                return HALVES_SCALED_GATE if scaled else HALVES_GATE
            return EAGER_SCALED_GATE if scaled else EAGER_GATE
    return Cost()
