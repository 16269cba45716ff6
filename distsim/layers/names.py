"""What others know rows and parameters of the ledger by: names that are written once, and the roles of rows that go by
many names."""

from __future__ import annotations

from typing import Literal

Role = Literal["", "heads", "core", "scores", "softmax", "residual", "activation", "head", "stream weights",
               "head norm", "latent norm", "index norm", "norm gate"]  # fmt: skip
"""What a row does, where that decides what it costs: splitting into heads and rotating them, all of attention in one
kernel, scores by themselves, their softmax, the addition to the residual stream, an activation function, an output
layer, the weights of residual streams; norms within heads, of latents, of an indexer, and products that make the gate
of a norm of the residual stream. Names of such rows tell whose they are."""
EXCHANGE = "attention.exchange"
"""What context parallel ranks send each other."""
QKV, MLP_UP, MLP_ACTIVATION = "attention.qkv", "mlp.up", "mlp.activation"
ROUTER, DISPATCH, COMBINE = "mlp.router", "mlp.dispatch", "mlp.combine"
EXPERTS = ("mlp.experts.up", "mlp.experts.down")
"""Names of the products of routed experts: of many small matrices, one per expert."""
EXPERT_ACTIVATION = "mlp.experts.activation"
EMBEDDING, HEAD, LOSS = "embedding", "head", "loss"
"""The lookup of words, the output layer and its loss; those of multi-token prediction have names of their own."""
EMBEDDING_WEIGHT, HEAD_WEIGHT = "embedding.weight", "head.weight"
"""The table of words, and the output layer's matrix."""
CROSS = "cross"
"""Begins the names of a decoder's attention to an encoder, which no positions bias."""
UNUSED = "head.unused.weight"
"""What stands in the head and no loss reads."""
IDLE = ".idle"
"""Ends the name of an expert's parameter that nothing reads."""
PROJECTIONS = ("embedding.patches", "embedding.frames", "embedding.convolution")
"""How the names of products begin that stand in the embedding, and yet count as work."""
SECOND = "second."
"""Begins the names of what the second half of a layer that is two keeps and owns."""
