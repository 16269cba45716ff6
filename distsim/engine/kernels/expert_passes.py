"""What experts move besides their products: tokens put in their order and back, biases, clamped activations.

Counts are bytes per element of two bytes, of kernels written for it or of plain torch's, which read and write the
tokens of all experts once more for each step and add up rows that share a token or an expert by sorted indices.
"""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, maximum, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.expert_load import expert_spread
from distsim.engine.kernels.expert_modules import local_experts
from distsim.engine.kernels.plain_costs import BACKWARD_BYTES, STRIDED_PACE, WIDE_BROADCAST_PACE, slowed
from distsim.layers.ledger import Operation
from distsim.layers.names import COMBINE, DISPATCH, EXPERT_ACTIVATION

EXCHANGES = (DISPATCH, COMBINE)
ORDERED_TWICE = 2.0
"""Passes over routed tokens on each side of an all-to-all, over one where what sends them orders them (Megatron core,
moe/token_dispatcher.py: permute before, sort_chunks_by_idxs after; pytorch/torchtitan, the file of that name: its
_local_reorder before, _permute after)."""
PADDING_ROW = 1.0
"""Passes over routed tokens that put a row of zeros behind them, which padding then reads (torch.vstack in
pytorch/torchtitan models/moe/utils.py, _permute, of 2025)."""
COMPOSED_BIAS = (28.0, 40.0)
"""Bytes per element of an expert's output, forward and backward, of its bias times the router's weight where torch
composes it: product in fp32 (4), sum (10), concatenation (8), cast (6); cast (6), gradients of the sum (6), of the bias
and of the weights (12 each), concatenation (4)."""
COMPOSED_BIAS_KERNELS = ((2, 2), (8, 3))
"""Kernels of the same, of each expert and of all together, forward and backward: a product and a sum; a concatenation
and a cast; backward two casts, two products and two sums, and gradients of both products' biases added to what buffers
hold; a cast and two concatenations (Megatron core 0.16.1 transformer/moe/experts.py, TEGroupedMLP._apply_bias)."""
FROZEN_BIAS_KERNELS = 3
"""Of each expert backward, where its biases do not train: a cast, and product and sum for the router's weights."""
COMPILED_INDEXING = 1.0
"""Time of a compiler's kernel that takes rows by index over that of a pass over the same bytes: of 94 layers of Qwen3
235B on B300, 16,384 tokens each, dispatch and combination take 0.71 s a step (PrimeIntellect-ai/prime-rl
performance.md of its documentation, 1a8e0274), where this gives 0.66 s and torch's own indexing 1.37 s."""
INDEX_ADDED = 8.0
"""Time of torch's index_put_ that adds (the backward of ``x[indices]``), over that of a pass over the same bytes: it
sorts indices and adds up the rows of each one after another. 196,608 rows of 2,048 in bf16 take 1.85 ms on a B200 (6.7
times; pytorch/ao pull request 4623), 65,536 rows of 4,096 from 8,192 tokens 2.3 ms where kernels written for it take
0.2 (about 9.6 times, of an H100's bandwidth; DeepLink-org/DLBlas pull request 66)."""


class Steps(NamedTuple):
    """Bytes per element of two bytes: of kernels as fast as memory, of products by one weight for a whole row, of rows
    that an index takes, and of rows added where an index says."""

    plain: float
    broadcast: float = 0.0
    taken: float = 0.0
    added: float = 0.0


COMBINED = {
    "compiled": (Steps(4.0, added=6.0), Steps(2.0, taken=4.0)),
    "eager": (Steps(12.0, broadcast=8.0, added=6.0), Steps(12.0, broadcast=24.0, taken=4.0)),
}
"""Plain torch's weighted sum of what experts give, forward and backward. Forward: cast to fp32 (6), product by the
router's weight (8, broadcast), cast (6), or all in one kernel (4); rows added where their token is (two read, one
written: 6). Backward: rows of the sum's gradient taken (4), cast (6), product (8, broadcast), product for the weights'
gradient and its sum (16, broadcast), cast (6), or all but the rows in one kernel (2). Source: pytorch/torchtitan
models/common/token_dispatcher.py, combine."""
SELECTED = ((Steps(0.0, taken=4.0), Steps(0.0, added=6.0)), (Steps(0.0, added=6.0), Steps(0.0, taken=4.0)))
"""What is moved, forward and backward, of rows that a dispatcher which sends tokens once leaves to torch: taken by
index for each expert (read and written), whose gradients are added where they came from (two read, one written), and
results that are added likewise, whose gradients are taken. Source: pytorch/torchtitan distributed/deepep/deepep.py,
_permute_tokens (index_select) and _unpermute_tokens (scatter_add_); routers' weights are the activation's."""
CHAINED_ROW_SECONDS = 1.0e-6
"""Time of one row in a sum that ``bias[expert_ids]`` leaves to index_put_: each group of threads takes the rows of one
index one after another, of which each is a load from memory and a sum written through the cache (pytorch/pytorch
aten/src/ATen/native/cuda/Indexing.cu, indexing_backward_kernel), so that the busiest expert's rows take as long however
few columns there are. mlc-ai/pith-train (operators/indexed_bias_add.py, pull request 34) found 48% of GPT-OSS 20B's
time in it on eight B200, and 29 of 60 s fewer without: 0.8 to 1.2 us a row of an expert with twice the mean."""
LOOPED_BIAS = (4.0, 2.0)
"""Bytes per element of an expert's product where a loop over experts adds each one's bias: read and written; the
gradient summed over rows."""
REPEATED_BIAS = (8.0, 0.0)
"""Bytes per element of an expert's product where its bias is repeated for each token and added, beside the gradient's
sum by expert: written (2), added (6). A compiler makes both part of what reads them."""


class Passes(NamedTuple):
    """Bytes through memory, forward and backward."""

    forward: Number
    backward: Number


def by_indices(setup: Setup) -> bool:
    """Whether plain torch's indexing puts tokens in the experts' order."""
    return setup.kernels.expert_index != "fused" and setup.kernels.expert_tokens != "all"


def exchange_passes(setup: Setup, operation: Operation) -> Passes:
    """Putting tokens in the experts' order, or back."""
    size = operation.bytes_read + operation.bytes_written
    if not by_indices(setup):
        size = size * _orderings(setup)
        return Passes(size, size * BACKWARD_BYTES)
    indexed = _indexed(setup, operation)
    if setup.framework.traffic.expert_copies != "once" or setup.kernels.expert_rows_once != "selected":
        return indexed
    routed, width = operation.shape
    each = routed * width * setup.precision.activation_bytes / 2
    apart = setup.layout.ep > 1  # what sends nothing orders nothing
    return Passes(*(where(apart, each * _bytes(setup, own), other) for own, other in
                    zip(SELECTED[operation.name == COMBINE], indexed, strict=True)))  # fmt: skip


def _bytes(setup: Setup, steps: Steps) -> float:
    """Bytes per element that take as long at the pace of memory."""
    added = COMPILED_INDEXING if compiled_around(setup) else _strided(setup)
    broadcast = slowed(WIDE_BROADCAST_PACE, setup.accelerator)
    return steps.plain + broadcast * steps.broadcast + _taken_pace(setup) * steps.taken + added * steps.added


def _taken_pace(setup: Setup) -> float:
    """Time of taking rows by index over that of a pass over the same bytes."""
    if compiled_around(setup):
        return COMPILED_INDEXING
    return 1.0 if setup.kernels.rows_taken == "vectorised" else _strided(setup)


def _strided(setup: Setup) -> float:
    """How much slower kernels are that compute where each element lies."""
    return slowed(STRIDED_PACE, setup.accelerator, setup.precision.activation_bytes)


def _indexed(setup: Setup, operation: Operation) -> Passes:
    """The same by plain torch's indexing, on both sides of collectives that send a token to each of its experts."""
    routed, width = operation.shape
    experts = setup.model.experts
    assert experts is not None
    slower = _taken_pace(setup)
    copied = 2 * routed * width * setup.precision.activation_bytes  # read and written
    padded = 1.0 if setup.kernels.expert_padding else 0.0
    once = setup.framework.traffic.expert_copies == "once"  # what sends a token once per rank needs no order before
    again = where(setup.layout.ep > 1, 0.0 if once else ORDERED_TWICE - 1, padded)
    if operation.name == DISPATCH:
        added = copied / 2 * (1 + 1 / experts.per_token) + again * copied
        return Passes(copied * (slower * (1 + again) + padded * PADDING_ROW), INDEX_ADDED * added)
    steps = COMBINED["compiled" if compiled_around(setup) else "eager"]
    wide = setup.precision.activation_bytes / 2
    return Passes(*(routed * width * _bytes(setup, each) * wide + slower * again * copied for each in steps))


def _orderings(setup: Setup) -> Number:
    """Passes over routed tokens on each side of an exchange; a dispatcher that a job asks for has no say on a rank
    that sends nothing."""
    among, alone = setup.kernels.expert_order, setup.kernels.expert_order_alone
    passes = {"around": ORDERED_TWICE, "fused": 1.0}
    return passes[among] if alone is None else where(setup.layout.ep > 1, passes[among], passes[alone])


def compiled_around(setup: Setup) -> bool:
    """Whether a compiler takes in what stands between experts' products and the indexing."""
    return setup.compiled and setup.kernels.expert_index != "eager"


def bias_passes(setup: Setup, operation: Operation) -> Passes:
    """Biases of the experts' product whose result an operation reads."""
    kind, experts = setup.kernels.expert_bias, setup.model.experts
    if experts is None or not experts.bias or kind == "fused" or operation.name not in (EXPERT_ACTIVATION, COMBINE):
        return Passes(0.0, 0.0)
    last = operation.name == COMBINE
    if kind == "composed":
        rows, width = operation.shape if last else (0, 0)
        return Passes(*(rows * width * each for each in COMPOSED_BIAS))
    rows, width = operation.shape if last else (operation.shape[0], 2 if setup.model.gated else 1)
    elements = rows * width
    frozen = setup.tuning is not None
    if kind == "indexed" and setup.kernels.expert_products == "modules":
        return Passes(elements * LOOPED_BIAS[0], 0.0 if frozen else elements * LOOPED_BIAS[1])
    forward, backward = (0.0, 0.0) if compiled_around(setup) else REPEATED_BIAS
    summed = elements * INDEX_ADDED * setup.precision.activation_bytes
    if kind == "indexed":
        summed = maximum(summed, _chained(setup, elements / (experts.ffn * width) if not last else rows))
    return Passes(elements * forward, 0.0 if frozen else elements * backward + summed)


def bias_kernels(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Kernels of biases that a loop in Python adds to each expert's output, forward and backward."""
    experts = setup.model.experts
    if experts is None or not experts.bias or operation.name != COMBINE or setup.kernels.expert_bias != "composed":
        return 0.0, 0.0
    (forward, once), (backward, behind) = COMPOSED_BIAS_KERNELS
    own = local_experts(setup)
    return own * forward + once, own * (backward if setup.tuning is None else FROZEN_BIAS_KERNELS) + behind


def _chained(setup: Setup, rows: Number) -> Number:
    """The busiest expert's rows one after another, as bytes that memory would move meanwhile."""
    each = rows / local_experts(setup)
    busiest = each * (1 + expert_spread(setup, each))
    return CHAINED_ROW_SECONDS * busiest * setup.accelerator.pass_bandwidth
