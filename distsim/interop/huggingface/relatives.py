"""Encoders of BERT's kin that differ from it in a few things: what no table can say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distsim.interop.huggingface.encoders import (
    LANGUAGE,
    REPLACED,
    TASKS,
    bert,
    modernbert,
    output_of,
    plain_head,
    task_of,
    two_biases,
    with_output,
)
from distsim.interop.huggingface.fields import Fields

Values = dict[str, Any]
MPNET_PADDING = 2
"""Rows of MPNet's table of positions before the first token's."""
REMOTE = ("dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "max_trained_positions", "use_xentropy",
          "pad_vocab_size_multiple", "unpad_inputs", "use_memory_efficient_attention", "pack_qkv", "layer_norm_type",
          "causal", "position_embedding_type", "scale_attn_weights", "rotary_scaling_factor")  # fmt: skip
"""Keys of Nomic's and GTE's own code, whose kernels they choose."""


def ernie(fields: Fields, values: Values) -> Values:
    """ERNIE: as BERT, with a table of tasks where a key says so."""
    found = bert(fields, values)
    tasks = fields.whole("task_type_vocab_size") or 0
    return {**found, "token_types": found["token_types"] + (tasks if fields.flag("use_task_id") else 0)}


def electra(fields: Fields, values: Values) -> Values:
    """ELECTRA: embeddings that may be narrower than layers; it is trained to tell which tokens were replaced."""
    found, task = bert(fields, values), task_of(fields)
    output = output_of(fields, task, pooled=task != "Model")
    if task == "PreTraining":
        output = dict(REPLACED)
    width, output = fields.whole("embedding_size"), {**plain_head(task), **output}
    return {
        **found,
        **with_output(output, values, bias=True),
        "embedding_width": None if width == values["hidden"] else width,
    }


def mpnet(fields: Fields, values: Values) -> Values:
    """MPNet: as RoBERTa without segments, with a bias by distance on all scores; padding is always row 1."""
    found, task = bert(fields, values), task_of(fields)
    output = {**output_of(fields, task, pooled=True), **plain_head(task)}
    return {
        **found,
        **with_output(two_biases(output, values), values, bias=True),
        "token_types": 0,
        "context": max(values["context"] - MPNET_PADDING, 1),
        "distance_buckets": fields.needed("relative_attention_num_buckets"),
    }


def rotated(fields: Fields, values: Values) -> Values:
    """Nomic's BERT: positions are rotated; only classifiers of sentences have a pooler. Files written for
    remote code have more keys."""
    for name in ("prenorm", "parallel_block", "use_rms_norm", "num_experts"):
        if fields.flag(name):
            raise fields.wrong(name, fields.find(name)[1], "only what transformers itself builds is supported")
    fields.settled(*REMOTE)
    return _rotated(fields, values, task_of(fields) == "SequenceClassification")


def esmc(fields: Fields, values: Values) -> Values:
    """ESM C: its output layer is never tied, and its norms on queries and keys are as wide as its layers."""
    if values["heads"] * values["head_dim"] != values["hidden"]:
        raise fields.wrong("head_dim", values["head_dim"], f"expected {values['hidden'] // values['heads']}")
    return {**rotated(fields, values), "tied_embeddings": False}


def gte(fields: Fields, values: Values) -> Values:
    """GTE: as Nomic's BERT, with dropout inside the MLP."""
    return {**rotated(fields, values), "mlp_dropout": values["hidden_dropout"]}


def jina(fields: Fields, values: Values) -> Values:
    """Jina's embeddings v3: as XLM-RoBERTa, with positions that are rotated."""
    found = _rotated(fields, values, True)
    return {**found, "output": {**two_biases(found["output"], values), **plain_head(task_of(fields))}}


def _rotated(fields: Fields, values: Values, pooled: bool) -> Values:
    task = task_of(fields)
    output = {**output_of(fields, task, pooled=pooled), "transform_bias": True}
    types = fields.whole("type_vocab_size", least=0) if "type_vocab_size" in fields.defaults else 0
    return {"causal": False, "token_types": types or 0, **with_output(output, values, bias=True)}


def eurobert(fields: Fields, values: Values) -> Values:
    """EuroBERT: Llama's layers, each token seeing all; no transform before the output layer."""
    task = task_of(fields)
    output = {**output_of(fields, task, pooled=task == "SequenceClassification"), "transform": False}
    fields.settled("clf_pooling")
    return {"causal": False, **with_output(output, values, bias=fields.flag("mlp_bias"))}


def modernbert_decoder(fields: Fields, values: Values) -> Values:
    """ModernBERT's layers as a decoder, which sees the half of its window that lies behind."""
    task = task_of(fields)
    if task in TASKS and task != "Model":
        known = ", ".join((*LANGUAGE, "Model"))
        raise fields.wrong("architectures", f"…{task}", f"expected a class that ends in one of: {known}")
    found = {**modernbert(fields, values), "causal": True}
    fields.settled("sliding_window")  # the same half
    window = found.get("window", values.get("window"))
    return {**found, "window": max(window // 2, 1) if window else None}


RELATIVES: Mapping[str, Callable[[Fields, Values], Values]] = {
    "electra": electra,
    "ernie": ernie,
    "esmc": esmc,
    "eurobert": eurobert,
    "gte": gte,
    "jina": jina,
    "modernbert_decoder": modernbert_decoder,
    "mpnet": mpnet,
    "rotated": rotated,
}
"""By the name that a family's ``special`` gives."""
