"""What the caching allocator holds beyond what is allocated."""

from __future__ import annotations

from distsim.arrays import Number, maximum, nothing, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.joined import reduces_apart
from distsim.engine.footprint.kept import SEVERAL
from distsim.engine.footprint.moment import Idle
from distsim.engine.footprint.overhead import overhead_bytes
from distsim.engine.footprint.stage_step import waits_whole
from distsim.engine.footprint.states import States
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.buffers import broken_bytes, fragmented_bytes
from distsim.formulas.states import optimizer_bytes_per_rank
from distsim.layers.names import UPCAST
from distsim.units import MIB

SEGMENT_BYTES = 2 * MIB
"""What torch's caching allocator takes from the driver and gives back in multiples of (CUDACachingAllocator.cpp)."""


def slack_of(setup: Setup) -> float:
    """Share of what comes and goes that the caching allocator holds beyond it."""
    overhead = setup.framework.overhead
    if setup.compiled and setup.kernels.loss != "eager" and overhead.compiled_fragmentation_fraction is not None:
        return overhead.compiled_fragmentation_fraction
    return overhead.fragmentation_fraction


def split_bytes(setup: Setup, stage: Stage) -> Number:
    """What a loop costs the allocator that holds 16-bit logits until the next ones are made: these stand in half of a
    block that fp32 ones left, and backward then asks for that one anew."""
    if setup.kernels.loss_holds_logits != "narrow" or stage.head is None:
        return 0.0
    made = (tensor for operation in stage.head.operations for tensor in operation.transient_forward)
    return sum(tensor.size_bytes for tensor in made if tensor.name == UPCAST)


def idle_blocks(setup: Setup, stage: Stage, held: States, parts: dict[str, Number]) -> Idle:
    """Blocks that lie idle at all moments, beside the states and buffers of ``parts``."""
    split, broken = split_bytes(setup, stage), _broken_bytes(setup, stage, held)
    apart = _apart(setup)
    if nothing(broken):
        return Idle(split, apart=apart)
    beside = sum(parts.values()) + slack_of(setup) * parts["buffers"] + overhead_bytes(setup, stage, Figures())
    return Idle(split, broken, setup.accelerator.capacity - beside - SEGMENT_BYTES, apart)


def _apart(setup: Setup) -> Number:
    """Share of a rank's gradients whose blocks activations cannot take before backward makes them."""
    if not setup.framework.overhead.apart_shards:
        return 0
    return where(reduces_apart(setup), where(waits_whole(setup), 0, 1), 0)


def _broken_bytes(setup: Setup, stage: Stage, held: States) -> Number:
    """What states cost that the first step makes in blocks of activations, as torch's optimizers do: DeepSpeed's stand
    before, and compiled programs are planned otherwise."""
    overhead, layout = setup.framework.overhead, setup.layout
    if not overhead.broken_block_fraction or setup.compiled or setup.kernels.compiler != "none":
        return 0.0
    ahead = where(layout.zero >= 1, 0 if setup.framework.buffers.gathers_copies else 1, 0)
    trained, each = held.dense_parameters + held.expert_parameters, setup.precision.master_bytes
    masters = optimizer_bytes_per_rank(trained, each, layout.zero, layout.zero_group)
    made = maximum(held.optimizer - masters, 0)
    gradients = where(_apart(setup), 0, held.gradients) if setup.framework.buffers.gradients_grow else 0
    return (1 - ahead) * broken_bytes(overhead.broken_block_fraction, made, _largest_block(stage),
                                      overhead.apart_gradient_fraction, gradients)  # fmt: skip


def _largest_block(stage: Stage) -> Number:
    """Bytes of the largest tensor of a micro-batch, mostly logits."""
    rows = [operation for block, _ in stage.layers for operation in block.operations]
    rows += [] if stage.head is None else stage.head.operations
    tensors = (tensor for row in rows for tensor in (*row.saved, *row.transient_forward, *row.transient_backward))
    return maximum(0, *(tensor.size_bytes for tensor in tensors if tensor.name not in SEVERAL))


def fragmentation_bytes(
    setup: Setup, churning: Number, figures: Figures, least: Number = 0.0, buffers: Number = 0.0, apart: Number = 0.0
) -> Number:
    """What the caching allocator holds beyond what is allocated: a share of all that comes and goes, or of a part, but
    not less than blocks that are known to lie idle, the same share of buffers, and blocks ``apart``."""
    source = setup.framework.source_of("overhead.fragmentation_fraction") or "preset"
    return figures.use("fragmentation", fragmented_bytes, source, share=slack_of(setup), churning_bytes=churning,
                       idle_bytes=least, buffer_bytes=buffers, apart_bytes=apart)  # fmt: skip
