"""Multi-token prediction: further layers that predict later tokens, each with a loss of its own.

DeepSeek-AI 2024, arXiv:2412.19437, section 2.2: a module joins the hidden state with the embedding of the next token,
projects both to the hidden width, runs one layer, and shares embedding and output layer with the model. Its layer is
one more on the last stage (engine/jobs/stages.py); the rest is part of the head. A hybrid's module has one layer for
each letter of ``mtp_pattern``; a repeated one has its weights once, however many tokens ahead it predicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distsim.layers.embedding import embedding
from distsim.layers.ledger import Collective, Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.layers.norm import norm
from distsim.layers.tensor_parallel import boundary_bytes, column_collectives

SHARED_EMBEDDING = "mtp.embedding.weight"
"""The embedding's copy on the last stage, where that is not the first."""
CHECKPOINTED = ("embedding_norm", "hidden_norm", "project", "final_norm")
"""Rows of a module that run once more with its layer where all layers are recomputed (NVIDIA/Megatron-LM
core/transformer/multi_token_prediction.py: _checkpointed_forward of _proj_and_transformer_layer)."""


def predictions(ctx: Context, head: list[Operation]) -> list[Operation]:
    """All modules without their layers; ``head`` are the rows whose matrix they share."""
    found = [row for depth in range(ctx.model.mtp_trained) for row in _prediction(ctx, head, depth)]
    if not (found and ctx.model.mtp_repeated):
        return found
    own = len(found) // ctx.model.mtp_trained
    return [*found[:own], *weightless(found[own:])]


def weightless(rows: Iterable[Operation]) -> tuple[Operation, ...]:
    """Rows once more with the weights of others: what they compute and keep, but nothing of their own to hold."""
    return tuple(row._replace(parameters=()) for row in rows)


def checkpointed(row: Operation) -> bool:
    """Whether a row of the head runs once more with a module's layer where all layers are recomputed."""
    module, _, name = row.name.partition(".")
    return module.startswith("mtp") and name in CHECKPOINTED


def kept_by_checkpoints(head: Iterable[Operation]) -> list[Operation]:
    """The head with what it keeps where all layers are recomputed: of a module's rows its embedding alone, as the
    hidden state stands with its layer, whose input it takes the place of."""
    return [row._replace(saved=()) if checkpointed(row) and "embedding" not in row.name else row for row in head]


def own_rows(ctx: Context, depth: int) -> list[Operation]:
    """A module's rows before its layer, on a stage without the loss, which has a copy of the embedding."""
    rows = _before_layer(ctx, depth, tied=False)
    return [*weightless(rows)] if depth and ctx.model.mtp_repeated else rows


def again(head: Iterable[Operation], depth: int) -> list[Operation]:
    """Rows of the head as a module has them, too."""
    return [_again(row, _name(depth)) for row in head]


def after_modules(ctx: Context, head: list[Operation]) -> Iterator[list[Operation]]:
    """Output layer and loss of each module."""
    return (again(head, depth) for depth in range(ctx.model.mtp_trained))


def _name(depth: int) -> str:
    return "mtp" if depth == 0 else f"mtp{depth + 1}"


def _prediction(ctx: Context, head: list[Operation], depth: int) -> list[Operation]:
    return _before_layer(ctx, depth, ctx.model.tied_embeddings) + again(head, depth)


def _before_layer(ctx: Context, depth: int, tied: bool) -> list[Operation]:
    name = _name(depth)
    model, rows = ctx.model, ctx.sharded_tokens
    stream = Tensor("", rows * model.hidden, ctx.precision.stream_bytes, "s b h")
    joined = Tensor(f"{name}.joined", rows * 2 * model.hidden, ctx.activation, "s b 2h")
    project = linear(
        ctx, f"{name}.project", ctx.layout.tokens, 2 * model.hidden, model.hidden / ctx.layout.tp, joined,
        cast_input=True, collectives=(*column_collectives(ctx, width=2 * model.hidden), *_whole_again(ctx)),
    )  # fmt: skip
    # the layer's input is a view of what was gathered, of which it keeps all
    others = stream._replace(name=f"{name}.others", elements=(ctx.layout.tokens - rows) * model.hidden)
    return [
        _lookup(ctx, name, depth > 0 or tied),
        norm(ctx, f"{name}.embedding_norm", rows, model.hidden, stream._replace(name=f"{name}.embedding")),
        norm(ctx, f"{name}.hidden_norm", rows, model.hidden, stream._replace(name=f"{name}.hidden")),
        project._replace(saved=(*project.saved, others)),
    ]


def _whole_again(ctx: Context) -> tuple[Collective, ...]:
    """The projected hidden state, of which each tensor parallel rank makes some columns, gathered for its layer; with
    sequence parallelism that takes its own tokens of it, whose gradients are gathered in turn (NVIDIA/Megatron-LM
    core/transformer/multi_token_prediction.py: gather_from_tensor_model_parallel_region after eh_proj, then
    scatter_to_sequence_parallel_region)."""
    size = boundary_bytes(ctx)
    return (
        Collective("all_gather", "tp", size, "forward"),
        Collective("all_gather", "tp", size * ctx.layout.sequence_parallel, "backward"),
    )


def _lookup(ctx: Context, name: str, there: bool) -> Operation:
    """The next tokens looked up in the embedding's copy, which all modules share; a row has its weight unless that is
    ``there`` already (a tied output layer is that copy)."""
    row = embedding(ctx)[0]
    weight = row.parameters[0]._replace(name=SHARED_EMBEDDING)
    return _again(row, name)._replace(parameters=() if there else (weight,))


def _again(row: Operation, name: str) -> Operation:
    """A row of the head once more: with a norm of its own, the matrix shared."""
    own = row.parameters if row.kind == "norm" else ()
    return row._replace(
        name=f"{name}.{row.name}", saved=tuple(t._replace(name=f"{name}.{t.name}") for t in row.saved),
        parameters=tuple(p._replace(name=f"{name}.{p.name}") for p in own),
    )  # fmt: skip
