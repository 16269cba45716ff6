"""What chooses the keys of sparse attention (DeepSeek-V3.2-Exp's report, section 2.1): a light attention of its own,
whose scores of every earlier token are summed over its heads.

It reads what latent attention makes anyway and hands back positions, so the loss's gradients end before it; it is
trained to agree with the attention that it chooses for. Its parameters are few, and held whole by every rank.
"""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.formulas.attention import attention_flops, chosen_keys
from distsim.layers.attention_kernel import reads_chosen
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.tensor_parallel import sequence_gathers
from distsim.specs.latent import LatentAttention
from distsim.units import FP32_BYTES, INDEX_BYTES


def indexer(ctx: Context, latent: Tensor | None) -> list[Operation]:
    """Operations of one indexer; ``latent`` is the narrow input of the queries, without which it reads a layernorm of
    the layer's input and scales its queries as attention does (Mistral Large 4). Pooled keys are means of neighbouring
    tokens', by weights of one more product, channel by channel."""
    mla, tokens, act = ctx.model.latent_attention, ctx.layout.tokens, ctx.activation
    assert mla is not None
    hidden, heads, width = ctx.model.hidden, mla.index_heads, mla.index_dim
    queries = Tensor("attention.index.queries", tokens * heads * width, act, "s b i d")
    keys = Tensor("attention.index.keys", tokens * width, act, "s b d")
    weights = Tensor("attention.index.weights", tokens * heads, FP32_BYTES, "s b i")
    layout, seen = ctx.layout, ctx.layout.together
    samples, rows = layout.micro_batch * layout.seq / seen, seen / layout.cp
    chosen = minimum(mla.index_keys, seen)
    pooled = mla.index_pool > 1
    source = latent or Tensor("attention.index.input", tokens * hidden, act, "s b h")
    gathers = sequence_gathers(ctx, hidden + (mla.q_rank if latent else 0), reduced=False)
    scored = (
        (samples, heads, rows, seen / mla.index_pool, width, width),
        queries.size_bytes + keys.size_bytes / mla.index_pool,
        Tensor("attention.index.chosen", tokens * chosen, INDEX_BYTES, "s b k"),
    )  # fmt: skip
    operations = [
        linear(ctx, "attention.index.query", tokens, mla.q_rank or hidden, heads * width, source, sharded=False,
               collectives=gathers if ctx.kernels.regather_input else ()),
        linear(ctx, "attention.index.key", tokens, hidden, width, None, sharded=False),
        linear(ctx, "attention.index.weight", tokens, hidden, heads, None, sharded=False),
        *([linear(ctx, "attention.index.pool", tokens, hidden, width, None, sharded=False)] if pooled else []),
        Operation(
            "attention.index.norm", "norm", bytes_read=keys.size_bytes, bytes_written=keys.size_bytes,
            shape=(tokens, width), saved=(queries, keys, weights), parameters=_vectors(mla, hidden, latent is None),
            role="index norm",
        ),
        _sparse_scores(ctx, *scored) if reads_chosen(ctx.model, layout, ctx.kernels) else _scores(*scored),
    ]  # fmt: skip
    return operations if ctx.kernels.indexer == "trained" else [fixed(one) for one in operations]


def _vectors(mla: LatentAttention, hidden: int, own_input: bool) -> tuple[Parameter, ...]:
    """Weights of its norms and scales, and positions within pools of keys, whole on every tensor parallel rank."""
    heads, width = mla.index_heads, mla.index_dim
    sizes = {"norm.weight": width, "norm.bias": width}
    if own_input:
        sizes |= {"input_norm.weight": hidden, "input_norm.bias": hidden}
    if mla.query_scale:
        sizes |= {"scale.weight": heads, "scale.bias": heads}
    if mla.index_pool > 1:
        sizes |= {"pool.positions": mla.index_pool * width}
    return tuple(Parameter(f"attention.index.{what}", n, "vector", tensor_parallel=False) for what, n in sizes.items())


def _scores(shape: tuple[Number, ...], read: Number, chosen: Tensor) -> Operation:
    """Scores of all tokens as batched products; their gradients too."""
    samples, heads, rows, seen, width, _ = shape
    scores = samples * rows * seen
    flops = attention_flops(scores * heads, width)
    return Operation(
        "attention.index.scores", "attention", flops, 2 * flops, read, scores * FP32_BYTES, shape, saved=(chosen,),
        transient_backward=(Tensor("attention.index.scores", scores, FP32_BYTES, "b s s fp32"),), role="scores",
    )  # fmt: skip


def _sparse_scores(ctx: Context, shape: tuple[Number, ...], read: Number, chosen: Tensor) -> Operation:
    """A kernel that leaves later tokens out, whose scores are read once more to choose from them; the loss, and with it
    the gradients, are of chosen keys (NVIDIA, cuDNN frontend, deepseek_sparse_attention; the report, section 2.1)."""
    samples, heads, rows, seen, width, _ = shape
    scores = samples * rows * seen / 2
    assert ctx.model.latent_attention is not None
    kept = samples * rows * chosen_keys(seen, ctx.model.latent_attention.index_keys)
    return Operation(
        "attention.index.core", "attention", attention_flops(scores * heads, width),
        2 * attention_flops(kept * heads, width), read + scores * FP32_BYTES, scores * FP32_BYTES,
        (samples, heads, rows, seen / 2, width, width),
        saved=(chosen,), transient_backward=(chosen._replace(name="attention.index.scores", bytes_each=FP32_BYTES),),
        causal=False, role="core",
    )  # fmt: skip


def target_scores(flops: Number, moved: Number, shape: tuple[Number, ...]) -> Operation:
    """What an indexer learns to agree with: the scores of the attention that it chooses for, once more."""
    return Operation(
        "attention.target.core", "attention", flops, 0, moved, 0, shape, backward=False, causal=False, role="core"
    )


def fixed(row: Operation) -> Operation:
    """A row without gradients: it keeps nothing, and its parameters have neither gradient nor states."""
    parameters = tuple(one._replace(held="frozen") for one in row.parameters)
    return row._replace(
        flops_backward=0, saved=(), transient_backward=(), parameters=parameters, weight_gradient=False,
        backward=False,
    )  # fmt: skip
