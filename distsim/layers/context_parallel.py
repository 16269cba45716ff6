"""What context-parallel ranks exchange so that every query meets every key.

Ring: keys and values go round (Liu et al. 2023, arXiv:2310.01889). All-gather: every rank gets all of them (Llama 3,
arXiv:2407.21783, section 3.3.2). All-to-all: heads are traded for tokens (Jacobs et al. 2023, DeepSpeed-Ulysses).
"""

from __future__ import annotations

from distsim.arrays import Number, maximum, where
from distsim.layers.ledger import Collective, Context, Operation, Tensor
from distsim.layers.names import EXCHANGE
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.units import FP8_BYTES, FP32_BYTES


def reads_gathered(kernels: Kernels, layout: Layout) -> bool:
    """Whether attention reads keys and values of all ranks at once, and keeps them, where torch's context parallelism
    gathers: its flex attention does (flex_cp_allgather), all others take them in the ring's steps."""
    return kernels.cp_gathers_first and kernels.attention_kernel == "flex" and layout.cp_mode == "all_gather"


def merges_in_torch(ctx: Context) -> Number:
    """1 where torch's loop attends to one rank's keys after the other, else 0: its results are put together by a
    concatenation, which leaves them in another order than what reads them (torch 2.13 distributed/tensor/experimental/
    _attention.py, _partial_update; not so on the last rank)."""
    layout, kernels = ctx.layout, ctx.kernels
    if not kernels.cp_gathers_first or layout.cp_mode == "all_to_all" or reads_gathered(kernels, layout):
        return 0
    return where(layout.cp > 1, 1, 0)


def traded(ctx: Context, tensor: Tensor, heads: Number) -> Tensor:
    """Keys or values of ``heads`` on a tensor parallel rank as context parallel ranks have them where they trade heads
    for tokens: fewer heads than ranks are copied first, so that each has one (deepspeedai/DeepSpeed runtime/
    sequence_parallel/ulysses_sp.py, kv_replication_factor). Both what is sent and what is kept."""
    if ctx.layout.cp_mode != "all_to_all":
        return tensor
    return tensor._replace(elements=tensor.elements * maximum(1, ctx.layout.cp / heads))


def outputs_apart(ctx: Context) -> Number:
    """1 where the output that attention's kernel keeps is not the one that the projection reads, since ranks trade that
    for it, else 0."""
    if ctx.layout.cp_mode != "all_to_all" or ctx.kernels.cp_output == "again":
        return 0
    return where(ctx.layout.cp > 1, 1, 0)


def context_exchange(ctx: Context, query: Tensor, key: Tensor, value: Tensor, value_width: Number) -> list[Operation]:
    """The collectives of one layer's attention over the cp ranks; none where cp is 1. Keys and values are those that
    attention reads, ``traded`` where ranks trade heads for tokens."""
    cp = ctx.layout.cp
    if isinstance(cp, int) and cp == 1:
        return []
    there, at_once = where(cp > 1, 1, 0), reads_gathered(ctx.kernels, ctx.layout)
    if ctx.layout.cp_mode == "all_to_all":
        found = _heads_for_tokens(ctx, query, key, value, value_width)
    elif at_once:
        found = _apart(key.size_bytes * cp * there) + _apart(value.size_bytes * cp * there)
    else:
        found = _keys_and_values(ctx, (key.elements + value.elements) * there)
    in_turn = ctx.kernels.cp_gathers_first and not at_once
    stepwise = ctx.layout.cp_mode == "ring" or (ctx.layout.cp_mode == "all_gather" and in_turn)
    steps = (cp - 1) * int(stepwise)
    merged = query.elements * FP32_BYTES  # the largest tensor that one step's merge passes over
    return [
        Operation(EXCHANGE, "collective", bytes_read=merged,
                  shape=(query.elements, steps, key.elements + value.elements),
                  collectives=found, recompute_class="core_attention")
    ]  # fmt: skip


def gathered_beside(
    ctx: Context, query: Tensor, before: Number, gathered: Tensor, chosen_by: Number
) -> list[Operation]:
    """The same where a query sees a few tokens before it and ``gathered`` keys that stand for several: hidden states of
    the last tokens go to the next rank, ``before`` elements of them, and each rank gets all keys of the other kind and
    those of the indexer (``chosen_by`` elements; NVIDIA/Megatron-LM core/transformer/experimental_attention_variant,
    csa_cp_utils.py, exchange_cp_boundary_hidden and all_gather_fixed_cp_tensor)."""
    cp, act = ctx.layout.cp, ctx.activation
    if isinstance(cp, int) and cp == 1:
        return []
    there = where(cp > 1, 1, 0)
    edges = tuple(Collective("send_recv", "cp", before * act * there, phase) for phase in ("forward", "backward"))
    index = _apart(chosen_by * act * cp * there)
    found = (
        *edges,
        *_apart(gathered.size_bytes * cp * there),
        *(index if ctx.kernels.indexer == "trained" else index[:1]),
    )
    return [
        Operation(EXCHANGE, "collective", shape=(query.elements, 0, gathered.elements), collectives=found,
                  recompute_class="core_attention")
    ]  # fmt: skip


def beside_gathered(ctx: Context, core: list[Operation], key: Tensor, value: Tensor) -> list[Operation]:
    """Core attention beside what an all-gather leaves in memory while it runs: keys and values of all ranks, gathered
    again in backward, where their gradients are whole too until they are scattered (Transformer Engine's
    AttnFuncWithCPAndKVAllGather); torch's flex attention keeps them instead of a rank's own."""
    cp = ctx.layout.cp
    if ctx.layout.cp_mode != "all_gather" or (isinstance(cp, int) and cp == 1):
        return core
    ranks = where(cp > 1, cp, 0)
    whole = tuple(one._replace(name=f"{one.name}_gathered", elements=one.elements * ranks) for one in (key, value))
    gradients = tuple(one._replace(name=f"{one.name}_gradient") for one in whole)
    if kept := reads_gathered(ctx.kernels, ctx.layout):
        own = {one.name: where(cp > 1, cp, 1) for one in (key, value)}
        core = [
            row._replace(saved=tuple(t._replace(elements=t.elements * own.get(t.name, 1)) for t in row.saved))
            for row in core
        ]
    return [
        row._replace(
            transient_forward=(*row.transient_forward, *(() if kept else whole)),
            transient_backward=(*row.transient_backward, *(() if kept else whole), *gradients),
        ) if row.recompute_class == "core_attention" else row
        for row in core
    ]  # fmt: skip


def _keys_and_values(ctx: Context, elements: Number) -> tuple[Collective, ...]:
    """Ring and all-gather; the ring's gradients need a hop less unless they start at home and end there (torch)."""
    cp, act, whole = ctx.layout.cp, ctx.activation, ctx.kernels.cp_gradients == "fp32_ring"
    ring = ctx.layout.cp_mode == "ring"
    size = elements * act
    hops = Collective("send_recv", "cp", size, "forward", "attention.core", calls=cp - 1)
    gather = Collective("all_gather", "cp", size * cp, "forward")
    if whole:
        back = Collective(
            "send_recv", "cp", elements * FP32_BYTES, "backward", "attention.core", calls=cp, bytes_each=FP32_BYTES
        )
    elif ring:
        back = hops._replace(phase="backward")
    else:
        back = Collective("reduce_scatter", "cp", size * cp, "backward")
    first = hops if ring else gather
    return first, first._replace(phase="backward"), back


def _apart(size: Number) -> tuple[Collective, ...]:
    """Keys or values of all ranks by themselves, and their gradients to the ranks that they are of."""
    return Collective("all_gather", "cp", size, "forward"), Collective("reduce_scatter", "cp", size, "backward")


def _heads_for_tokens(
    ctx: Context, query: Tensor, key: Tensor, value: Tensor, value_width: Number
) -> tuple[Collective, ...]:
    """Four all-to-alls forward (queries, keys, values, output) and four back, or five where the output goes again.
    Transformer Engine, which does, trades what its attention reads and writes: bytes, if those have a scale per tensor
    (context_parallel.py, AttnFuncWithCPAndQKVOA2A: quantised before, back in 16 bits after)."""
    output = ctx.layout.tokens * ctx.model.heads / ctx.layout.tp * value_width
    sent = channels_for_tokens(ctx, query.elements, key.elements, value.elements, output)
    if ctx.kernels.cp_output != "again":
        return sent
    sent = (*sent, sent[-1])
    if ctx.kernels.attention_format != "fp8":
        return sent
    share = FP8_BYTES / ctx.activation
    return tuple(one._replace(bytes_logical=one.bytes_logical * share, bytes_each=FP8_BYTES) for one in sent)


def channels_for_tokens(ctx: Context, *sizes: Number) -> tuple[Collective, ...]:
    """An all-to-all for each tensor of so many elements, forward and of its gradient; nothing where cp is 1. Megatron
    core trades the inputs of a recurrent mixer one by one, and its output back (ssm/mamba_context_parallel.py,
    ssm/gated_delta_net.py)."""
    there = where(ctx.layout.cp > 1, 1, 0)
    return tuple(
        Collective("all_to_all", "cp", elements * ctx.activation * there, phase)
        for phase in ("forward", "backward")
        for elements in sizes
    )
