"""Blocks of stages where multi-token prediction is apart from the loss."""

from __future__ import annotations

from distsim.layers.head import losses, module
from distsim.layers.ledger import Block, Context
from distsim.layers.network import as_trained
from distsim.layers.streams import gather


def loss_block(ctx: Context) -> Block:
    """The head where modules of multi-token prediction are on a stage before it, and the norm of what both read."""
    return Block("head", as_trained(ctx, [*gather(ctx), *losses(ctx)]))


def module_block(ctx: Context, layer: Block, depth: int) -> Block:
    """A module of multi-token prediction with its layer, on a stage without the loss."""
    first, last = (as_trained(ctx, rows) for rows in module(ctx, depth))
    name = "MTP" if depth == 0 else f"MTP {depth + 1}"
    # a checkpoint has the hidden states and the embedding; the first is behind the model's last norm
    entry = layer.boundary and layer.boundary._replace(elements=layer.boundary.elements * (3 if depth == 0 else 2))
    return Block(name, first + layer.operations + last, entry)
