"""What others know rows and parameters of the ledger by: names that are written once, and the roles of rows that go by
many names."""

from __future__ import annotations

from typing import Literal

Role = Literal["", "heads", "core", "scores", "softmax", "residual", "activation", "head", "stream weights",
               "head norm", "latent norm", "index norm", "norm gate", "batched", "chunk rule", "stream sum",
               "stream spread", "scaled keys", "picked scores", "slot masks"]  # fmt: skip
"""What a row does, where that decides what it costs: splitting into heads and rotating them, all of attention in one
kernel, scores by themselves, their softmax, the addition to the residual stream, an activation function, an output
layer, the weights of residual streams; norms within heads, of latents, of an indexer, products that make the gate of a
norm of the residual stream, dense ones of many matrices in one call, a gated delta rule in plain torch, residual
streams read into one and written, keys divided by a scale, scores picked by distance, masks of tokens and slots. Names
of such rows tell whose they are."""
EXCHANGE = "attention.exchange"
"""What context parallel ranks send each other."""
QUERY, KEY, VALUE = "attention.query", "attention.key", "attention.value"
"""What attention multiplies."""
QKV, MLP_UP, MLP_ACTIVATION, MLP_DOWN = "attention.qkv", "mlp.up", "mlp.activation", "mlp.down"
MLP_NORM = "mlp.norm"
"""The norm before an MLP."""
MLP_PRODUCT = "mlp.product"
"""What the last product of a dense MLP reads."""
BRANCHES = ("attention.", "mlp.")
"""Begin the names of what a layer does between its additions to the residual stream."""
INDEXER = "attention.index"
PROJECTION, SHARED_UP = "attention.projection", "mlp.shared.up"
"""The products behind attention, and the first of shared experts."""
ROUTER, DISPATCH, COMBINE = "mlp.router", "mlp.dispatch", "mlp.combine"
SHARED = "mlp.shared."
"""Begins the names of what shared experts do."""
EXPERTS = ("mlp.experts.up", "mlp.experts.down")
"""Names of the products of routed experts: of many small matrices, one per expert."""
EXPERT_ACTIVATION, SLOT_MASKS = "mlp.experts.activation", "mlp.experts.masks"
EMBEDDING, HEAD, LOSS = "embedding", "head", "loss"
"""The lookup of words, the output layer and its loss; those of multi-token prediction have names of their own."""
TEXT = "embedding.text"
DECODER = "decoder"
"""Begins the kinds of layers that attend to an encoder's output."""
DECODER_EMBEDDING = f"{EMBEDDING}.decoder"
"""The lookup of a second stack's words."""
TRANSFORM, POOLER, SENTENCE, SHARED_GATE = "head.transform", "head.pooler", "head.sentence", "mlp.shared.gate"
"""Small products of encoders' heads, and the one that weighs a shared expert."""
UPCAST = "loss.upcast"
"""Logits in fp32, which a loss makes of narrow ones."""
EMBEDDING_WEIGHT, HEAD_WEIGHT, NGRAM_TABLE = "embedding.weight", "head.weight", "ngrams.table"
VALUE_TABLE = "attention.value_table"
LOOKED_UP = (NGRAM_TABLE, VALUE_TABLE)
"""Tables inside layers, which take part in no product."""
POSITION_WEIGHT = f"{EMBEDDING}.position_weight"
"""The table of words, the output layer's matrix, and a table of n-grams in a layer, which is only looked up."""
CROSS, CROSS_KV = "cross", "cross.kv"
"""Begins the names of a decoder's attention to an encoder, which no positions bias; the product that makes its keys and
values, of the encoder's tokens."""
UNUSED = "head.unused.weight"
"""What stands in the head and no loss reads."""
IDLE = ".idle"
"""Ends the name of an expert's parameter that nothing reads."""
WEIGHT, BIAS, SCORE_BIAS, POSITION_BIAS = ".weight", ".bias", ".score_bias", ".position_bias"
"""End the names of a product's or norm's parameters; of what is added to routers' scores, and by position."""
DROPOUT_MASK, INPUT_CAST, PREACTIVATION = ".dropout_mask", ".input_cast", ".preactivation"
"""End the names of what dropout keeps, of a product's input as autocast made it, and of an activation's input."""
LORA_MASK, DORA_BASE = ".lora_mask", ".dora_base"
"""What an adapter drops of its input, and the frozen product of what is left; a product's label may follow."""
OWN_INPUT = ".own_input"
"""Ends the name of a product's quantised input where others keep that tensor too."""
SOFTCAP, PROBABILITIES, WIDE_PROBABILITIES = ".softcap", ".probabilities", ".probabilities_fp32"
"""End the names of what attention keeps step by step: scores with a cap, and their softmax."""
TOWER_KIND, VISION = "vision", "vision."
"""What a layer of a vision tower is called; begins the names of what is before and behind these layers."""
PROJECTIONS = ("embedding.patches", "embedding.frames", "embedding.convolution", VISION)
"""How the names of products begin that stand in the embedding, and yet count as work."""
NORM, RESIDUAL = ".norm", ".residual"
"""End the names of a norm of the residual stream and of the addition to it."""
LAYER_INPUT = "layer.input"
"""The saved tensor that is what a layer was given, where a checkpoint or a fused norm keeps it."""
SECOND = "second."
"""Begins the names of what the second half of a layer that is two keeps and owns."""
