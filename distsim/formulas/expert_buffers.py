"""What DeepEP and HybridEP hold to send tokens to the ranks of their experts."""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, maximum, minimum, round_up, where
from distsim.formula import formula
from distsim.units import FP32_BYTES, GIB, MIB

TOKEN_BYTES = 2
"""Of one element of a token that HybridEP sends: it has kernels for one byte too, which no framework asks for
(NVIDIA/Megatron-LM core/transformer/moe/fused_a2a.py: "Currently, we do not support fp8 dispatch")."""
SCALED = 128
"""Elements of a token that would share an fp32 scale in 8 bits; HybridEP has buffers for scales in any case."""
SENT_EACH, RETURNED_EACH = 1, 2
"""Buffers of tokens of each other node for dispatch (those that come) and for combine (those that come and those that
go): csrc/hybrid_ep/buffer/internode_doca.cu."""
FEWEST_TOKENS, TOKENS_ALIGNED = 512, 16
"""HybridEP's buffers have room for no fewer tokens per rank, and for a multiple (deep_ep/hybrid_ep_buffer.py)."""
ENTRIES_PER_TOKEN, DEEPEST_QUEUE = 3, 65535
"""Entries of a send queue that dispatch between nodes takes per token, and the most that one holds
(csrc/hybrid_ep/buffer/internode_doca.cu, setup_qp_init_attr, which asserts that they are fewer than 65,536)."""
PEERS = 8
"""Ranks that DeepEP takes to share a node, whatever a node has (csrc/kernels/configs.cuh, NUM_MAX_NVL_PEERS)."""
CHANNELS = 10
"""Two of DeepEP's 20 multiprocessors each (deep_ep/buffer.py, Buffer.num_sms; Megatron-LM, moe_deepep_num_sms)."""
TOKEN_EXTRA = 8 + 128 * (8 + 4 + 4)
"""Bytes beside a token in DeepEP's buffers: where it is from, and room for 128 experts, their weights, and scales
(csrc/config.hpp, kNumMaxTopK and kNumMaxScales)."""
REMOTE_EXTRA = TOKEN_EXTRA + 16
"""The same between nodes, with an int4."""
REMOTE_SPARE, HEAP_PIECE = MIB, GIB // 2
"""Bytes that DeepEP adds to be safe, and pieces in which NVSHMEM's heap grows (NVSHMEM_CUMEM_GRANULARITY, which
deep_ep/buffer.py sets)."""
WORKSPACE = 32 * MIB
"""csrc/kernels/configs.cuh, NUM_WORKSPACE_BYTES."""


@formula(unit="tokens", source="deepseek-ai/DeepEP, branch hybrid-ep, deep_ep/hybrid_ep_buffer.py: at least 512 tokens")
def hybridep_tokens(tokens: Number) -> Number:
    """Tokens of one rank for which HybridEP has room."""
    return maximum(round_up(tokens, TOKENS_ALIGNED), FEWEST_TOKENS)


@formula(
    unit="1",
    source="deepseek-ai/DeepEP, branch hybrid-ep, csrc/hybrid_ep/buffer/internode_doca.cu: 3 tokens + 1; "
    "NVIDIA/Megatron-LM core/transformer/moe/fused_a2a.py, _validate_hybrid_ep_ib_tx_depth",
)
def hybridep_queue_depth(tokens: Number) -> Number:
    """Entries of the queue by which a rank sends its tokens to another node."""
    return ENTRIES_PER_TOKEN * hybridep_tokens(tokens) + 1


@formula(
    unit="B",
    source="deepseek-ai/DeepEP, branch hybrid-ep, csrc/hybrid_ep: buffer/intranode.cu, internode_doca.cu, allgather.cu",
)
def hybridep_buffer_bytes(tokens: Number, hidden: Number, ranks: Number, nodes: Number, experts: Number) -> Number:
    """Room for all tokens of all ranks, as if each went to this rank, with a weight for every expert of the node and
    scales; which experts every token goes to; and with several nodes the rank's own tokens, those that come from each
    other node, and what is returned to it."""
    room, scales = hybridep_tokens(tokens), hidden // SCALED * FP32_BYTES
    weights = experts / nodes * FP32_BYTES  # of the experts of one node
    near = room * ranks * (hidden * TOKEN_BYTES + weights + scales + experts)
    own = room * (hidden * TOKEN_BYTES + experts * FP32_BYTES + scales)
    others = (SENT_EACH + RETURNED_EACH) * (hidden * TOKEN_BYTES + weights) + SENT_EACH * scales
    return near + where(nodes > 1, own, 0) + room * (nodes - 1) * others


@formula(unit="B", source="deepseek-ai/DeepEP csrc/config.hpp, get_nvl_buffer_size_hint and get_rdma_buffer_size_hint")
def deepep_buffer_bytes(token_bytes: Number, ranks: Number, near_tokens: Number, far_tokens: Number) -> Number:
    """Pieces of the tokens of each rank of a node and, with more than eight ranks, of each node, sent and received, in
    NVSHMEM's heap. It does not depend on how many tokens there are."""
    nodes = maximum(ceil_div(ranks, PEERS), 1)
    counters = (2 * nodes + 3) * FP32_BYTES
    near = CHANNELS * minimum(ranks, PEERS) * (counters + near_tokens * (token_bytes + TOKEN_EXTRA))
    far = CHANNELS * nodes * 2 * ((2 * PEERS + 2) * FP32_BYTES + far_tokens * (token_bytes + REMOTE_EXTRA))
    return near + WORKSPACE + where(nodes > 1, round_up(far + REMOTE_SPARE, HEAP_PIECE), 0)


@formula(unit="B", source="torch 2.13 on a CPU, every kernel recorded: tests/oracles/sliced_experts.csv")
def sliced_gradient_bytes(experts: Number, tensor_bytes: Number) -> Number:
    """What the gradients of all slices of one tensor move: zeros as large as it are written for each and the slice is
    copied in; each but the first is added to the sum, where two tensors are read and one is written."""
    return tensor_bytes * (experts + 2 + 3 * (experts - 1))
