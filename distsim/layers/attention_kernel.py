"""Which kernel attends, and the dense masks that rule a flash kernel out."""

from __future__ import annotations

from distsim.arrays import Number, nothing, round_up, where
from distsim.layers.ledger import Context, Tensor
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.units import FP32_BYTES, MASK_BYTES

MASK = "attention.mask"
MASKED = ("always", "bias")  # kinds of masks that rule the flash kernel out in every layer
MASK_KEYS = 8
"""Keys to whose multiples the memory-efficient kernel pads rows of a mask (torch 2.13 transformers/attention.cpp,
pad_bias)."""
FLASH_BYTES = 2  # flash kernels take 2-byte queries, keys and values only
FLASH_WIDTH = 256
"""The widest heads of flash kernels (Dao-AILab/flash-attention, README; torch, transformers/cuda/sdp_utils.cpp)."""


ACCUMULATING = ("own", "sdpa", "flash-1", "flash-2")
"""Kernels whose backward adds up gradients of queries in fp32, block by block of keys, and makes those of keys and
values for each head of queries (Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp, mha_bwd: dq_accum,
dk_expanded, dv_expanded, whose copy in torch is transformers/cuda/flash_attn/flash_api.cpp; NVIDIA/cudnn-frontend
node/scaled_dot_product_flash_attention.h: dQ_accum, dK_fullhead, dV_fullhead)."""


def summed_apart(
    ctx: Context, query: Tensor, key: Tensor, value: Tensor, own: Number, share: Number
) -> tuple[Tensor, ...]:
    """What a flash kernel's backward holds beside the gradients that it gives: queries' in fp32, and keys' and values'
    of all heads where several ``share`` one on a rank. ``own`` is the elements of keys before any copy to all heads."""
    kernels = ctx.kernels
    library = kernels.attention_kernel in ACCUMULATING and kernels.compiler != "xla" and kernels.packed != "masked"
    if not library or not flash_kernel(ctx):
        return ()
    sums = (query._replace(name="attention.query_sums", bytes_each=FP32_BYTES),)
    if nothing(share - 1):
        return sums
    here = where(key.elements > own, 0, where(share > 1, share, 0))
    each = (
        key._replace(elements=here * own, name="attention.key_gradients"),
        value._replace(elements=here * own, name="attention.value_gradients"),
    )
    return (*sums, *each)


def flash_kernel(ctx: Context) -> bool:
    """Whether attention is one kernel whose output has the queries' order in memory."""
    possible = ctx.layout.attention == "flash" and not ctx.model.composed_attention
    return possible and (not ctx.kernels.sdpa or sdpa_choice(ctx) == "flash")


def math_kernel(ctx: Context) -> bool:
    """Whether torch's own choice comes to plain products."""
    return ctx.kernels.sdpa and ctx.layout.attention == "flash" and sdpa_choice(ctx) == "math"


def composed(ctx: Context) -> bool:
    """Whether scores are in memory, of products that do not keep what they make."""
    return ctx.layout.attention != "flash" or ctx.model.composed_attention or math_kernel(ctx)


def reads_chosen(model: Model, layout: Layout, kernels: Kernels) -> bool:
    """Whether kernels that read chosen keys alone run where a model has indexers."""
    latent = model.latent_attention
    return latent is not None and latent.index_heads > 0 and _absorbed(layout, kernels)


def reads_window(model: Model, layout: Layout, kernels: Kernels) -> bool:
    """Whether kernels run that read a query's own keys alone, those of its window and compressed ones."""
    return model.compressed_attention is not None and _absorbed(layout, kernels)


def _absorbed(layout: Layout, kernels: Kernels) -> bool:
    return kernels.sparse_attention == "absorbed" and layout.attention == "flash"


def too_wide(model: Model) -> bool:
    """Whether heads are wider than flash kernels take them."""
    return model.latent_attention is None and model.head_dim > FLASH_WIDTH


def sdpa_choice(ctx: Context) -> str:
    """The kernel torch picks for scaled_dot_product_attention; windowed layers pass as flash (see ``with_mask``)."""
    model, latent = ctx.model, ctx.model.latent_attention
    width, values = (model.head_dim, model.value_width) if latent is None else (latent.width, latent.value_dim)
    if too_wide(model):
        return "efficient"
    grouped = model.kv_heads < model.heads and latent is None and not ctx.kernels.keys_expanded
    window = masked(ctx)
    unmasked = not _masks_all(ctx) and not (isinstance(window, int) and window)
    plain = grouped and unmasked and not ctx.kernels.efficient_groups
    flash = ctx.activation <= FLASH_BYTES and width == values and not _masks_all(ctx)
    if flash and not (plain and ctx.kernels.flash_missing):
        return "flash"
    return "math" if plain else "efficient"


def _masks_all(ctx: Context) -> bool:
    """Whether a dense mask rules the flash kernel out in each layer of this kind: of distances, or of chosen keys."""
    kind, latent = ctx.kernels.attention_mask, ctx.model.latent_attention
    chosen = latent is not None and latent.index_heads > 0
    return kind in MASKED or (kind == "window" and (chosen or chooses_blocks(ctx)))


def chooses_blocks(ctx: Context) -> bool:
    """Whether each head's keys are chosen by blocks."""
    return ctx.model.block_indexer is not None and ctx.model.block_indexer.chooses(ctx.layer)


def masked(ctx: Context) -> Number:
    """1 where a dense mask rules the flash kernel out in this layer, else 0."""
    kind = ctx.kernels.attention_mask
    if kind == "bias" and ctx.keys is not None:
        return 0  # distances to another stack's tokens have none
    if _masks_all(ctx):
        return 1
    if kind == "none" or not ctx.model.is_windowed(ctx.layer):
        return 0
    # transformers leaves it out below the window only, of which a token that sees both ways has half on either side
    window = ctx.model.window or 0
    return where(ctx.layout.seq >= (window // 2 if ctx.model.sees_all(ctx.layer) else window), 1, 0)


def with_mask(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Keys, values and the mask itself where a dense mask rules flash out: grouped keys are then expanded, as they are
    where heads are too wide for it, or where the framework always expands them."""
    model, dense = ctx.model, masked(ctx)
    always = ctx.kernels.keys_expanded
    copied: Number = 1 if always or (ctx.kernels.sdpa and too_wide(model)) else dense
    kept = _bias(ctx) if ctx.kernels.attention_mask == "bias" else (_mask(ctx, dense),)
    if model.latent_attention:
        return key, value, kept
    expand = 1 + copied * (query.elements / key.elements - 1)
    if model.kv_heads == 1 and not always:  # one head broadcasts without a copy, but for what a cast makes of it later
        cast = casts_keys(ctx) and ctx.kernels.attention_mask not in MASKED
        return key._replace(elements=key.elements * (expand if cast else 1)), value, kept
    return key._replace(elements=key.elements * expand), value._replace(elements=value.elements * expand), kept


def _mask(ctx: Context, dense: Number) -> Tensor:
    """A mask of each sequence as the memory-efficient kernel keeps it."""
    index = ctx.model.block_indexer
    apart = index is not None and not index.pooled and chooses_blocks(ctx)  # heads choose by themselves
    copies = ctx.layout.micro_batch * (ctx.model.heads / ctx.layout.tp if apart else 1)
    return Tensor(MASK, dense * copies * ctx.layout.seq * round_up(all_keys(ctx), MASK_KEYS), ctx.activation, "b s s")


def _bias(ctx: Context) -> tuple[Tensor, ...]:
    """Biases per head and distance as that kernel keeps them, and a decoder's causal mask, which chose between them and
    the least number. Attention to another stack's tokens has zeros instead, one tensor of all layers but where its rows
    are padded."""
    layout, own = ctx.layout, all_keys(ctx)
    keys = round_up(own, MASK_KEYS)
    biases = Tensor(MASK, ctx.model.heads / layout.tp * layout.seq * keys, ctx.activation, "a s s/t")
    if ctx.keys is not None:
        return (biases._replace(elements=where(keys > own, biases.elements, 0)),)
    causal = int(not ctx.model.sees_all(ctx.layer))
    return (biases, Tensor("attention.causal_mask", causal * layout.seq * own, MASK_BYTES, "s s mask"))


def views_values(ctx: Context) -> bool:
    """Whether values keep a larger projection's output alive; where grouped heads are copied they are no view of it."""
    kernels, latent = ctx.kernels, ctx.model.latent_attention is not None
    copied = kernels.keys_expanded and ctx.model.kv_heads < ctx.model.heads and not latent
    if kernels.value_view == "ungrouped":
        new = ctx.model.parallel_blocks and ctx.model.norms_per_layer > 1  # Falcon's newer layers copy a head's each
        return ctx.model.kv_heads == ctx.model.heads and not new
    return keeps_projections(kernels) and not copied and (latent or kernels.value_view != "latent")


def keeps_projections(kernels: Kernels) -> bool:
    """Whether views keep a projection's output alive, whatever is computed again."""
    return kernels.value_view not in (False, "recomputed")


def viewed_again(ctx: Context) -> Number:
    """1 where core attention is computed again of values that are a view into the projection, beside new queries and
    keys: its checkpoint keeps what it is given, where a kernel would keep a copy."""
    kernels, model = ctx.kernels, ctx.model
    again = kernels.value_view == "recomputed" and kernels.kept is None and "core_attention" in kernels.selective
    new = model.positions == "rotary" or model.qk_norm != "none"
    return where(ctx.layout.selective, 1, 0) if again and new and model.latent_attention is None else 0


def keeps_view(ctx: Context) -> Number:
    """1 where core attention keeps values that are such a view as they are: a kernel does, a batched product only where
    the micro-batch is one sequence, and copies them otherwise."""
    composed = ctx.layout.attention != "flash" or ctx.model.composed_attention
    return where(ctx.layout.micro_batch == 1, 1, 0) if composed else 1


def casts_keys(ctx: Context) -> bool:
    """Whether autocast makes 16-bit copies of keys, which eager rotation gives in fp32."""
    return ctx.precision.autocast and ctx.kernels.rope == "eager" and ctx.model.positions == "rotary"


def all_keys(ctx: Context) -> Number:
    """Columns of the score matrix where it is made whole."""
    return ctx.layout.seq if ctx.keys is None else ctx.keys
