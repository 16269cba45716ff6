"""What holds for all chips of an architecture, or of a maker, and no datasheet states: kernels, libraries, energy."""

from typing import Annotated, Literal, Self

from pydantic import Field

from distsim.specs.base import Sourced
from distsim.specs.parts import GroupedKernels
from distsim.specs.quantity import HeldBytes, MaybePositive, MaybeShare, Once, Share

ABOUT = frozenset({"name", "aliases", "notes", "like", "source", "checked"})
"""Fields that tell of a preset's file, not of chips."""


class Architecture(Sourced):
    """Figures of one architecture, of one of its dies, or of all of a maker's chips; what nobody states is what holds
    for no architecture in particular."""

    name: str = "traits"
    """That of a file; the table of an accelerator's own preset needs none."""
    aliases: tuple[str, ...] = ()
    notes: str = ""
    like: str = ""
    """The architecture, or the maker, whose figures hold where this one states none."""
    common: bool = False
    """Whether a plan looks at such chips unless others are named."""
    collectives: Literal["nccl", "rccl", "ici"] = "nccl"
    tuning_row: Annotated[int, Once(Field(ge=0, le=3))] = 1
    """Row of NCCL's tables: compute capability below 8.0, from 8.0, 9.0 and 10.0 (src/graph/tuning.cc). Libraries of
    others have no tables of their own here, and what was measured of them is fitted beside that of 8.0."""
    own_software: str = ""
    """The framework that stands for software of the chips' own, where common frameworks do not run as they are."""
    compiled_only: bool = False
    """Whether they take programs of that software's compiler alone."""
    cuda: bool = False
    """Whether they run CUDA's libraries: cuDNN, and torch's memory-efficient attention in fp32."""
    cuda_graphs: bool = True
    """Whether they run CUDA's graphs, or HIP's."""
    one_queue: bool = False
    """Whether kernels run one after another whichever queue they wait in, so that none of an exchange runs beside one
    that computes; copy engines do."""
    triton: bool = True
    """Whether Triton's kernels run there, which torch.compile writes and some losses are."""
    checked_units: bool = False
    """Whether Transformer Engine and torchao know them by their compute capability."""
    context_unit_bytes: HeldBytes = 0.0
    """Of a context, for each multiprocessor or compute unit."""
    context_bytes: HeldBytes = 0.0
    """Of a context, beyond its units."""
    multicast_rank_bytes: HeldBytes = 0.0
    """Of a communicator whose sums the switch between GPUs makes (NVLink SHARP), for each of its ranks on a domain."""
    small_workspaces: bool = False
    """Whether cuBLAS and Transformer Engine take 4 to 8 MiB for their kernels instead of 32."""
    transposes: bool = False
    """Whether 8-bit products take operands in one layout only, so that transposed copies are kept."""
    full_clock_joules: MaybePositive = None
    """Joules above idle that a 16-bit operation of a large product would take at the clock of the datasheet's rate."""
    fp32_joules: MaybePositive = None
    """The same of an fp32 operation on units that multiply single numbers."""
    usual_share: MaybeShare = None
    """Best measured product over the datasheet's rate, of chips that nobody measured and whose energy is not known."""
    batched_share: Share = 1.0
    """Rate of large batched products in 16 bits over that of single ones."""
    widened_share: Share = 1.0
    """Rate of products in bf16 that libraries widen to fp32, for want of units, over that of fp32's own."""
    tf32_weight_share: Share = 1.0
    """Rate of weight gradients on TF32 units over that of forward and of input gradients."""
    scan_share: Share = 1.0
    """What is left of the rate of a chunked scan's products (engine/kernels/chip.py, SCAN_SHARE)."""
    wide_passes: Share = 1.0
    """Time of plain torch's passes over 4-byte elements, over what they take at the bandwidth that passes reach."""
    lanes: MaybePositive = None
    """Threads whose instructions a unit starts in a cycle, over 128; None where kernels of plain torch are not known to
    be limited by their units."""
    bf16_adds: bool = False
    """Whether one instruction adds to bf16 numbers in memory, which others do in a loop that compares and swaps."""
    unaligned_by_clock: bool = False
    """Whether products of rows that do not start at whole 16 bytes are limited by the units' clock, not by a share."""
    attention_age: Annotated[int, Once(Field(ge=0, le=2))] = 0
    """How many architectures newer than those that FlashAttention-2 was written for."""
    older_per_clock: MaybePositive = None
    """FLOP of products a clock of the unit on which the first FlashAttention was held against the second; None where
    its share of the rate is taken as it is."""
    own_backward_share: MaybePositive = None
    """Rate of the backward of flash attention written for the chip over its forward's, where it is not the usual."""
    torch_attention_forward: Share = 1.0
    torch_attention_backward: Share = 1.0
    """Rate of torch's own flash attention over kernels written for the chip."""
    torch_own_width: Annotated[int, Once(Field(ge=8, le=256))] = 256
    """The widest heads that torch gives to the kernel written for the chip; FlashAttention-2 takes wider ones."""
    flash_attention: Literal["all", "first", "none"] = "all"
    """Generations of FlashAttention that run there."""
    sparse_attention: bool = False
    """Whether kernels of attention to chosen keys are written for it."""
    device_counts: bool = False
    """Whether experts whose counts only the GPU knows are multiplied in one kernel; others pad each expert and multiply
    one by one."""
    grouped: GroupedKernels | None = None

    def told_of_file(self) -> list[str]:
        """Stated fields that tell of a preset's file, not of chips."""
        return sorted(ABOUT & self.model_fields_set)

    def over(self, other: Self) -> Self:
        """What this one states, and for the rest what ``other`` has."""
        stated = {name: getattr(self, name) for name in self.model_fields_set - ABOUT}
        if self.grouped is not None and other.grouped is not None:
            own = {name: getattr(self.grouped, name) for name in self.grouped.model_fields_set}
            stated["grouped"] = other.grouped.model_copy(update=own)
        return other.model_copy(update=stated)
