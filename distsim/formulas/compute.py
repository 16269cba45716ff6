"""Seconds of kernels on an accelerator, one function per kind; all take numbers or arrays.

They give the time of a well-tuned library at the accelerator's datasheet rates, shaped by what each kernel's geometry
allows; the share of that which a chip sustains and a framework reaches is fitted (engine/fitting/fit.py).
"""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, floor, kept, maximum, minimum, nothing, where
from distsim.formula import formula

# Output tiles that one unit (SM) computes at once: rows, columns, and the share of the peak rate that a unit reaches
# with so much reuse. Source: NVIDIA, Matrix Multiplication Background User's Guide, sections 3 and 4 (tile sizes);
# the shares follow from operand traffic per product, which falls with the tile's area.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.96), (128, 64, 0.88), (64, 64, 0.75))
DEPTH_HALF = 64.0
"""Depth (k) at which a product fills and drains as long as it multiplies; 32 to 128 do alike (docs/findings/fit.md)."""
SPLIT_TILE, SPLIT_DEPTH, SPLIT_SHARE = 64, 512.0, 0.8
"""Tiles of products whose depth is cut, the least depth of a part (assumed), and what is left where all units get one,
as parts are added up. Weight gradients of adapters of rank 16 in fp32 over 8,192 tokens take 61 and 6 us on an H100
(cuBLAS' 32x64 tiles and the kernel that adds up); without it 230 had been counted."""
WAVE_SHARE = 0.35
"""Share of a last, partly filled wave that is lost: libraries split along k to fill it (stream-k)."""
HOST_BANDWIDTH = {3: 256e9, 4: 410e9, 5: 614e9, 6: 1229e9}
"""Bytes per second of host memory by the generation of PCIe: two sockets of Xeon Skylake (2 x 6 channels of DDR4-2666),
EPYC Milan (2 x 8 of DDR4-3200), Xeon Sapphire Rapids (2 x 8 of DDR5-4800), EPYC Turin (2 x 12 of DDR5-6400). Of it
DeepSpeed's CPU Adam reaches half (0.22 s per 1e9 parameters on the first, Ren et al. 2021, arXiv:2101.06840, table 4;
recalled), about as an optimizer does on an accelerator."""
THREAD_BANDWIDTH = 27e9
"""The same of one thread, of x86 and of Grace. Chosen: torchtune's full fine-tuning of Llama 3.1 70B on eight A100 with
everything offloaded (its README) leaves 9 s for 14 bytes of each of 8.8e9 parameters a rank, from 21 to 3% too fast.
Runs that it was not chosen by: ms-swift under Megatron, Qwen2.5 72B on eight A800 from 17 to 7% too fast and Qwen3 30B
on four from 37% too fast to 1% too slow; Megatron-Bridge, Nemotron 3 Super on 16 GB200, H100 and B300 from 41 to 63%
too fast to 20 to 27%."""
CUT_SHARE = 0.8
"""Rate of a loss that never has its logits in memory (Cut Cross Entropy) over that of the output layer's products:
8,192 tokens of Gemma 2 2B take 46 and 89 ms on an A100, logits computed again in backward but for those that hardly
count (apple/ml-cross-entropy README, benchmark); the products take 37 and 72."""
ATTENTION_TILE = 128
"""Query rows of one block of flash attention (Dao 2023, arXiv:2307.08691, section 3.3)."""
ATTENTION_HALF = 700.0
"""Key tokens at which a block of flash attention spends as long on its edges as on products, on an A100. Chosen by
leaving sources out (docs/findings/attention.md), as far as FlashAttention-2's published figures allow
(tests/test_flash_rates.py)."""
ATTENTION_HALF_RATE = 2.5e12
"""FLOP/s of one unit of an A100 at its best measured rate: edges weigh more where units multiply faster."""
MOST_EDGES = 2.4
"""Edges at most, over an A100's: as on Hopper. Kernels for Blackwell work on two blocks at once; half of their rate is
at 1,400 to 1,700 key tokens on GB200 (NVIDIA/cudnn-frontend benchmark/attention_training/results and
sdpa_benchmark_training/results, llama3.1 and dsv3, causal, 2026; tests/test_flash_rates.py), not at 3,400."""
OLDER_ATTENTION = {
    "own": (1.0, 1.0, 1.0), "tokamax": (1.0, 1.0, 1.0), "sdpa": (1.0, 0.58, 1.0), "flash-2": (1.0, 0.58, 0.27),
    "flex": (0.87, 0.5, 0.48), "triton": (0.57, 0.33, 0.15), "flash-1": (0.45, 0.26, 0.12), "pallas": (0.7, 0.7, 0.7),
}  # fmt: skip
"""Rate of a generation of flash attention over a kernel written for the chip: before Hopper, on it, and after it. At
16,384 tokens, causal, head size 128: FlashAttention-3 about 640 TFLOP/s on an H100 and FlashAttention-2 370 (Shah et
al. 2024, arXiv:2407.08608, figure 5); FlashAttention-2 is 1.7 to 3 times as fast as FlashAttention, 1.3 to 2.5 times as
its Triton version (Dao 2023, arXiv:2307.08691, section 4.1). Blackwell runs the instructions of A100's products no
faster than Hopper does: FlashAttention-2 reaches 352 TFLOP/s at 2,048 tokens on a B200 and 331 at 16,384 (tritonbench
pull request 171), with heads 64 wide 379 and 334 backward (flash-attention issue 1589), cuDNN 1,613 / 1.3
(arXiv:2603.05451); what is older keeps its share of that. FlexAttention is compiled for the chip: 0.85 to 0.9 of
FlashAttention-2 (pytorch.org/blog/flexattention), on Blackwell what Triton reaches, 1,613 / 2.7. JAX's first Pallas
kernel on TPUs over splash attention: Llama 3 8B at 8,192 tokens takes 2.735 s on four v6e with the one and 2.407 s with
the other, of which attention is 0.76 (AI-Hypercomputer/torchprime e2e_testing/step_time_bounds.yaml)."""
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5
"""Products of flash attention's forward, and of its backward: scores again, the gradients of weights and of queries,
keys and values (Dao 2022, FlashAttention, appendix B)."""
APART_PRODUCTS = BACKWARD_PRODUCTS + 2
"""Those of a backward in two kernels, one for queries and one for keys and values, each of which takes the scores and
the gradients of weights (jax pallas ops, splash_attention_kernel.py without use_fused_bwd_kernel; recalled)."""
BUSIEST_RANK = 1.2
"""Tokens of the expert parallel rank that gets most over the mean, under a learned router with an auxiliary loss
(assumed)."""
LEARNED_SPREAD = 1.0
"""Half the width, over the mean, of how tokens of experts spread under a learned router: from none to twice the mean
(assumed)."""
FULL_WIDTH = 128
"""Head size that attention's best rate is stated for."""
USUAL_EXPONENTIALS = 16
"""Exponentials a unit does a clock, up to Blackwell; Blackwell Ultra does 32."""
EXPONENTIALS = 0.065
"""Time of exponentials that products do not hide, over that of products 128 wide, on an A100, whose unit does 16 a
clock beside 2,048 operations: of heads 64 wide FlashAttention-2 has 0.94 of the rate (0.92 in Dao 2023, figure 5;
recalled). Later units multiply faster and do as many exponentials."""
VECTOR_WORK = 0.32
"""Time of a score on a TPU's vector units, over that of products 128 wide on an array of that side: Llama 3.1 8B with
16 heads of 256 takes 95.7 s where 32 heads of 128 take 111.05, of which other work is 9 s and steps of the kernels'
grids 3.7 and 7.5 (sequences of 1,048,576 on 64 v5p, fused backward, blocks of 1,024; AI-Hypercomputer/tpu-recipes
training/v5p, 2026). A larger array multiplies as much faster."""
_MUON = "Jordan et al. 2024, Muon: An optimizer for hidden layers in neural networks"


@formula(unit="1", source="count: averaged over lengths spread evenly from 1 - spread to 1 + spread times the mean")
def mean_tiles(length: Number, tile: Number, spread: Number = 0) -> Number:
    """Mean number of whole tiles that cover a group of rows; groups of different lengths each round up on their own."""
    if nothing(spread):
        return ceil_div(length, tile)
    low, high = length * (1 - spread) / tile, length * (1 + spread) / tile
    return (_tiles_up_to(high) - _tiles_up_to(low)) / (high - low)


@formula(
    unit="1", source="a uniform distribution with the variance of a Poisson count: a third of its half width squared"
)
def chance_spread(tokens: Number) -> Number:
    """Relative half width of the spread of token counts that are dealt out by chance alone, ``tokens`` on average."""
    return minimum(1.0, (3 / tokens) ** 0.5)


def _tiles_up_to(end: Number) -> Number:
    """Integral of the rounded-up length from 0 to ``end`` tiles."""
    whole = floor(end)
    return whole * (whole + 1) / 2 + (end - whole) * (whole + 1)


def _tile_share(
    m: Number, n: Number, batch: Number, units: Number, rows: int, columns: int, spread: Number = 0
) -> Number:
    """Useful share of the tiles' work and of the waves that run them."""
    whole = mean_tiles(m, rows, spread) * ceil_div(n, columns) * batch
    edges = m * n * batch / (whole * rows * columns)
    waves = whole / units
    filled = waves / maximum(ceil_div(whole, units), 1)
    return edges * (filled + (1 - filled) * (1 - WAVE_SHARE) * where(waves > 1, 1, 0))


@formula(unit="FLOP", source="NVIDIA, Matrix Multiplication Background User's Guide, Math and Memory Bounds: 2 M N K")
def product_flops(m: Number, n: Number, k: Number, batch: Number = 1) -> Number:
    """Operations of a batch of products of m by k with k by n matrices; the three sizes are interchangeable."""
    return 2 * m * n * k * batch


@formula(unit="B", source="NVIDIA, Matrix Multiplication Background User's Guide, Math and Memory Bounds")
def product_bytes(m: Number, n: Number, k: Number, batch: Number, element_bytes: Number) -> Number:
    """The least that a batch of products moves: both operands read once and the result written, all of one width."""
    return (m * k + k * n + m * n) * batch * element_bytes


@formula(unit="1", source="NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantisation")
def matmul_share(m: Number, n: Number, k: Number, batch: Number, units: Number, spread: Number = 0) -> Number:
    """Share of the sustained peak that a product of this shape can reach: tiles, waves of tiles, and depth. In a
    batch of products ``m`` is the mean, around which they ``spread``."""
    return _best_tile_share(m, n, batch, units, spread) * _split_gain(m, n, k, batch, units) * k / (k + DEPTH_HALF)


def _split_gain(m: Number, n: Number, k: Number, batch: Number, units: Number) -> Number:
    """How much faster a product becomes whose depth is cut among units that its few tiles leave idle."""
    tiles = ceil_div(m, SPLIT_TILE) * ceil_div(n, SPLIT_TILE) * batch
    return maximum(1.0, SPLIT_SHARE * minimum(units / maximum(tiles, 1), k / SPLIT_DEPTH))


@kept
def _best_tile_share(m: Number, n: Number, batch: Number, units: Number, spread: Number) -> Number:
    """Useful share of the products' work under the best of the tiles that libraries choose from (``TILES``)."""
    best: Number = 0.0
    for rows, columns, reuse in TILES:
        best = maximum(best, reuse * _tile_share(m, n, batch, units, rows, columns, spread))
    return best


@formula(unit="1", source="MaxText, docs/guides/optimization/custom_model.md; AWS Neuron, nki.isa.nc_matmul")
def array_share(m: Number, n: Number, k: Number, array: Number) -> Number:
    """Share of a systolic array of side ``array`` that a product fills: one operand is held in it, cut into squares,
    and the other streams through while the next square loads, so that neither depth nor waves cost anything."""
    rows, columns, depth = (x / (ceil_div(x, array) * array) for x in (m, n, k))
    return depth * maximum(rows, columns)


def product_share(
    m: Number, n: Number, k: Number, batch: Number, units: Number, array: int, spread: Number = 0
) -> Number:
    """Share of the sustained peak that a product's shape allows on a chip: systolic arrays, or many small units."""
    return array_share(m, n, k, array) if array else matmul_share(m, n, k, batch, units, spread)


@formula(unit="s", source="Williams et al. 2009, Roofline")
def roofline_seconds(flops: Number, rate: Number, size_bytes: Number, bandwidth: Number) -> Number:
    """The longer of computing and moving bytes, at the rates that the kernel can reach."""
    return maximum(flops / rate, size_bytes / bandwidth)


@formula(
    unit="1", source="Dao 2023, FlashAttention-2 (arXiv:2307.08691), section 3: blocks above the diagonal are skipped"
)
def causal_fraction(keys: Number, sequence: Number, block: Number = ATTENTION_TILE) -> Number:
    """Share of each query's products with ``keys`` that a causal kernel computes: all of a sequence, or those of a
    sliding window, which the first queries of the sequence do not fill. Blocks on the diagonal and at the far edge of
    the window are computed whole: with ``b`` blocks in the window, the ``i``-th of queries meets ``min(i, b) + 1``."""
    window = 1 + block / keys - (keys + block) / (2 * sequence)
    return minimum(window, sequence / keys * minimum((1 + block / sequence) / 2, 1.0))


@formula(
    unit="1",
    source="Dao 2023 (arXiv:2307.08691), section 3.1: exponentials in addition to products; for arrays MaxText, "
    "docs/guides/optimization/custom_model.md",
)
def head_share(width: Number, array: Number, unit_rate: Number, exponentials: Number = USUAL_EXPONENTIALS) -> Number:
    """Share of the products' rate that heads of a width reach: each score takes one exponential, whatever the width of
    the products before and after it; on systolic arrays of side ``array`` (0: none) heads fill only their width, and
    vector units take their time for a score beside the arrays. A unit with more ``exponentials`` per clock exceeds the
    rate of heads 128 wide."""
    usual = EXPONENTIALS * unit_rate / ATTENTION_HALF_RATE
    exposed = usual * USUAL_EXPONENTIALS / exponentials
    narrow = (1 + usual) / (1 + exposed * maximum(FULL_WIDTH / width, 1.0))
    side = maximum(array, 1)
    vectors = VECTOR_WORK * side / FULL_WIDTH
    filled = (1 + vectors) / ((ceil_div(width, side) + vectors) * side / width)
    return where(array > 0, filled, narrow)


@formula(
    unit="1", source="Dao 2023, FlashAttention-2 (arXiv:2307.08691), sections 3.2 and 4.1: blocks, head sizes, lengths"
)
def attention_share(
    batch: Number, heads: Number, queries: Number, keys: Number, depth: Number, units: Number, unit_rate: Number
) -> Number:
    """Share of a flash kernel's best rate that a shape reaches: the head's share ``depth``, the length, and how its
    blocks fill the chip."""
    length = keys / (keys + ATTENTION_HALF * minimum(unit_rate / ATTENTION_HALF_RATE, MOST_EDGES))
    blocks = batch * heads * ceil_div(queries, ATTENTION_TILE)
    filled = (blocks / units) / maximum(ceil_div(blocks, units), 1)
    return depth * length * (filled + (1 - filled) * where(blocks > units, 0.5, 0.0))


@formula(unit="FLOP", source=f"{_MUON}: the second product of a round")
def newton_schulz_square_flops(short: Number, rounds: Number) -> Number:
    """Operations of orthogonalising a matrix that do not depend on its longer side: in each round, squaring the
    matrix's product with its own transpose."""
    return product_flops(short, short, short) * rounds


@formula(unit="FLOP", source=f"{_MUON}: the first and the third product of a round")
def newton_schulz_wide_flops(short: Number, long: Number, rounds: Number) -> Number:
    """Operations of orthogonalising a ``short`` by ``long`` matrix that scale with its longer side: in each round its
    product with its own transpose, and the polynomial's product with the matrix."""
    return 2 * product_flops(short, short, long) * rounds


@formula(unit="s", source="bytes over bandwidth")
def stream_seconds(size_bytes: Number, bandwidth: Number) -> Number:
    """Time of a kernel that only moves bytes: elementwise, norm, softmax, cast, optimizer."""
    return size_bytes / bandwidth


@formula(
    unit="B",
    source="Rajbhandari et al. 2020, ZeRO (arXiv:1910.02054), section 3.1: what Adam reads and writes; Micikevicius et "
    "al. 2018 (arXiv:1710.03740), section 3.2: gradients are unscaled before the step",
)
def optimizer_traffic_bytes(
    shard_elements: Number,
    state_bytes: Number,
    gradient_bytes: Number,
    parameter_bytes: Number,
    master_bytes: Number = 0.0,
    scaled: int = 0,
    clip_passes: int = 1,
    passes: float = 1.0,
) -> Number:
    """Bytes moved by one optimizer step on a shard: states (including the master copy) read and written, gradients
    read, parameters written from the master copy, or read and written where they have none, all that ``passes`` times
    where no fused kernel does so (28 bytes an element of fused AdamW in fp32; presets/optimizers). Besides, gradients
    pass where they are clipped, those narrower than the master copy are widened first, and those of a scaled loss are
    unscaled in place."""
    narrow = where(master_bytes > gradient_bytes, 1, 0)
    gradients = where(narrow > 0, master_bytes, gradient_bytes)
    widened = narrow * (gradient_bytes + master_bytes)
    updated = 2 * state_bytes + gradients + where(master_bytes > 0, master_bytes, parameter_bytes) + parameter_bytes
    return shard_elements * (updated * passes + (clip_passes + 2 * scaled) * gradients + widened)
