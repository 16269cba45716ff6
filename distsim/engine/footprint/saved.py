"""What one micro-batch keeps for backward on a stage when its forward has ended."""

from __future__ import annotations

from typing import Any, NamedTuple

from distsim.arrays import Number, maximum, where
from distsim.engine.footprint.checkpoint_groups import grouped, kept_inputs
from distsim.engine.jobs.narrow import wide_share
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.last import for_parts_of_last
from distsim.layers.given import Given, given
from distsim.layers.ledger import Block, Operation, distinct_saved, saved_bytes
from distsim.layers.mtp import kept_by_checkpoints
from distsim.layers.names import EXPERT_ACTIVATION, TOWER_KIND


class Saved(NamedTuple):
    """Bytes per micro-batch; ``per_layer`` is a middle layer of the stage."""

    per_layer: Number
    layers: Number
    embedding: Number
    head_and_loss: Number
    stays: Number = 0
    """What of the layers' bytes never leaves the GPU where activations are offloaded."""
    given: Number = 0
    """What recomputed layers are given beside their input and autograd does not save, but the code around it holds."""

    @property
    def leaving(self) -> Number:
        """What of the layers' bytes goes to the host where all activations are offloaded."""
        return self.layers - self.stays

    @property
    def total(self) -> Number:
        """All parts."""
        return self.layers + self.embedding + self.head_and_loss

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract."""
        parts = {"per_layer": self.per_layer, "layers": self.layers, "embedding": self.embedding,
                 "head_and_loss": self.head_and_loss, "total": self.total}  # fmt: skip
        return {name: round(value) for name, value in parts.items()}


def layer_saved_bytes(setup: Setup, block: Block, recomputed: Number) -> Number:
    """One layer's bytes: all its saved tensors, or only its input where it is ``recomputed``."""
    assert block.boundary is not None
    if isinstance(recomputed, int) and recomputed == 1:
        return block.boundary.size_bytes
    return where(recomputed, block.boundary.size_bytes, _all_saved_bytes(setup, block))


@for_parts_of_last
def again_bytes(setup: Setup, block: Block) -> tuple[Number, Number]:
    """What a recomputed layer holds in its backward pass beside what its operations keep, and what before its last
    branch besides.

    Its input, but where that is the very tensor that they keep; under reentrant autograd its output as it was made
    again, and the gradient of that, from which another was made by then.
    """
    assert block.boundary is not None
    size, held = block.boundary.size_bytes, setup.kernels.recompute_holds
    kept = 0 if held == "slice" else distinct_saved(block.operations).get(block.boundary.name, 0)
    output = size if held == "output" else 0
    return maximum(size - kept, 0) + output, output


@for_parts_of_last
def _all_saved_bytes(setup: Setup, block: Block) -> Number:
    """What a layer keeps that is not wholly recomputed; stages and moments ask for the same layers again."""
    whole = saved_bytes(block.operations, setup.layout.selective, setup.kernels)
    if setup.kernels.residuals == "stacked":
        from distsim.layers.stacked import stacked_saved

        whole = where(setup.layout.selective, whole, sum(stacked_saved(block, setup.model, setup.precision).values()))
    if setup.kernels.kept is not None:
        from distsim.layers.recompute import named_bytes

        whole = where(setup.layout.selective, named_bytes(block, setup.kernels.kept), whole)
    elif "op" in setup.kernels.selective:
        whole = where(setup.layout.selective, _op_level(setup, block), whole)
    return whole


def _op_level(setup: Setup, block: Block) -> Number:
    """What op-level recomputation keeps of a layer, in the mean of all layers where the last ones stay in 16 bits."""
    from distsim.layers.recompute import op_level_bytes

    exchanged = setup.framework.traffic.recompute_keeps
    kept = op_level_bytes(block, setup.kernels, setup.precision.math, exchanged)
    wide = wide_share(setup)
    return kept + wide * (op_level_bytes(block, setup.kernels, exchanged=exchanged) - kept) if wide else kept


def saved_of(setup: Setup, stage: Stage) -> Saved:
    """Fold a stage's blocks; under full recompute the first layers of the stage keep only their input."""
    layers = sum(kinds_saved_bytes(setup, stage))
    per_layer: Number = 0
    stays: Number = 0
    offloads = "activations" in setup.offload
    before = sum(count for block, count in stage.layers if block.name.startswith(TOWER_KIND))
    middle = min((before + stage.layer_count) // 2, stage.layer_count - 1)  # of the decoder's, where it has any here
    for kind, ((block, times), here) in enumerate(zip(stage.layers, stage.recomputed(setup.layout), strict=True)):
        whole, small = layer_saved_bytes(setup, block, 0), layer_saved_bytes(setup, block, 1)
        stays = stays + (times - here) * staying_bytes(setup, block) if offloads else stays
        if stage.order[middle] == kind:
            per_layer = where(stage.recomputed_layers(setup.layout) > middle, small, whole)
    shared = given(setup.context()) if stage.layers and not setup.compiled else Given()
    embedding = 0 if stage.embedding is None else saved_bytes(stage.embedding.operations)
    return Saved(per_layer, layers, embedding + shared.saved_bytes, _of_head(setup, stage), stays, shared.held_bytes)


def _of_head(setup: Setup, stage: Stage) -> Number:
    """Bytes of the head, of whose modules of multi-token prediction a checkpoint keeps less."""
    if stage.head is None:
        return 0
    whole = saved_bytes(stage.head.operations)
    if not setup.model.mtp_trained:
        return whole
    return where(setup.layout.recompute_layers < 0, saved_bytes(kept_by_checkpoints(stage.head.operations)), whole)


def kinds_saved_bytes(setup: Setup, stage: Stage) -> list[Number]:
    """Bytes of one micro-batch for all layers of each kind on a stage."""
    inputs = stage.recomputed(setup.layout)
    if grouped(setup):  # all layers are recomputed then
        inputs = [*kept_inputs(setup, stage)]
    return [
        kept * layer_saved_bytes(setup, block, 1) + (times - here) * layer_saved_bytes(setup, block, 0)
        for (block, times), here, kept in zip(stage.layers, stage.recomputed(setup.layout), inputs, strict=True)
    ]


def staying_bytes(setup: Setup, block: Block) -> Number:
    """Bytes of a layer that is not recomputed which offloading leaves on the GPU."""
    kernels, selective = setup.kernels, setup.layout.selective
    if kernels.offloads == "modules":
        return _outside_modules(setup, block)
    if kernels.offloads != "marked":
        entry = 0 if block.boundary is None else block.boundary.size_bytes
        there = entry if kernels.offloads == "products" else 0
        if kernels.stays:
            from distsim.layers.recompute import named_bytes

            there = there + named_bytes(block, kernels.stays) - entry
        return where(selective, there, 0)
    sizes = distinct_saved(block.operations, selective, kernels)
    return sum(sizes[name] for name in {t.name for one in block.operations if _unmarked(setup, one) for t in one.saved})


def _outside_modules(setup: Setup, block: Block) -> Number:
    """What a layer keeps less what the offloaded modules alone save of it."""
    from distsim.layers.moved import moved_bytes
    from distsim.layers.recompute import named_saved

    kernels, selective = setup.kernels, setup.layout.selective
    leaves = moved_bytes(block, kernels.offload_modules, distinct_saved(block.operations, selective, kernels))
    if kernels.kept is not None:
        leaves = where(selective, moved_bytes(block, kernels.offload_modules, named_saved(block, kernels.kept)), leaves)
    return layer_saved_bytes(setup, block, 0) - leaves


def _unmarked(setup: Setup, operation: Operation) -> bool:
    """Whether plain torch keeps an operation's tensors, which nobody marks: Megatron does so for its fused SwiGLU of
    dense layers alone (NVIDIA/Megatron-LM core/fusions/fused_bias_swiglu.py, cpu_offload_input)."""
    fused = setup.kernels.activation == "fused" and setup.model.gated and setup.model.activation == "silu"
    return operation.recompute_class == "activation" and not (fused and operation.name != EXPERT_ACTIVATION)
