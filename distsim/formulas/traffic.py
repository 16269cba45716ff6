"""Bytes and calls of the communication in a training step, one function per law."""

import math

from distsim.arrays import Number, each, maximum, minimum, round_up, where
from distsim.formula import formula
from distsim.units import FP32_BYTES

# Bytes of one element on the wire (IEEE 754, OCP 8-bit floating point; int4 is packed two to a byte).
DTYPE_BYTES = {
    "int64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "bool": 1.0, "int4": 0.5, "fp4": 0.5,
    "sign": 0.125,
}  # fmt: skip
_ZERO = "Rajbhandari et al. 2020, ZeRO (arXiv:1910.02054), section 7"
_ZEROPP = "Wang et al. 2023, ZeRO++ (arXiv:2306.10209), section 3"


@formula(unit="1", source=_ZERO)
def zero_volume_parameters(zero_stage: Number) -> Number:
    """Parameters each rank sends per step over the model's own, without the ring factor: 2, 2, 2, 3 for ZeRO 0 to 3."""
    return where(zero_stage >= 3, 3, 2)


@formula(unit="B", source="definition: so many numbers in one format")
def logical_bytes(elements: Number, bytes_each: Number) -> Number:
    """Bytes of a tensor as it travels."""
    return elements * bytes_each


@formula(unit="B", source="Shoeybi et al. 2019 (arXiv:1909.08053), section 3; Korthikanti et al. 2022, section 4.2")
def token_bytes(tokens: Number, numbers_per_token: Number, bytes_each: Number) -> Number:
    """What ranks exchange of the activations of one micro-batch: s b h numbers at the edge of a region."""
    return tokens * numbers_per_token * bytes_each


@formula(unit="B", source="Fedus et al. 2022, Switch Transformers (arXiv:2101.03961), section 2.2; GShard, 2020")
def expert_exchange_bytes(
    tokens: Number, hidden: Number, choices: Number, imbalance: Number, shards: Number, bytes_each: Number
) -> Number:
    """Copies of tokens that the busiest rank exchanges with the others that hold experts."""
    return tokens * hidden * choices * imbalance / shards * bytes_each


@formula(unit="B", source="count of the sends inside a node (node_copies_passed_on)")
def passed_on_bytes(call_bytes: Number, share: Number) -> Number:
    """Bytes of a call that a rank passes on inside its node, by what they are of those that it sends."""
    return call_bytes * share


@formula(unit="s", source="one copy at the rate of its link")
def copy_seconds(size_bytes: Number, rate: Number) -> Number:
    """Time to copy so many bytes."""
    return size_bytes / rate


@formula(unit="s", source="what computation of the same phase at peak rate hides (docs/traffic.md)")
def left_seconds(seconds: Number, hidden_share: Number) -> Number:
    """What of an exchange computation does not hide."""
    return seconds * (1 - hidden_share)


@formula(unit="1", source="PyTorch reducer.cpp, DeepSpeed reduce_bucket_size, Megatron-LM DDP")
def full_buckets(elements: Number, bucket_elements: Number) -> Number:
    """Buckets that ``elements`` fill; the rest goes into one more. 0 bucket elements means all at once."""
    return where(bucket_elements > 0, elements // maximum(bucket_elements, 1), 0)


@formula(unit="elements", source="torch 2.13 FSDPParam: dimension 0 of each parameter is padded to the shard count")
def padded_elements(rows: Number, elements: Number, ranks: Number) -> Number:
    """Elements of a tensor whose first dimension is padded so that all ranks hold equal shards."""
    return round_up(rows, ranks) * (elements / rows)


@formula(unit="B", source="Narayanan et al. 2021 (arXiv:2104.04473), section 3.2")
def pipeline_boundary_bytes(tokens: Number, hidden: Number, bytes_each: Number, shards: Number) -> Number:
    """What one rank sends to the next stage for one micro-batch; sequence parallelism or scatter/gather divides it."""
    return tokens * hidden * bytes_each / shards


@formula(unit="1", source="count of the chunk boundaries of a stage, Narayanan et al. 2021, section 2.2")
def boundary_sends(micro_batches: Number, chunks: Number, local_ends: Number) -> Number:
    """Messages one stage sends one way per step: one per micro-batch and chunk that another stage follows."""
    return micro_batches * (chunks - local_ends)


@formula(unit="1", source="count: Narayanan et al. 2021, section 2.2; the model's two ends have one neighbour")
def boundary_calls(chunks: Number, stages: Number, index: Number) -> Number:
    """Sends and receives that a stage's host issues for one micro-batch in one direction."""
    ends = where(index == 0, 1, 0) + where(index == stages - 1, 1, 0)
    return where(stages > 1, 2 * chunks - ends, 0)


@formula(unit="1", source="Shoeybi et al. 2019; edges of a ring whose ranks fill one domain after another")
def ring_crossing_fraction(local: Number, nodes: Number) -> Number:
    """Share of a ring's messages that leave a domain: one of the ``local`` edges of each."""
    return where(nodes > 1, 1 / local, 0.0)


@formula(unit="1", source="count: of the edges of a tree or chain over all ranks, those between domains join them")
def tree_crossing_fraction(ranks: Number, nodes: Number) -> Number:
    """Share of a tree's or a chain's messages that leave a domain."""
    return (nodes - 1) / maximum(ranks - 1, 1)


@formula(unit="1", source="each domain sends a vector to the switches that add up, of the 2(n-1) that n ranks count")
def switched_crossing_fraction(ranks: Number, nodes: Number) -> Number:
    """Share of an all-reduce's bytes that leave a domain where switches between domains reduce (SHARP)."""
    return where(nodes > 1, nodes / (2 * maximum(ranks - 1, 1)), 0.0)


@formula(unit="1", source="count of pairs of ranks in different domains")
def direct_crossing_fraction(ranks: Number, near: Number, nodes: Number) -> Number:
    """Share of an all-to-all's messages that leave a domain: every peer but the ``near`` ones, which include itself."""
    return where(nodes > 1, (ranks - near) / maximum(ranks - 1, 1), 0.0)


@formula(
    unit="1",
    source="DeepSeek-AI 2024 (arXiv:2412.19437), sections 2.1.2 and 3.2.2; counts of the draws, and of the turns, that "
    "reach a destination",
)
def distinct_copies(
    held: Number, experts: Number, choices: int, in_turn: bool, groups: int = 1, groups_chosen: int = 1
) -> Number:
    """Copies sent per token when it goes once to each destination that holds ``held`` of the experts, relative to one
    copy per chosen expert. The ``choices`` are different experts drawn at random, equally many from each of the groups
    chosen first, or the next ones in turn (round robin)."""
    reached = _next_ones(held, experts, choices) if in_turn else _drawn(held, experts, choices, groups, groups_chosen)
    return reached / (choices * held / experts)


@formula(unit="1", source="DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2.2; count of the sends inside a node")
def node_copies_passed_on(to_nodes: Number, to_ranks: Number, ranks: Number, near: Number) -> Number:
    """Copies that ranks forward inside a node (or collect and sum) where a token crosses once to each node: all that
    ranks other than the one it reaches need, less those of an exchange that sends to all ranks equally."""
    return to_ranks * (near - 1) / near - to_nodes * (near - 1) / ranks


def _drawn(held: Number, experts: Number, choices: int, groups: int, groups_chosen: int) -> Number:
    """Share of tokens that reach a destination: one of its groups is chosen, and there one of its experts."""
    size = experts / groups
    chosen = 1 - _missed(maximum(held / size, 1), groups, groups_chosen)
    return chosen * (1 - _missed(minimum(held, size), size, max(choices // groups_chosen, 1)))


def _next_ones(held: Number, experts: Number, choices: int) -> Number:
    """Share of tokens of whose next experts one is among those held: where the first of them may stand, which moves in
    steps of the greatest common divisor."""
    steps = each(lambda one: math.gcd(choices, int(one)), held)
    return minimum((held + choices - steps) / experts, 1.0)


def _missed(held: Number, experts: Number, choices: int) -> Number:
    """Chance that none of so many different experts is among those held."""
    found: Number = 1.0
    for before in range(choices):
        found = found * maximum(experts - held - before, 0) / (experts - before)
    return found


@formula(unit="s", source="Oh and Singh 2026 (arXiv:2605.00686): a signal's fence waits for the transfer before it")
def chunk_by_chunk_seconds(rows: Number, chunk_rows: Number, channels: Number, round_trip: Number) -> Number:
    """Time of rows sent in chunks, of which each of the channels sends the next one when the last has arrived."""
    return rows / chunk_rows / channels * round_trip


@formula(unit="elements", source="Vogels et al. 2019, PowerSGD (arXiv:1905.13727), section 3")
def powersgd_elements(rows: Number, columns: Number, rank: Number) -> Number:
    """Elements of the two factors (n x r and m x r) that stand for an n x m gradient; never more than the gradient."""
    whole = rows * columns
    factors = rank * (rows + columns)
    return where(factors < whole, factors, whole)


@formula(unit="B", source=_ZEROPP)
def quantised_bytes(elements: Number, bits: Number, block_elements: Number) -> Number:
    """Bytes of block-quantised values with one fp32 scale per block."""
    return elements * bits / 8 + where(block_elements > 0, elements / maximum(block_elements, 1) * FP32_BYTES, 0)


@formula(unit="B", source="Xu et al. 2021, 2D (arXiv:2104.05343); van de Geijn, Watts 1997, SUMMA")
def summa_block_bytes(matrix_bytes: Number, ranks: Number) -> Number:
    """The block of a matrix that one rank of a 2D grid broadcasts (or reduces) in a SUMMA step."""
    return matrix_bytes / ranks


@formula(unit="B", source="Bian et al. 2021, 3D (arXiv:2105.14450): cube of q ranks per side")
def cube_face_bytes(matrix_bytes: Number, side: Number) -> Number:
    """What an all-gather along one side of a cube of ranks gives each rank: one face's block of the matrix."""
    return matrix_bytes / (side * side)


@formula(unit="s", source="Li et al. 2014, Scaling distributed machine learning with the parameter server, section 3")
def parameter_server_seconds(size_bytes: Number, workers: Number, servers: Number, rate: Number, hop: Number) -> Number:
    """Time for all workers to push (or pull) ``size_bytes``: the slower of a worker's link and a server's."""
    return hop + maximum(size_bytes, workers * size_bytes / servers) / rate


@formula(unit="s", source="ring over one slow link per replica; Douillard et al. 2023, DiLoCo (arXiv:2311.08105)")
def slow_ring_seconds(size_bytes: Number, ranks: Number, rings: Number, rate: Number) -> Number:
    """``rings`` all-reduces of ``size_bytes`` at once, one for each rank of a replica; they share its link, which is so
    slow that its latency does not matter."""
    return rings * 2 * (ranks - 1) / ranks * size_bytes / rate


@formula(unit="B", source="Ren et al. 2021, ZeRO-Offload (arXiv:2101.06840), section 4: gradients down, parameters up")
def offload_transfer_bytes(parameters: Number, bytes_each: Number, shards: Number) -> Number:
    """Bytes one GPU moves one way to or from host memory for its share of the parameters."""
    return parameters * bytes_each / shards
