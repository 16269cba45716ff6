"""Experts that are modules of Python, one after another, as transformers had them before 5.0.

Each asks the GPU which tokens are its own (``torch.where`` over its mask), for which the host waits, picks them, runs
its MLP, weighs the result and adds it to that of the others (``index_add_``).
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.expert_buffers import sliced_gradient_bytes
from distsim.layers.expert_slices import slice_bytes_each
from distsim.layers.ledger import Operation
from distsim.layers.names import COMBINE, DISPATCH, EXPERT_ACTIVATION, EXPERTS

EXPERT_MODULE = {
    DISPATCH: ((6, 10), (4, 3)), EXPERTS[0]: ((2, 5), (2, 5)), EXPERT_ACTIVATION: ((2, 3), (2, 3)),
    EXPERTS[1]: ((1, 2), (1, 2)), COMBINE: ((3, 14), (3, 7)),
}  # fmt: skip
"""What one expert runs, forward and backward, in kernels and in operations that the host issues: finding its tokens
(counting, selecting, writing indices) and picking them, gate and up apart, activation and product, down, weighing and
adding. Backward each of the two picks is zeros as large as what was picked from and an ``index_put_`` that sorts its
indices (six kernels), added to what other experts gave."""
SLICED = dict.fromkeys(EXPERTS, ((1, 5), (2, 5)))
"""The same where an expert's matrices are slices of two tensors: gate and up are one product, and backward each
gradient is zeros as large as the tensor, filled in where the slice is, and added to those before it (torch 2.13,
select_backward and the sums of autograd/input_buffer.cpp, as its profiler lists them on a CPU)."""
SLICE_WAITS = 3
"""Further waits of such an expert: its number is on the GPU, and each of a mask and two tensors that it indexes copies
it to the host (aten::_local_scalar_dense)."""
AFTER_FOUND = 2.0
"""Operations that the host issues while the GPU has nothing to do, once it knows how many tokens an expert has."""
PICKED_PASSES = 4
"""Passes over the gradient of all tokens for each expert: zeros are written; two are read and their sum is written."""


def by_module(setup: Setup) -> bool:
    """Whether each expert picks its own tokens from all."""
    return setup.kernels.expert_products == "modules" and setup.kernels.expert_tokens == "chosen"


def times_issued(setup: Setup, operation: Operation) -> Number:
    """How often a rank issues an operation of its experts: for each of them where they are MLPs like a dense layer's,
    one after another (Megatron core's moe/experts.py, SequentialMLP); else once for all."""
    in_turn = setup.kernels.expert_products == "sequential" and operation.name in (*EXPERTS, EXPERT_ACTIVATION)
    return local_experts(setup) if in_turn else 1


def local_experts(setup: Setup) -> Number:
    """Routed experts of one rank; none of a dense model."""
    experts = setup.model.experts
    return 0.0 if experts is None else experts.count / setup.layout.ep


def picked_gradient_bytes(setup: Setup) -> Number:
    """What each expert that picked its tokens adds to the gradient of all of them: zeros as large, filled in where its
    tokens are, and added to what the others gave."""
    if not by_module(setup) or setup.model.experts is None:
        return 0.0
    width = setup.model.experts.latent or setup.model.hidden
    tokens = setup.layout.tokens / setup.layout.tp
    return local_experts(setup) * PICKED_PASSES * tokens * width * setup.precision.activation_bytes


def slice_bytes(setup: Setup) -> Number:
    """What a rank's experts add to the backward pass of a layer where their matrices are slices and train."""
    experts, local = setup.model.experts, local_experts(setup)
    if experts is None or not (setup.kernels.expert_slices and by_module(setup)) or setup.tuning is not None:
        return 0.0
    width, each = experts.latent or setup.model.hidden, slice_bytes_each(setup.precision)
    matrix = local * experts.ffn / setup.layout.etp * width * each
    outer = matrix * (2 if setup.model.gated else 1)
    return sliced_gradient_bytes(local, outer) + sliced_gradient_bytes(local, matrix)


def waited(setup: Setup) -> Number:
    """Operations of a layer's forward that the GPU waits for."""
    waits = 1 + SLICE_WAITS * setup.kernels.expert_slices
    return local_experts(setup) * AFTER_FOUND * waits if by_module(setup) else 0.0


def launched(
    setup: Setup, operation: Operation, adapted: tuple[Number, Number]
) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """Kernels, and operations of the host, of a rank's experts; what is counted for all of them at once is not taken
    off. Adapters of an expert take as many as ``adapted`` each."""
    base = operation.adapts or operation.name
    if not by_module(setup) or base not in EXPERT_MODULE:
        return (0.0, 0.0), (0.0, 0.0)
    own = not operation.adapts
    counts = EXPERT_MODULE | SLICED if setup.kernels.expert_slices else EXPERT_MODULE
    kernels, issued = counts[base] if own else (adapted, adapted)
    without = counts[base][0][0] + (3 if setup.kernels.expert_slices else 0)  # of a weight's gradient and its slice
    frozen = int(own and operation.kind == "matmul" and not operation.weight_gradient) * without
    experts = local_experts(setup)
    return (
        (experts * kernels[0], experts * (kernels[1] - frozen)),
        (experts * issued[0], experts * (issued[1] - frozen)),
    )
