"""How many kernels an operation runs, what of them the host issues, and where the GPU waits for it."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, where
from distsim.engine.jobs.narrow import wide_here
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels import expert_modules
from distsim.engine.kernels.captured import captured
from distsim.engine.kernels.chunk_rule import chunk_rule_kernels
from distsim.engine.kernels.expert_passes import bias_kernels
from distsim.engine.kernels.norm_passes import weight_kernels
from distsim.engine.kernels.passes import clamped, composed, fuses_neighbours, halves, matrices
from distsim.engine.kernels.plain_costs import SOFTCAP_KERNELS
from distsim.engine.kernels.plain_launches import beside_attention, beside_products, einsum_issue
from distsim.engine.kernels.quantise import casts_weights, makes_weight_gradient
from distsim.engine.kernels.residual_passes import casts_branches
from distsim.engine.kernels.softmax_passes import (
    SOFTMAX_STEPS_KERNELS,
    WRITTEN_KERNELS,
    composed_kernels,
    composed_softmax,
    plain_torch,
)
from distsim.engine.kernels.stream_passes import streams_in_torch
from distsim.layers.ledger import Operation
from distsim.layers.names import DISPATCH, EMBEDDING, EXCHANGE, EXPERTS, HEAD, ROUTER
from distsim.specs.timing import CORE_SECONDS, MODULE_SECONDS, OPERATION_SECONDS

KERNELS = {"matmul": (1, 2), "attention": (1, 2), "norm": (1, 2), "elementwise": (1, 1), "embedding": (2, 2),
           "loss": (4, 2), "copy": (8, 8), "collective": (0, 0), "adapter": (3, 3), "unpack": (2, 2),
           "scan": (6, 14)}  # fmt: skip
"""Kernels that a fused operation launches forward and backward; ``copy`` is an expert's dispatch: sort, count, permute;
``adapter`` is all of an adapter but its products: cast, drop, scale, add."""
ROUTER_KERNELS = (12, 8)
"""What a router composed of plain operations launches beside its product: scores in fp32, the best of them, masks,
counts, auxiliary loss. Assumed, of the number of such steps; no source gives it."""
PLAIN_ISSUE = OPERATION_SECONDS / CORE_SECONDS
"""Host time of a plain operation of torch, over that of one that goes through a module of Megatron or Transformer
Engine."""
PARALLEL_LINEAR_ISSUE = 0.55
"""Host time of a product in Megatron's own parallel linear layer over that of one in a module of Transformer Engine: in
Megatron-LM's tests a layer of four products takes the host 0.7 ms longer with the latter, 175 us of 385 a product
(docs/findings/finetuning.md)."""
MODULE_ISSUE = CORE_SECONDS / MODULE_SECONDS
"""Host time of an operation of a Transformer Engine layer over that of a module of plain torch."""
IN_LAYERS = ("matmul", "norm", "attention", "elementwise")
"""Kinds of operations that Transformer Engine's layers hold; embedding and loss stay torch's."""
DETERMINISTIC_ISSUE = 1.15
"""Host time of operations under torch's deterministic algorithms, which fill whatever an operation allocates by a
kernel of its own (torch.utils.deterministic.fill_uninitialized_memory), over that without: Megatron-LM's tests with and
without --deterministic-mode."""
DTENSOR_ISSUE = {"matmul": (5.8, 12.8), "norm": (5.2, 10.6)}
"""What modules cost the host more on torch's DTensors, which find out how each result is sharded, forward and backward,
in operations of plain modules: a linear layer takes 199 and 456 us where a plain one takes 18 and 58, RMSNorm 192 and
407 where 32 and 77 (benchmarks/dtensor_issue.py: torch 2.13 on a CPU, a fake process group), which count three
operations each, 31 us one. Compiled layers do that once."""
REDISTRIBUTE_ISSUE = 6.6
"""The same of an exchange: PrepareModuleInput gathers in 224 us and back in 211, RowwiseParallel scatters in 181 more
than a linear layer, and back in 210."""
AUTOCAST_KERNELS = 2
"""Casts of autocast around a product, each way: of its input and weight, and of their gradients; a bias is one more
(torch's autocast_mode.cpp casts every argument of linear; weights once per module and pass)."""
CAST_ISSUE = 0.2
"""Host time of such a cast, which no line of Python calls, over that of an operation issued from Python (assumed); of a
kernel that quantises piece by piece, too: torchao's eager linear layers take 129 and 234 us more than plain ones with a
scale per tensor, 22 and 44 kernels, 146 and 306 us with one per row, 28 and 56, where a plain module's operation takes
25 to 31 (benchmarks/float8_issue.py: torch 2.13, torchao 0.18)."""
FROZEN_KERNELS = 1
"""Kernels of the backward of a product whose weights are frozen."""
CALL_KERNELS = 1.0
"""Host work of issuing one collective, in kernels: it has one, which the host issues like any other."""
EXPERT_KERNELS = {"wide": ((1, 0), (2, 0)), "narrow": ((1, 3), (2, 5))}
"""Kernels of one expert in a loop over a rank's experts, forward and backward: its products, and in 8 or 4 bits the
quantisation of its tokens or their gradients and the reordering of both operands' scales for each product."""
LOOP_PRODUCT_ISSUE = 0.15
"""Host time of a product in such a loop of compiled code, over that of an operation issued from Python: 24 us of 160.
cuBLASLt is asked for an algorithm each time, and inputs and outputs are cut and made for each expert (Transformer
Engine's issue 1499). Runs of Qwen3-30B-A3B at one sequence a rank say 24 to 36 us (docs/findings/experts.md)."""
LOOP_ISSUE = 0.05
"""The same of a kernel of quantisation: 8 us; the same runs say 8 to 12. Of one that adds an expert's bias, too: a
product and a sum take 9 us forward and the six of backward 22 on a CPU (torch 2.13, one thread), beside about 5 us for
each launch."""
AFTER_COUNTS = 0.25
"""Part of a dispatch that the host issues while the GPU has nothing to do, once it has read how many tokens each expert
got: what sorts tokens by expert; all later kernels are issued while that runs (assumed: two of its eight kernels)."""
AFTER_COPY = 1.0
"""Operations that the host issues while the GPU has nothing to do, once it has waited for a copy to the GPU."""
GRAPHED_GAP = 0.3
"""Time between two kernels of a CUDA graph, over that between two that were issued one by one: about 1.5 us against 5
(NVIDIA, Constant Time Launch for Straight-Line CUDA Graphs, 2024; recalled)."""
MIXING_KERNELS = (6, 8)
"""Launches of plain torch for each step towards a doubly stochastic matrix between streams: sums of rows and columns, a
small number added to each, two divisions; backward the gradients of both factors (transformers 5.23, models/
deepseek_v4)."""


GATED_STREAM_KERNELS = {"stream sum": (7, 11), "stream spread": (2, 5)}
"""Launches of plain torch where streams' elements have gates: sigmoids, products, a mean, and what divides and doubles
weights; backward also sums of gradients (counted as GATED_STREAM_PASSES of stream_passes.py)."""


class Launches(NamedTuple):
    """Kernels and host work of one operation, as (forward, backward)."""

    kernels: tuple[Number, Number]
    """On the GPU, as gaps between them count."""
    issued: tuple[Number, Number]
    """Work of the host, in operations issued from Python."""
    waits: Number
    """Part of forward's that the GPU waits for: its queue is empty when the host has read the router's counts, or has
    waited for a copy."""


def launches(setup: Setup, operation: Operation) -> Launches:
    """What an operation runs on the GPU and costs the host."""
    before, after = _single(setup, operation)
    times = expert_modules.times_issued(setup, operation)
    before, after = before * times, after * times
    (more, later), (more_issued, later_issued) = _each_expert(setup, operation)
    again, looped = expert_modules.launched(setup, operation, KERNELS[operation.kind])
    forward, backward = _plain(setup, operation)
    plain, (gaps, ring) = (forward * times, backward * times), _ring_steps(setup, operation)
    for way in (beside_products(setup, operation), beside_attention(setup, operation)):
        before, after = before + way[0], after + way[1]
    biases = bias_kernels(setup, operation)
    kernels = before + more + again[0] + biases[0], after + later + again[1] + biases[1]
    slower = DETERMINISTIC_ISSUE if setup.kernels.deterministic else 1.0
    own = _adapter_issue(setup, operation) * _module_issue(setup, operation) * _rule_issue(setup, operation)
    issued = (
        (before * own + plain[0] * PLAIN_ISSUE + more_issued + looped[0] + biases[0] * LOOP_ISSUE) * slower,
        (after * own + plain[1] * PLAIN_ISSUE + later_issued + looped[1] + biases[1] * LOOP_ISSUE) * slower,
    )
    issued = issued[0] + ring[0] * PLAIN_ISSUE * slower, issued[1] + ring[1] * PLAIN_ISSUE * slower
    cast, sharded, slow = _casts(setup, operation), _on_dtensors(setup, operation), einsum_issue(setup, operation)
    issued = (
        issued[0] + cast[0] * CAST_ISSUE + sharded[0] + slow[0],
        issued[1] + cast[1] * CAST_ISSUE + sharded[1] + slow[1],
    )
    kernels = kernels[0] + plain[0] + gaps[0] + cast[0], kernels[1] + plain[1] + gaps[1] + cast[1]
    if captured(setup, operation):
        return Launches((kernels[0] * GRAPHED_GAP, kernels[1] * GRAPHED_GAP), (0.0, 0.0), 0.0)
    waits: Number = 0.0
    if operation.name == DISPATCH:
        waits = before * AFTER_COUNTS * (setup.kernels.expert_counts == "host")
        waits = waits + expert_modules.waited(setup)
    if clamped(setup, operation) and setup.kernels.expert_clamp == "composed":  # a scalar is copied to the GPU
        waits = AFTER_COPY
    return Launches(kernels, issued, waits)


def _on_dtensors(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """What an operation costs the host more on DTensors, between which attention and activations see plain tensors;
    frameworks whose tensor parallelism is DTensor's are those that exchange the input gradient of each matrix alone.
    Experts take their weights out of DTensors first."""
    plain = not setup.framework.traffic.input_gradient_per_matrix or setup.kernels.input_copies  # of plain tensors
    if setup.compiled or plain:
        return 0.0, 0.0
    forward, backward = DTENSOR_ISSUE.get(operation.kind, (0.0, 0.0)) if operation.parameters else (0.0, 0.0)
    modules = 0 if operation.name in EXPERTS else matrices(setup, operation)
    calls = _calls(operation)
    sharded = where(setup.layout.tp > 1, 1, 0)
    return (
        sharded * (modules * forward + calls[0] * REDISTRIBUTE_ISSUE),
        sharded * (modules * backward + calls[1] * REDISTRIBUTE_ISSUE),
    )


def _calls(operation: Operation) -> tuple[Number, Number]:
    """Collectives of an operation that send anything, forward and backward."""
    if not operation.collectives:
        return 0, 0
    forward, backward = (
        sum(where(one.bytes_logical > 0, 1, 0) for one in operation.collectives if one.phase == phase)
        for phase in ("forward", "backward")
    )
    return forward, backward


def _single(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Kernels and collectives of an operation, those of experts counted once."""
    before, after = KERNELS[operation.kind]
    cost = composed(setup, operation)
    if not _plain_inside(setup, operation):
        before, after = (max(before, cost.kernels[0]), max(after, cost.kernels[1]))
    if operation.role == "softmax":
        again, steps, own = composed_softmax(setup), plain_torch(setup), setup.kernels.softmax_written
        more = (
            again * composed + steps * (plain + capped * setup.model.attention_softcap + own * written)
            for composed, plain, capped, written in zip(
                composed_kernels(setup), SOFTMAX_STEPS_KERNELS, SOFTCAP_KERNELS, WRITTEN_KERNELS, strict=True
            )
        )
        before, after = before + next(more), after + next(more)
    if operation.role == "stream weights" and setup.model.stream_mixing and plain_torch(setup):
        before, after = (count + setup.model.stream_mixing * each
                         for count, each in zip((before, after), MIXING_KERNELS, strict=True))  # fmt: skip
    if operation.role in GATED_STREAM_KERNELS and setup.model.stream_rank and streams_in_torch(setup):
        before, after = GATED_STREAM_KERNELS[operation.role]
    if operation.role == "chunk rule":
        before, after = chunk_rule_kernels(setup)
    if operation.kind == "matmul" and not operation.weight_gradient:
        after = FROZEN_KERNELS
    after = after - weight_kernels(setup, operation)
    calls = _calls(operation)
    return before + calls[0] * CALL_KERNELS, after + calls[1] * CALL_KERNELS


def _plain(setup: Setup, operation: Operation) -> tuple[int, int]:
    """Kernels of plain operations around an operation."""
    if _plain_inside(setup, operation):
        (forward, backward), (before, after) = composed(setup, operation).kernels, KERNELS[operation.kind]
        return max(forward - before, 0), max(backward - after, 0)
    composed_router = operation.name == ROUTER and setup.kernels.routing == "composed"
    return ROUTER_KERNELS if composed_router else (0, 0)


def _ring_steps(setup: Setup, operation: Operation) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """Kernels of a ring of context parallel ranks behind its first step, as gaps between them count and as the host
    issues them: attention of the keys that came, and what merges its results. Plain operations in one function's loop;
    calls of collectives behind the first of each kind have a stream of their own."""
    if operation.name != EXCHANGE and not operation.collectives:
        return (0.0, 0.0), (0.0, 0.0)
    kernels, steps = setup.kernels, operation.shape[1] if operation.name == EXCHANGE else 0
    before, after = (
        steps * (attend + merge) for attend, merge in zip(KERNELS["attention"], kernels.cp_merge_kernels, strict=True)
    )
    first, last = (
        sum(where(c.bytes_logical > 0, c.calls - 1, 0) for c in operation.collectives if c.phase == phase)
        for phase in ("forward", "backward")
    )
    gap = GRAPHED_GAP if kernels.cp_steps_graphed else 1.0
    gaps = before * gap * (kernels.cp_streams == 1), after * gap
    return gaps, (0.0, 0.0) if kernels.cp_steps_graphed else (before + first, after + last)


def _plain_inside(setup: Setup, operation: Operation) -> bool:
    """Whether rotation or an activation is composed of plain operations inside one of Megatron's modules."""
    eager = setup.kernels.activation == "eager"
    return (operation.role == "heads" or (operation.role == "activation" and eager)) and halves(setup)


def _casts(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Casts around a product of weights, forward and backward, where nothing fuses them: autocast's, and those that
    quantise its operands piece by piece; backward that of the gradient of a branch that is added to an fp32 stream."""
    if operation.role == "residual":
        return 0, int(casts_branches(setup))
    if operation.kind != "matmul" or not operation.parameters:
        return 0, 0
    modules, each = matrices(setup, operation), setup.precision.cast_kernels
    narrows = setup.precision.autocast and not fuses_neighbours(setup)
    biased = any(one.is_bias for one in operation.parameters)
    cast = (AUTOCAST_KERNELS + biased) * modules if narrows else 0
    if not each or wide_here(setup, operation.name) or any(one.held == "adapter" for one in operation.parameters):
        return cast, cast
    forward = each * modules * (1 + casts_weights(setup))
    last = makes_weight_gradient(setup, operation, True) and not setup.precision.wide_weight_gradient
    return cast + forward, cast + forward + 2 * each * modules * last


def _module_issue(setup: Setup, operation: Operation) -> float:
    """Host time of an operation where a layer of Transformer Engine stands in the place of torch's."""
    ends = operation.role == "head" or operation.name.startswith((HEAD, EMBEDDING))
    inside = operation.kind in IN_LAYERS and not ends
    return MODULE_ISSUE if inside and setup.kernels.modules == "transformer-engine" else 1.0


def _rule_issue(setup: Setup, operation: Operation) -> float:
    """Host time of a step of the delta rule in plain torch, over that of an operation of the layer that it is in."""
    return PLAIN_ISSUE if operation.role == "chunk rule" and setup.framework.family == "megatron" else 1.0


def _adapter_issue(setup: Setup, operation: Operation) -> float:
    """Host time of an operation over what the framework's own cost it: less for adapters beside heavier modules."""
    if not setup.framework.adapters.parallel_linear:
        return 1.0
    if operation.kind == "adapter":
        return PLAIN_ISSUE
    return PARALLEL_LINEAR_ISSUE if any(one.held == "adapter" for one in operation.parameters) else 1.0


def _each_expert(setup: Setup, operation: Operation) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """Kernels that a loop over the rank's experts launches, forward and backward, and what they cost the host."""
    looped = setup.kernels.expert_products == "loop" and operation.kind == "matmul"
    if not looped or (operation.adapts or operation.name) not in EXPERTS:
        return (0.0, 0.0), (0.0, 0.0)
    experts = operation.shape[3]
    width = "narrow" if setup.precision.kept_input_bytes < setup.precision.activation_bytes else "wide"
    forward, backward = EXPERT_KERNELS[width]
    passes = (experts, forward), (experts if operation.weight_gradient else experts / 2, backward)
    kernels, issued = (
        tuple(times * (products * product + others * other) for times, (products, others) in passes)
        for product, other in ((1.0, 1.0), (LOOP_PRODUCT_ISSUE, LOOP_ISSUE))
    )
    return (kernels[0], kernels[1]), (issued[0], issued[1])
