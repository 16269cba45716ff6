"""From the ledger to seconds of computation: what each kernel of a stage takes at its shape's own share of the peak."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum, nothing, product, where
from distsim.engine.jobs.narrow import wide_here, wide_share
from distsim.engine.jobs.reference import of_reference, runs_reference
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.tower_setup import setup_of_row
from distsim.engine.kernels.alignment import alignment
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.expert_load import busiest_rank, expert_spread, slotted, stated_rank
from distsim.engine.kernels.expert_rates import expert_rates
from distsim.engine.kernels.flash import flash_seconds
from distsim.engine.kernels.launches import CALL_KERNELS, launches
from distsim.engine.kernels.orthogonal import orthogonal_work
from distsim.engine.kernels.passes import (
    bias_bytes,
    bias_gradient_bytes,
    bias_sums,
    copied_gradient_bytes,
    input_bytes,
    matrices,
    moved_bytes,
    table_gradient_bytes,
)
from distsim.engine.kernels.products import beside_zeros, linear_seconds, product_seconds
from distsim.engine.kernels.quantise import frozen_casts, makes_weight_gradient, trained_casts
from distsim.engine.kernels.softmax_passes import plain_torch
from distsim.engine.kernels.sums import BlockSums, StageCompute, Sums
from distsim.engine.kernels.weights import optimizer_seconds, weight_work
from distsim.formulas.caches import cached_share
from distsim.formulas.compute import CUT_SHARE, stream_seconds
from distsim.formulas.traffic import boundary_calls
from distsim.layers.core_attention import FLASH_BACKWARD
from distsim.layers.ledger import Block, Operation, dropped_by
from distsim.layers.mtp import checkpointed
from distsim.layers.names import COMBINE, EXPERT_ACTIVATION, EXPERTS, HEAD

TENSOR_CORE_MULTIPLE = 8
"""Elements that a row of 2-byte operands must be a multiple of for tensor cores (NVIDIA, Matrix Multiplication
Background User's Guide, section 3: 16 bytes): batched products of heads 108 or 150 wide run on fp32 units instead."""
ALONE = 0.7
"""Part of the experts' products that is as fast as a dense one where a rank has a single expert: nothing is grouped
then, but the busiest rank still has more tokens than the mean (assumed)."""
BIAS_SUM_SECONDS = 1.2e-5
"""What torch's sum over all tokens takes beside its bytes, for the gradient of a bias: its parts are added up in a
second phase. 8,192 and 16,384 rows of 1,024 and 4,096 in bf16 take an H100 24 and 62 us, an H200 20 and 49, in fp32 25
and 104, 22 and 77 (tests/oracles/gpu_kernels.csv, "bias"): 16 us, stated at the mean share of passes."""
STREAMS = {"loop": 4, "modules": 1, "sequential": 1}
"""Products of experts that run at once where a loop issues them: on four streams (Transformer Engine, multi-stream
cuBLAS), or one after another (modules of Python)."""


def stage_compute(setup: Setup, stage: Stage, known: dict[int, BlockSums] | None = None) -> StageCompute:
    """Fold a stage's ledger into seconds. ``known`` remembers blocks, by their identity, from stage to stage."""
    chip, found, known = Chip(setup), StageCompute(), {} if known is None else known
    layout, referred = setup.layout, runs_reference(setup)
    for operation in (one for end in (stage.embedding, stage.head) if end is not None for one in end.operations):
        forward, backward = operation_sums(setup_of_row(setup, operation.name), chip, operation)
        found.ends["forward"].add(forward, 1 + (referred and of_reference(operation)))
        found.ends["backward"].add(backward)
        if checkpointed(operation):
            found.phases["recompute"].add(forward, where(layout.recompute_layers < 0, 1, 0))
    for phase, sums in found.ends.items():
        found.phases[phase].add(sums)
    for (block, count), again in zip(stage.layers, stage.recomputed(layout), strict=True):
        if id(block) not in known:
            known[id(block)] = _block_sums(setup_of_row(setup, block.name), chip, block)
        one = known[id(block)]
        found.phases["forward"].add(one.forward, count)
        found.phases["backward"].add(one.backward, count)
        found.phases["recompute"].add(one.again, again)
        found.phases["recompute"].add(one.dropped, where(layout.selective, count, 0))
        found.phases["recompute"].add(one.reruns, count)
    _add_update(found, setup, stage, chip)
    own, forward, backward = weight_work(setup, stage), found.phases["forward"], found.phases["backward"]
    passes = 1 + referred
    forward.memory, backward.memory = forward.memory + own.forward * passes, backward.memory + own.backward
    repeated, part = found.phases["recompute"], minimum(layout.recompute_layers / maximum(stage.layer_count, 1), 1.0)
    again = product(own.hooks, where(layout.recompute_layers < 0, 1.0, part))
    for sums, hooks in ((forward, own.hooks * passes), (backward, 2 * own.hooks), (repeated, again)):
        sums.kernels, sums.issued = sums.kernels + hooks, sums.issued + hooks
    transfers = boundary_calls(layout.vpp, layout.pp, stage.index) * (setup.kernels.graphs != "iteration")
    for sums, times in ((forward, passes), (backward, 1)):
        sums.issued = sums.issued + CALL_KERNELS * transfers * times
    return found


def _add_update(found: StageCompute, setup: Setup, stage: Stage, chip: Chip) -> None:
    """Count the optimizer's step: what it moves, and what it multiplies and decomposes."""
    found.optimizer = optimizer_seconds(setup, stage)
    found.update = orthogonal_work(setup, stage, chip)
    if setup.optimizer.projection:
        from distsim.engine.kernels.projected import decomposing_seconds, projected_work

        found.update = projected_work(setup, stage, chip)
        found.decomposing = decomposing_seconds(setup, stage)
    if setup.optimizer.in_backward:  # each micro-batch's backward pass updates all that trains
        times, work = setup.layout.micro_batches, found.update
        found.optimizer, found.decomposing = found.optimizer * times, found.decomposing * times
        found.update = work._replace(seconds=work.seconds * times, kernels=work.kernels * times)


def _block_sums(setup: Setup, chip: Chip, block: Block) -> BlockSums:
    """Sums over the operations of one block: how often it happens is an array along other axes of a search than its
    seconds."""
    needed, behind, referred = needed_of(setup, block), 1 - 1 / setup.layout.recompute_group, runs_reference(setup)
    found = BlockSums(*(Sums() for _ in BlockSums._fields))
    for place, (operation, repeated) in enumerate(zip(block.operations, dropped_of(setup, block, needed), strict=True)):
        forward, backward = operation_sums(setup, chip, operation)
        found.forward.add(forward, 1 + (referred and of_reference(operation)))
        found.backward.add(backward)
        if place < needed:
            found.again.add(forward)
        elif behind:  # layers that others of their checkpoint follow, which need what they give
            found.again.add(forward, behind)
        if repeated:
            found.dropped.add(forward)
        if operation.reruns:
            found.reruns.add(forward)
    return found


def dropped_of(setup: Setup, block: Block, needed: int) -> list[bool]:
    """Which operations of a block selective recomputation repeats, of those ``needed`` at most."""
    kinds, parts = setup.kernels.selective, setup.kernels.kept
    if parts is None and "op" not in kinds:
        return [dropped_by(one, kinds) for one in block.operations]
    from distsim.layers.recompute import counted_product, kept_by_kind, kept_operations

    if parts is not None:
        kept = kept_operations(parts)
        return [place < needed and one.name not in kept for place, one in enumerate(block.operations)]
    found, products = [], 0  # by rows; layers/recompute.py counts the separate products of a row, as torch does
    for place, one in enumerate(block.operations):
        counted = counted_product(one)
        products += counted
        due = products % 2 == 0 if counted else place < needed
        found.append(due and not kept_by_kind(one))
    return found


def needed_of(setup: Setup, block: Block) -> int:
    """Operations that recomputation repeats at most: all, or those before the last product (or an expert layer's
    combination): its inputs are kept for backward, its result is not needed."""
    if not setup.kernels.recompute_stops_early or any(one.reruns for one in block.operations):
        return len(block.operations)  # a function of one's own ends before what it keeps is known
    return max((i for i, one in enumerate(block.operations) if one.kind == "matmul" or one.name == COMBINE), default=0)


def operation_sums(setup: Setup, chip: Chip, operation: Operation) -> tuple[Sums, Sums]:
    """Forward and backward seconds of one row of the ledger."""
    found = launches(setup, operation)
    forward = Sums(kernels=found.kernels[0], issued=found.issued[0], waits=found.waits)
    backward = Sums(kernels=found.kernels[1], issued=found.issued[1])
    if operation.kind == "matmul":
        _products(setup, chip, operation, forward, backward)
    elif operation.role == "core":
        forward.attention, backward.attention = flash_seconds(chip, operation)
    elif operation.kind == "attention":
        _batched(setup, chip, operation, forward, backward)
    else:
        if operation.kind == "scan" and operation.role != "chunk rule":
            forward.attention = operation.flops_forward / chip.scan_rate
            backward.attention = operation.flops_backward / chip.scan_rate
        first, second = moved_bytes(setup, operation)
        tensors = operation.bytes_read + operation.bytes_written
        share = cached_share(where(tensors > 0, tensors, first), chip.cache)  # copies alone are no row's own
        share = share * (stated_rank(setup) if operation.name == EXPERT_ACTIVATION else 1.0)
        first, second = first * share, second * share + table_gradient_bytes(setup, operation)
        kind = "elementwise" if operation.role == "chunk rule" else operation.kind  # its products are of fp32
        forward.memory = _passed(chip, first, operation.flops_forward, kind)
        backward.memory = _passed(chip, second, operation.flops_backward, kind)
    forward.flops, backward.flops = _counted_flops(operation)
    return forward, backward if operation.backward else Sums()


def _counted_flops(operation: Operation) -> tuple[Number, Number]:
    """Forward and backward work that utilisation counts."""
    if operation.kind not in ("matmul", "attention", "scan"):
        return 0, 0
    repeats = FLASH_BACKWARD / 2 if operation.role == "core" else 1  # its gradients are twice its forward
    return operation.flops_forward, operation.flops_backward / repeats


def _passed(chip: Chip, moved: Number, flops: Number, kind: str) -> Number:
    """Seconds of a pass over memory, or of its arithmetic on vector units where that takes longer (Mamba-1's scan)."""
    seconds = stream_seconds(moved, chip.pass_bandwidth)
    if kind != "elementwise" or nothing(flops):
        return seconds
    return maximum(seconds, flops / chip.vector_rate)


def _products(setup: Setup, chip: Chip, operation: Operation, forward: Sums, backward: Sums) -> None:
    """A product with weights, in the mean of all layers where the last ones stay in 16 bits."""
    wide = wide_share(setup)
    if not wide:
        _matmul(setup, chip, operation, forward, backward)
        return
    for narrow, part in ((True, 1 - wide), (False, wide)):
        own = Sums(), Sums()
        _matmul(setup, chip, operation, *own, narrow=narrow)
        forward.add(own[0], part)
        backward.add(own[1], part)


def _matmul(setup: Setup, chip: Chip, operation: Operation, forward: Sums, backward: Sums, narrow: bool = True) -> None:
    """A product with weights: forward, input gradient and weight gradient each have their own shape."""
    m, n, k, batch = operation.shape
    rate, each, narrow = _rate(setup, chip, operation, narrow)
    streams = STREAMS.get(setup.kernels.expert_products)
    together = batch if streams is None else minimum(batch, streams)
    if operation.role == "head":
        together = 1  # chunks of tokens follow one another
        rate = rate * (CUT_SHARE if setup.kernels.loss == "cut" else 1.0)
    experts = operation.name in EXPERTS
    spread = expert_spread(setup, m) if experts else 0
    if experts and chip.grid_kernels and not slotted(setup):
        from distsim.engine.kernels.expert_tiles import gates_apart, tiled_seconds

        fitted = setup.kernels.expert_tiles == "fitted"
        times = tiled_seconds(chip, rate, (m, n, k, batch), each, gates_apart(setup, operation), fitted)
    else:
        times = linear_seconds(chip, rate, operation, together, each, spread)
        times[2] = times[2] / chip.weight_share
    last = narrow and not setup.precision.wide_weight_gradient
    if narrow and not last:
        times[2] = linear_seconds(chip, chip.rate, operation, together, each, spread)[2]
    times = beside_zeros(setup, chip, operation, times, narrow)
    if experts:
        times = [seconds / share for seconds, share in zip(times, expert_rates(setup, narrow=narrow), strict=True)]
    grouped = 1 - ALONE / maximum(batch, 1) if experts else 0
    uneven, alone = (busiest_rank(setup), stated_rank(setup)) if experts else (1.0, 1.0)
    found = [(forward, narrow, times[0]), (backward, narrow, times[1])]
    found += [(backward, last, times[2])] if makes_weight_gradient(setup, operation, narrow) else []
    found += [(backward, narrow, times[0])] if operation.name == HEAD and setup.kernels.loss_chunk_again else []
    for sums, in_8_bits, own in found:
        for name, part in (("matmul", own * (1 - grouped) * alone), ("grouped", own * grouped * uneven)):
            kind = f"{name}8" if in_8_bits else name
            setattr(sums, kind, getattr(sums, kind) + part)
    backward.cover = _cover(operation, times)
    forward.memory, backward.memory = _passes_beside(setup, chip, operation, narrow)


def _rate(setup: Setup, chip: Chip, operation: Operation, narrow: bool) -> tuple[Number, float, bool]:
    """The best rate of a product, bytes of its elements, and whether it is in 8 or 4 bits, where it may be."""
    adapter = bool(operation.adapts) or any(parameter.held == "adapter" for parameter in operation.parameters)
    if chip.narrow_rate is not None and narrow and not adapter and not wide_here(setup, operation.name):
        return chip.narrow_rate, 1.0, True
    each = setup.precision.activation_bytes
    if not adapter:
        _, n, k, _ = operation.shape
        return chip.rate * alignment(setup, n, k, each, chip.rate), each, False  # recipes in 8 bits pad
    if setup.tuning is not None and setup.tuning.product_bytes > each:
        return chip.wide_rate, setup.tuning.product_bytes, False
    return chip.rate, each, False  # narrower than any tile


def _passes_beside(setup: Setup, chip: Chip, operation: Operation, narrow: bool) -> tuple[Number, Number]:
    """Seconds, forward and backward, of what passes over a product's operands and results in kernels of its own."""
    first, second = input_bytes(setup, operation)
    if narrow:
        m, n, k, batch = operation.shape
        readers = matrices(setup, operation) if setup.precision.cast_kernels else 1  # each module casts its own
        casts = trained_casts if makes_weight_gradient(setup, operation, narrow) else frozen_casts
        before, after = casts(setup, operation, (m * k * batch * readers, m * n * batch, n * k * batch))
        return stream_seconds(first + before, chip.bandwidth), stream_seconds(second + after, chip.bandwidth)
    first, second = first + bias_bytes(setup, operation), second + bias_gradient_bytes(setup, operation)
    second = second + copied_gradient_bytes(setup, operation)
    sums = bias_sums(setup, operation) * BIAS_SUM_SECONDS
    return stream_seconds(first, chip.bandwidth), stream_seconds(second, chip.bandwidth) + sums


def _cover(operation: Operation, times: list[Number]) -> Number:
    """Seconds of the products that the operation's own exchanges may run beside."""
    found: Number = 0.0
    weight = times[2] if operation.weight_gradient else 0.0
    for name, seconds in (("input gradient", times[1]), ("weight gradient", weight)):
        crossing = sum(c.bytes_logical for c in operation.collectives if c.overlaps == name)
        found = found + where(crossing > 0, seconds, 0.0)
    return found


def _batched(setup: Setup, chip: Chip, operation: Operation, forward: Sums, backward: Sums) -> None:
    """Scores and weighted sum as batched products over the whole score matrix, which plain torch widens afterwards."""
    micro, heads, queries, keys, width, value_width = operation.shape
    batch = micro * heads
    if operation.role == "scores":
        m, n, k = queries, keys, width
        written = batch * queries * keys * chip.element_bytes if plain_torch(setup) else operation.bytes_written
    else:
        m, n, k, written = queries, value_width, keys, operation.bytes_written
    moved = operation.bytes_read + written
    multiple = width % TENSOR_CORE_MULTIPLE == 0
    rate = where(multiple, chip.rate * chip.batched_share, minimum(chip.rate, chip.vector_rate))
    times = product_seconds(chip, rate, (m, n, k, batch), operation.flops_forward, moved)
    forward.matmul = times[0]
    backward.matmul = times[1] + times[2]
