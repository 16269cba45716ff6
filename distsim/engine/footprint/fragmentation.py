"""What the caching allocator holds beyond what is allocated."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.figures import Figures
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.buffers import fragmented_bytes
from distsim.layers.names import UPCAST


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


def fragmentation_bytes(
    setup: Setup, churning: Number, figures: Figures, least: Number = 0.0, buffers: Number = 0.0
) -> Number:
    """What the caching allocator holds beyond what is allocated: a share of all that comes and goes, or of a part, but
    not less than blocks that are known to lie idle, and the same share of buffers."""
    source = setup.framework.source_of("overhead.fragmentation_fraction") or "preset"
    return figures.use("fragmentation", fragmented_bytes, source, share=slack_of(setup), churning_bytes=churning,
                       idle_bytes=least, buffer_bytes=buffers)  # fmt: skip
