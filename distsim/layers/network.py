"""A whole decoder as blocks of operations: embedding, layers (grouped by kind), head."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from distsim.arrays import Number
from distsim.layers.attention import sink_parameters
from distsim.layers.embedding import embedding
from distsim.layers.gated_norm import norm_gate
from distsim.layers.head import head, tied_parameter
from distsim.layers.hyper_connections import read_streams, stream_elements, write_streams
from distsim.layers.layer_inputs import branch, lookup_rows
from distsim.layers.ledger import Block, Context, Operation, Parameter, Tensor, parameters_of
from distsim.layers.mixers import Mixer, attend, feed, single
from distsim.layers.names import DECODER, LAYER_INPUT
from distsim.layers.norm import norm
from distsim.layers.own_inputs import own_inputs
from distsim.layers.parallel_blocks import summed_once
from distsim.layers.streams import bypass, correct, gather, predict, slice_of_all, spread, stream_count
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.precision import Precision
from distsim.specs.tuning import Tuning


def layer_kind(model: Model, layer: int) -> str:
    """What a layer is, by whose name it shares its operations with all others of the kind.

    In hybrids of single mixers ``mamba``, ``attention``, ``moe`` or ``mlp``; where there are two stacks ``encoder`` and
    ``decoder`` (``+moe`` with experts), or ``image`` and ``text``; else ``dense`` or ``moe``, with what differs from
    layer to layer:

    - ``+mamba`` and the like (``RECURRENT``): that stands in the place of attention
    - ``+window``: attention is local
    - ``+chosen``: it is to keys that an earlier layer's indexer chose
    - ``+blocks``: it is to chosen blocks of keys
    - ``+4-to-1``: one key stands for so many tokens
    - ``+unrotated``: it does not rotate, where others do
    - ``+borrowed``: its keys are an earlier layer's
    - ``+cutoff``: the MLP has one
    - ``+valued``: its values gain vectors of a table
    - ``+ngrams``: a table of n-grams stands before it; with a number where there are several, of different rows
    - ``+12-heads+3-kv_heads+768-ffn``: sizes of its own; ``attention`` or ``mlp`` where it has that alone
    """
    if model.pattern:
        return model.mixer(layer)
    if model.sizes:
        own = (f"{size}-{name}" for name, size in model.sizes.of(layer).items())
        return "+".join((model.mixer(layer) or "dense", *own))
    if model.text:
        return "text" if model.is_text_layer(layer) else "image"
    feed = "moe" if model.is_moe_layer(layer) else "dense"
    if model.encoder_layers:
        stack = DECODER if model.is_decoder_layer(layer) else "encoder"
        return f"{stack}+moe" if feed == "moe" else stack
    return feed + _difference(model, layer)


def _difference(model: Model, layer: int) -> str:
    """How the kind of a layer ends that stands in one stack with others."""
    if model.is_recurrent(layer):
        return f"+{model.recurrent_mixer}{_table(model, layer)}"
    if (latent := model.latent_attention) and not model.is_windowed(layer):
        chosen = "+chosen" if latent.index_heads and not latent.chooses(layer) else ""
        return chosen + ("" if latent.rotates(layer) else "+unrotated")
    if model.compressed_attention:
        ratio = model.compressed_attention.ratio(layer)
        return f"+{ratio}-to-1" if ratio else "+window"
    if model.block_indexer and model.block_indexer.chooses(layer):
        return "+blocks"
    return (
        "+window" * model.is_windowed(layer)
        + "+borrowed" * model.borrows_keys(layer)
        + "+cutoff" * model.has_cutoff(layer)
        + "+valued" * model.has_value_embedding(layer)
    )


def _table(model: Model, layer: int) -> str:
    """How the kind of a layer ends that has a table of n-grams."""
    table = model.ngrams.table(layer) if model.ngrams else None
    if model.ngrams is None or table is None:
        return ""
    return "+ngrams" + (f"-{table + 1}" if len(model.ngrams.layers) > 1 else "")


@functools.lru_cache(maxsize=512)
def kinds_of_layers(model: Model) -> tuple[str, ...]:
    """The kind of each layer."""
    return tuple(layer_kind(model, layer) for layer in range(model.layers))


def layer_kinds(model: Model) -> dict[str, list[int]]:
    """Layer indices of each kind, in order of first appearance."""
    kinds: dict[str, list[int]] = {}
    for layer, kind in enumerate(kinds_of_layers(model)):
        kinds.setdefault(kind, []).append(layer)
    return kinds


def layer_block(ctx: Context) -> Block:
    """The block of layer ``ctx.layer``, with adapters where only those train."""
    if ctx.model.mixer(ctx.layer):
        return _single_mixer(ctx.side)
    whole, ctx = ctx, ctx.side
    boundary = Tensor(LAYER_INPUT, stream_elements(ctx), ctx.precision.stream_bytes, "s b h")
    operations: Iterable[Operation]
    if ctx.model.experts and ctx.model.experts.beside_dense:
        from distsim.layers.shortcut import twice

        operations = twice(ctx, lambda half: _layer(ctx, whole, boundary, half))
    else:
        operations = _layer(ctx, whole, boundary, feed(ctx.model, ctx.layer))
    if ctx.model.layer_scale:
        from distsim.layers.layer_scale import scaled

        operations = scaled(ctx, operations)
    entered = boundary._replace(elements=boundary.elements * stream_count(ctx))
    return Block(layer_kind(whole.model, ctx.layer), as_trained(ctx, operations), entered)


def as_trained(ctx: Context, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The rows of a block, with adapters on frozen weights where only those train, and what each module keeps."""
    if ctx.tuning is None:
        return own_inputs(ctx, operations)
    from distsim.layers.adapters import tuned

    return own_inputs(ctx, tuned(ctx, ctx.tuning, operations))


def _layer(ctx: Context, whole: Context, boundary: Tensor, fed: Mixer) -> list[Operation]:
    """Attention, or what stands in its place, and an MLP or experts, each with its norms."""
    model, rows = ctx.model, ctx.sharded_tokens
    kept = ctx.precision.kept_input_bytes
    entering = rows * model.hidden if ctx.kernels.regather_input else ctx.layout.tokens * model.hidden
    first = Tensor("attention.input", entering, kept, "s b h")
    second = Tensor("mlp.input", entering, kept, "s b h")
    experts = model.experts if model.is_moe_layer(ctx.layer) else None
    attending, feeding = summed_once(
        ctx, attend(model, ctx.layer)(ctx, first), fed(ctx, first if model.norms_per_layer < 2 else second)
    )
    attending[0] = attending[0]._replace(parameters=attending[0].parameters + sink_parameters(ctx))
    enriched, entered = _with_ngrams(ctx, boundary)
    mixing, read = read_streams(ctx, "attention", entered)
    read = slice_of_all(ctx, "streams.predicted") if model.streams else read
    if after := "norms-after" in ctx.kernels.order:
        read = read._replace(name="attention.branch", bytes_each=kept)
    own = [] if model.stream_rank else [norm(ctx, "attention.norm", rows, model.hidden, read)]
    operations = [
        *enriched, *mixing, *own, *norm_gate(ctx, "attention.norm"), *attending, *write_streams(ctx, "attention"),
    ]  # fmt: skip
    if model.norms_per_layer == 4:
        operations += _branch_end(ctx, "attention", entered, affine=not model.gated_residual)
    if model.is_decoder_layer(ctx.layer):
        from distsim.layers.cross_attention import cross_attention

        operations += cross_attention(ctx, whole)
    if model.norms_per_layer >= 2:
        source = boundary if model.parallel_blocks else boundary._replace(name="layer.middle")
        mixing, source = read_streams(ctx, "mlp", source)
        source = source._replace(name="mlp.branch", bytes_each=kept) if after else source
        operations += mixing
        operations += [] if model.stream_rank else [norm(ctx, "mlp.norm", rows, model.hidden, source)]
        operations += norm_gate(ctx, "mlp.norm") if experts else []
    operations += [*feeding, *write_streams(ctx, "mlp")]
    if model.norms_per_layer == 4 or (experts and experts.output_norm):
        operations += _branch_end(ctx, "mlp", boundary._replace(name="layer.middle"))
    return [*predict(ctx), *operations, *bypass(ctx, first), *correct(ctx), *branch(ctx)]


def _branch_end(ctx: Context, name: str, stream: Tensor, *, affine: bool = True) -> list[Operation]:
    """The norm of what a branch gives, and learned vectors between that and the residual ``stream``, where there are
    any."""
    rows, width = ctx.sharded_tokens, ctx.model.hidden
    source = Tensor(f"{name}.branch", rows * width, ctx.precision.kept_input_bytes, "s b h")
    operations = [norm(ctx, f"{name}.post_norm", rows, width, source, affine=affine)]
    if ctx.model.gated_residual:
        from distsim.layers.residual_gates import residual_gate

        operations.append(residual_gate(ctx, name, stream))
    return operations


def _with_ngrams(ctx: Context, boundary: Tensor) -> tuple[list[Operation], Tensor]:
    """What a table of n-grams adds before a layer that has one, and the streams as the layer then reads them."""
    if ctx.model.ngrams is None:
        return [], boundary
    from distsim.layers.ngrams import ngram_rows

    return ngram_rows(ctx, boundary)


def _single_mixer(ctx: Context) -> Block:
    """A layer of one mixer: norm, mixer, residual."""
    model, rows = ctx.model, ctx.sharded_tokens
    boundary = Tensor("layer.input", rows * model.hidden, ctx.stream_bytes, "s b h")
    read = boundary._replace(bytes_each=ctx.precision.stream_bytes) if ctx.kernels.norm == "eager" else boundary
    entering = rows if ctx.kernels.regather_input else ctx.layout.tokens
    kind = model.mixer(ctx.layer)
    place = "mlp" if kind in ("moe", "mlp") else "attention"
    source = Tensor(f"{place}.input", entering * model.hidden, ctx.precision.kept_input_bytes, "s b h")
    first = norm(ctx, f"{place}.norm", rows, model.hidden, read)
    return Block(layer_kind(model, ctx.layer), as_trained(ctx, [first, *single(kind)(ctx, source)]), boundary)


def has_backward(block: Block) -> bool:
    """Whether anything of a block has a backward pass: frozen layers before all that trains have none."""
    return any(operation.backward for operation in block.operations)


def layer_blocks(ctx: Context) -> dict[str, tuple[Block, list[int]]]:
    """One block per kind of layer, with the layers that are of this kind."""
    return {
        kind: (layer_block(ctx._replace(layer=layers[0])), layers) for kind, layers in layer_kinds(ctx.model).items()
    }


def embedding_block(ctx: Context) -> Block:
    """Token and position embeddings."""
    operations = as_trained(ctx, [*embedding(ctx), *lookup_rows(ctx), *spread(ctx)])
    if ctx.tuning is not None:
        from distsim.layers.silent import untrained

        operations = untrained(ctx, operations)
    return Block("embedding", operations + _before_decoder(ctx))


def _before_decoder(ctx: Context) -> tuple[Operation, ...]:
    """What a vision tower has besides its layers, where one is counted."""
    if ctx.model.shown_tower is None:
        return ()
    from distsim.layers.tower import tower_rows

    return tuple(tower_rows(ctx, ctx.model.shown_tower))


def tower_layers(ctx: Context) -> dict[str, tuple[Block, list[int]]]:
    """One block per kind of layer of the vision tower, with the layers that are of this kind; nothing where no tower is
    counted."""
    if (tower := ctx.model.shown_tower) is None:
        return {}
    from distsim.layers.tower import tower_block, tower_kinds

    kinds: dict[str, list[int]] = {}
    for layer, kind in enumerate(tower_kinds(tower)):
        kinds.setdefault(kind, []).append(layer)
    return {kind: (tower_block(ctx, tower, kind), layers) for kind, layers in kinds.items()}


def tower_blocks(ctx: Context) -> list[Block]:
    """The block of each layer of the vision tower, first to last."""
    found = {layer: block for block, layers in tower_layers(ctx).values() for layer in layers}
    return [found[layer] for layer in sorted(found)]


def head_block(ctx: Context) -> Block:
    """Final norm, output layer, loss. A tied matrix counts here only where the embedding is on another stage."""
    return Block("head", as_trained(ctx, [*gather(ctx), *head(ctx)]))


def untied(block: Block, ctx: Context) -> Block:
    """The head without the matrix it shares with an embedding on the same stage."""
    operations = tuple(
        operation._replace(parameters=tuple(p for p in operation.parameters if not tied_parameter(p, ctx)))
        for operation in block.operations
    )
    return block._replace(operations=operations)


def plain_context(model: Model, tuning: Tuning | None = None) -> Context:
    """One token on one rank: all that counting parameters needs."""
    precision = Precision(
        name="count", parameter_bytes=1, gradient_bytes=1, master_bytes=0, state_bytes=1, activation_bytes=1
    )
    return Context(model, Layout(), precision, Kernels(), vocab_padded=model.vocab, tuning=tuning)


def network_parameters(ctx: Context) -> dict[str, tuple[list[Parameter], int]]:
    """Parameters of each part with the number of layers that own them; tied matrices once."""
    parts: dict[str, tuple[list[Parameter], int]] = {"embedding": (parameters_of(embedding_block(ctx).operations), 1)}
    for kind, (block, layers) in tower_layers(ctx).items():
        parts[kind] = (parameters_of(block.operations), len(layers))
    module = [layer_kind(ctx.model, layer) for layer in ctx.model.mtp_module]
    modules = min(ctx.model.mtp_trained, 1) if ctx.model.mtp_repeated else ctx.model.mtp_trained
    for kind, (block, layers) in layer_blocks(ctx).items():
        parts[kind] = (parameters_of(block.operations), len(layers) + modules * module.count(kind))
    parts["head"] = (parameters_of(untied(head_block(ctx), ctx).operations), 1)
    return parts


def count_parameters(model: Model) -> int:
    """Exact number of trained parameters of the whole network, multi-token-prediction layers left out, and a vision
    tower that is shown no images."""
    total: Number = 0
    for parameters, times in network_parameters(plain_context(model)).values():
        total += times * sum(parameter.elements for parameter in parameters)
    return int(total)
