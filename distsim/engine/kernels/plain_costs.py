"""How much more than one kernel the operations move and launch that plain torch composes of elementary ones."""

from __future__ import annotations

from typing import NamedTuple

from distsim.architectures import traits_of
from distsim.layers.mlp import COMPOSED_ACTIVATIONS
from distsim.specs.accelerator import Accelerator

BACKWARD_BYTES = 2.0
"""Memory traffic of an elementwise operation's backward over its forward's: gradients beside what was kept."""
SUMMED = 3
"""Passes over an element of a sum: two are read, one is written."""


class Pace(NamedTuple):
    """Bytes that a unit takes a cycle at most, of the part of what moves that such kernels move."""

    bytes_per_cycle: float
    part: float = 1.0
    each: int = 0
    """Bytes of the elements that it is stated of, where a unit takes as many of wider ones; 0 where as many bytes."""


class Cost(NamedTuple):
    """Factors on bytes (forward, backward) and launches (forward, backward) of a composed operation."""

    forward: float = 1.0
    backward: float = 1.0
    kernels: tuple[int, int] = (0, 0)
    pace: Pace | None = None
    """What limits its kernels where memory does not."""


# Torch's vectorised kernels are as fast as memory. Those that broadcast, reduce or step over rows with a stride compute
# where each element lies, so what limits them is how many elements a unit takes a cycle. What plain torch composes has
# some of both: an H200, whose memory is 1.43 times as fast as an H100's, takes 0.8 of its time for RMSNorm and 0.91 for
# rotation (tests/oracles/gpu_kernels.csv); an A100, an H100 and a B200 28, 17 and 16 ps an element for RMSNorm forward,
# 23, 15 and 14 for rotation forward, 28, 18 and 15 backward (linkedin/Liger-Kernel benchmark/data, medians of do_bench,
# 17 to 168 million elements; tests/test_plain_kernels.py). Bytes are those at the share of the bandwidth that passes
# reach in the mean ("stream", presets/timing/fitted.toml).
COMPOSED_PACE = Pace(8.5, 0.4)
STRIDED_PACE = Pace(5.7, 0.7, 2)  # also of rows by an index, before torch 2.8: embeddings reached 0.4 of an A100's rate
WIDE_BROADCAST_PACE = Pace(11.6, 0.6)
"""Of products of fp32 elements with one that is the same for a row or a column: twice the bytes an element of what the
paces above are of. A sum with a bias in fp32 takes an H100 3.3 ps an element and an H200 3.0, in bf16 2.6 and 2.5
(tests/oracles/gpu_kernels.csv, "bias")."""
HALVES_PACE = Pace(12.8, each=2)  # as much as an H100's memory gives: its gates were measured there
SOFTMAX_PER_CYCLE = 1.8
"""Scores of a softmax that a unit of the chip takes a cycle at most, whatever their format, stated as above. Of 512 and
1,024 keys in 16 bits an A100's take 1.6 (facebookresearch/xformers pull requests 387 and 405, column "vanilla" less its
products) or 1.25 (fxmarty/efficient-attention-benchmark), at the share that passes reach 1.4 in the mean; small ones on
an RTX 3090 and a B200 about 1 (linkedin/Liger-Kernel)."""
# A gated activation in two kernels: 10 bytes for 6, 18 for 12.
EAGER_GATE = Cost(10 / 6, 18 / 12, (2, 3))
# The same where gate and up are halves of one product's output: kernels on rows with a stride take the slow path of
# torch's elementwise loops, and backward puts both gradients side by side. 25.2 million elements on an H100 take 77 and
# 80 us forward, 80, 49, 91 and 94 backward, of which the 49 are a product of whole tensors, 6 bytes an element (profile
# of Qwen3 8B in BastiaanGroot/ML-Infrastructure-Engineer training/profiles): as 15.5 and 31 bytes at 2.48 TB/s.
HALVES_GATE = Cost(15.5 / 6, 31 / 12, (2, 5), HALVES_PACE)
# The same of experts, and its product by the router's fp32 weight (6) and cast (6). Backward: cast (6), gradient of the
# product and its cast (14), the weights' gradient and its sum (14).
EAGER_SCALED_GATE = Cost(22 / 6, 52 / 12, (4, 8))
HALVES_SCALED_GATE = Cost(27.5 / 6, 65 / 12, (4, 9), HALVES_PACE)
# A gated activation whose input is clamped in plain torch first: two clamps (4 bytes an element of the inner width)
# and their concatenation (8), for 6. Backward: gradients of the clamps (comparison and choice, 8; two comparisons,
# their conjunction and choice, 14) and of the two halves (8), for 12.
CLAMPED_GATE = Cost(22 / 6, 42 / 12, (4, 8))
# The same of plain torch on slices of every second column (GPT-OSS in torchtitan), which are read at half the rate: two
# clamps (12), product by a constant (4), sigmoid (4), product (6), product and sum (8), for 6. Backward: gradients of
# these (24 and 16 of the clamps, two sums 12), then of the slices, zeros written and added (42), for 12.
SLICED_GATE = Cost(34 / 6, 94 / 12, (7, 16), HALVES_PACE)
SUMMED_IN_STEPS = Cost(1.0, 1.0, (5, 7))  # what experts give: bytes are in expert_passes.COMBINED
# An activation of plain operations, each reading and writing two bytes an element, for 4 and 8 of one kernel. GELU by
# tanh, 0.5 x (1 + tanh(c (x + d x^3))): half, power, product, sum, product, tanh, sum, product: 36 bytes; backward both
# products (12), tanh (6), two scales (8), the power (14), half (4) and the sum of three gradients (12): 56. Autocast
# makes powers in fp32, so that all that follows is as wide: 70 and 118, with the casts, and one more for the next
# product (6).
COMPOSED_ACTIVATION = Cost(36 / 4, 56 / 8, (8, 13))
AUTOCAST_ACTIVATION = Cost(76 / 4, 118 / 8, (10, 16))
# Without powers nothing becomes wide. Quick GELU, x sigmoid(1.702 x): scale (4), sigmoid (4), product (6); backward
# both factors (12), sigmoid (6), scale (4) and the sum of both gradients (6). GELU by erf, x / 2 (1 + erf(x / 2^0.5)):
# half, scale, erf, sum (4 each), product (6); backward both factors (12), half and scale (8), erf's square, minus,
# exponential, scale and product (22) and the sum (6). GELU by tanh of c x (1 + d x x): half, two scales, sum, tanh, sum
# (4 each) and three products (6 each); backward the factors of all three (36), half and two scales (12), tanh (6) and
# the sum of four gradients (18).
NARROW_ACTIVATIONS = {
    "quick_gelu": Cost(14 / 4, 28 / 8, (3, 6)),
    "gelu_erf": Cost(22 / 4, 48 / 8, (5, 10)),
    "gelu_fast": Cost(42 / 4, 72 / 8, (9, 13)),
}
# The product by the gate behind one: two read, one written (6), backward two such (12). Where autocast made the
# activation in fp32: 10; backward that of the activation (10), and of the gate (12) with its cast (6).
GATE_PRODUCT = Cost(6, 12, (1, 2))
WIDE_GATE_PRODUCT = Cost(10, 28, (1, 3))
# A soft cap of scores or logits: quotient, tanh, product (two passes each); backward product, tanh (three), quotient.
SOFTCAP_PASSES = (6, 7)
SOFTCAP_KERNELS = (3, 3)
# Backward of a slice: zeros as large as what it was cut from, read and added to the other slices' gradients (three
# more); a compiler puts all slices' gradients side by side once.
SLICED = Cost(0.0, 4 / BACKWARD_BYTES)
COMPILED_SLICE = Cost(0.0, 0.0)
# An adapter's result is scaled (read, written) and added (two read, one written); compiled, both are one kernel.
COMPILED_ADAPTER = Cost(3 / 5, 3 / 5)
# A product that adds to what is there reads that besides what it writes anyway.
ADDING_ADAPTER = Cost(1 / 5, 1 / 5)


def slowed(pace: Pace | None, chip: Accelerator, width: float = 2) -> float:
    """How much longer kernels take of which a part moves so many bytes a cycle and unit of NVIDIA's at most, than their
    bytes at the bandwidth of memory, of elements of so many bytes; not known of all vendors' chips."""
    units, clock, lanes = chip.chip.units, chip.chip.clock, traits_of(chip).lanes
    if pace is None or not units or not clock or not lanes:
        return 1.0
    wider = width / pace.each if pace.each else 1.0
    longer = float(chip.pass_bandwidth) / (pace.bytes_per_cycle * wider * lanes * units * float(clock))
    return 1.0 + pace.part * max(0.0, longer - 1.0)


def composed_activation(name: str, autocast: bool, gated: bool) -> Cost:
    """Cost of an activation made of elementary operations, over the 4 bytes an element forward and 8 backward of one
    kernel, or the 6 and 12 of one that multiplies by a gate, too."""
    wide = autocast and COMPOSED_ACTIVATIONS[name].powers
    alone = NARROW_ACTIVATIONS.get(name, AUTOCAST_ACTIVATION if wide else COMPOSED_ACTIVATION)
    if not gated:
        return alone
    by_gate = WIDE_GATE_PRODUCT if wide else GATE_PRODUCT
    kernels = alone.kernels[0] + by_gate.kernels[0], alone.kernels[1] + by_gate.kernels[1]
    return Cost((4 * alone.forward + by_gate.forward) / 6, (8 * alone.backward + by_gate.backward) / 12, kernels)
