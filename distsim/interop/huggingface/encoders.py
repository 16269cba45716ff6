"""Encoders: which output a configuration's class has, what of BERT's kin no table can say, and T5's two stacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from distsim.interop.huggingface.fields import Fields
from distsim.specs.model import Model
from distsim.specs.output import Output

Values = dict[str, Any]
LANGUAGE = ("MaskedLM", "LMHeadModel", "CausalLM", "PreTraining")
POSITIONS = {"absolute": "learned", "rotary": "rotary"}
TASKS = {
    "SequenceClassification": "sequence-classes", "ImageClassification": "sequence-classes",
    "MultipleChoice": "sequence-classes", "NextSentencePrediction": "sequence-classes",
    "TokenClassification": "classes", "QuestionAnswering": "classes",
    "Model": "nothing",
}  # fmt: skip
"""Ends of class names, and what their output layer tells."""
ENDS = re.compile(f"({'|'.join((*LANGUAGE, *TASKS))})$")
ONE_CLASS = {"MultipleChoice": 1, "NextSentencePrediction": 2, "QuestionAnswering": 2}
USUAL_LABELS = 2
POOLED: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "esm",
                     "megatron-bert"), lambda task: True),
    "distilbert": lambda task: task != "Model", "modernbert": lambda task: False, "vit": lambda task: task == "Model",
    "deberta-v2": lambda task: task in ("SequenceClassification", "MultipleChoice"),
    **dict.fromkeys(("nomic_bert", "gte", "eurobert"), lambda task: task == "SequenceClassification"),
    "mpnet": lambda task: True, "electra": lambda task: task != "Model",
}  # fmt: skip
"""Families of encoders whose classes are known here, and which of their tasks have a pooler."""
GELU = "gelu"
"""The activation of many a transform, whatever the layers have."""
REPLACED: Values = {"predicts": "classes", "classes": 1, "transform": True, "transform_norm": False}
"""What ELECTRA is trained for: whether each token was replaced."""
TARGET_SHARE = 4
"""Tokens that T5's encoder reads for each that its decoder does, where it was trained: 512 for about 114 (Raffel et al.
2020, section 3.1.4)."""


def bert(fields: Fields, values: Values) -> Values:
    """BERT and MegatronBERT: the pooler is there for sentences and in the bare model."""
    task = task_of(fields)
    name, kind = fields.find("position_embedding_type")
    if kind is not None and str(kind) not in POSITIONS:
        raise fields.wrong(name, kind, f"expected {' or '.join(POSITIONS)}: relative positions are not supported")
    positions = POSITIONS[kind or "absolute"]
    output = output_of(fields, task, pooled=POOLED["bert"](task))
    return {
        "causal": fields.flag("is_decoder") or task in ("LMHeadModel", "CausalLM"),
        "token_types": fields.whole("type_vocab_size", least=0) or 0,
        "positions": positions,
        "position_rows": values["context"] if positions == "learned" else 0,
        **with_output(two_biases(output, values), values, bias=True),
    }


def roberta(fields: Fields, values: Values) -> Values:
    """RoBERTa: as BERT, with positions that start after the padding's."""
    found = bert(fields, values)
    padding = fields.whole("pad_token_id", least=0) or 0
    found["output"] = {**found["output"], **plain_head(task_of(fields))}
    return {**found, "context": max(values["context"] - padding - 1, 1)}


def esm(fields: Fields, values: Values) -> Values:
    """ESM: as RoBERTa, with a gelu of its own, and a contact head that masked language models hold too."""
    fields.settled("hidden_act")
    found = roberta(fields, values)
    output = found["output"]
    contacts = values["layers"] * values["heads"] + 1
    return {**found, "activation": "gelu_erf", "embedding_dropout": 0.0,
            "output": {**output, "unused": contacts, "transform_activation": ""}}  # fmt: skip


def distilbert(fields: Fields, values: Values) -> Values:
    """DistilBERT: as BERT without segments; only classifiers of sentences have a dense layer before the output."""
    task = task_of(fields)
    found = bert(fields, values)
    return {**found, **with_output(output_of(fields, task, pooled=POOLED["distilbert"](task)), values, bias=True)}


def deberta(fields: Fields, values: Values) -> Values:
    """DeBERTa v2 and v3: scores by distance; only classifiers of sentences have a pooler; absolute positions seldom."""
    task, absolute = task_of(fields), fields.flag("position_biased_input")
    fields.settled("legacy", "conv_act", "conv_groups", "attention_head_size")
    return {
        "causal": False,
        "token_types": fields.whole("type_vocab_size", least=0) or 0,
        "positions": "learned" if absolute else "none",
        "position_rows": values["context"] if absolute else 0,
        "disentangled": _disentangled(fields, values) if fields.flag("relative_attention") else None,
        **with_output(
            two_biases(output_of(fields, task, pooled=POOLED["deberta-v2"](task)), values), values, bias=True
        ),
    }


def _disentangled(fields: Fields, values: Values) -> Values:
    """What is compared with distances, and how many of these there are."""
    name, kinds = fields.find("pos_att_type")
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds or []
    if not isinstance(kinds, list) or not kinds or set(map(str, kinds)) - {"c2p", "p2c"}:
        raise fields.wrong(name, kinds, "expected c2p, p2c or both")
    spans = [fields.whole(key, least=-1) or -1 for key in ("position_buckets", "max_relative_positions")]
    return {
        "span": next((span for span in spans if span > 0), values["context"]),
        "terms": len(set(map(str, kinds))),
        "own_projections": not fields.flag("share_att_key"),
        "norm": "layer_norm" in fields.text("norm_rel_ebd", default="none"),
        "convolution": fields.whole("conv_kernel_size", least=0) or 0,
    }


def modernbert(fields: Fields, values: Values) -> Values:
    """ModernBERT: every third layer from the first on sees all tokens; every task has the masked model's transform.

    Dropout behind attention has the rate of that of its weights, and the MLP has it on its inner width.
    """
    task = task_of(fields)
    fields.settled("sparse_pred_ignore_index")
    output = {**output_of(fields, task, pooled=POOLED["modernbert"](task)), "transform": task != "Model",
              "transform_bias": fields.flag("classifier_bias"),
              "transform_activation": fields.text("classifier_activation", default=GELU)}  # fmt: skip
    dropout = {"hidden_dropout": values["attention_dropout"], "mlp_dropout": fields.number("mlp_dropout", default=0.0)}
    found = {
        "causal": fields.flag("is_decoder"),
        **dropout,
        **with_output(output, values, bias=fields.flag("decoder_bias")),
    }
    if fields.row("layer_types") is None and values.get("window"):
        every = fields.whole("global_attn_every_n_layers") or 1
        pattern = tuple(layer % every != 0 for layer in range(every))
        found |= {"window_pattern": pattern} if any(pattern) else {"window": None, "window_pattern": ()}
    return found


def t5(fields: Fields, values: Values) -> Values:
    """T5: layers of both stacks, an activation that may be gated, dropout on the MLP's inner width too."""
    name, kind = fields.find("feed_forward_proj")
    gated = str(kind).startswith("gated-")
    plain = str(kind).removeprefix("gated-")
    if not plain:
        raise fields.wrong(name, kind, "expected an activation such as relu or gated-gelu")
    decoders = fields.whole("num_decoder_layers") or values["layers"]
    fields.settled("relative_attention_max_distance", "dense_act_fn", "is_gated_act")
    return {
        "layers": values["layers"] + decoders,
        "encoder_layers": values["layers"],
        "decoder_context": max(values["context"] // TARGET_SHARE, 1),
        "gated": gated,
        # T5 1.1's output layer, of gated GELU, is its own, whatever newer files say; UL2's, of gated SiLU, is not
        "tied_embeddings": values["tied_embeddings"] and (not gated or plain == "silu"),
        "activation": "gelu_new" if gated and plain == "gelu" else plain,
        "position_rows": fields.whole("relative_attention_num_buckets") or 32,
        "mlp_dropout": values["hidden_dropout"],
    }


def task_of(fields: Fields) -> str:
    """The end of the class that a configuration names, which tells what it is trained for."""
    names = fields.row("architectures") or [""]
    found = ENDS.search(names[0]) if isinstance(names[0], str) else None
    if found is None:
        known = ", ".join((*LANGUAGE, *TASKS))
        raise fields.wrong("architectures", names[0], f"expected a class that ends in one of: {known}")
    return found[1]


def task_named(ending: str, family: str) -> str | None:
    """The task of a class of a family, written small (bertformaskedlm, maskedlm); None where it is no such class."""
    own = re.sub(r"[-_]", "", family.removesuffix("-v2"))
    plain = re.sub(rf"^{own}(v2)?", "", ending).removeprefix("for")
    return next((task for task in (*LANGUAGE, *TASKS) if task.lower() == plain), None)


def plain_head(task: str) -> Values:
    """What heads of RoBERTa and its kin have that BERT's have not: GELU before the output layer whatever the layers
    have, and dropout before a classifier's dense layer."""
    return {"transform_activation": GELU, "pooler_dropped": task == "SequenceClassification"}


def with_task(model: Model, task: str, name: str) -> Model | None:
    """An encoder with the output of another class of its family; None where the family has no such classes here."""
    if model.family not in POOLED or (task == "ImageClassification") != (model.family == "vit" and task != "Model"):
        return None
    output = output_of(Fields({}, {}, name), task, pooled=POOLED[model.family](task))
    if model.family == "electra" and task == "PreTraining":
        output = dict(REPLACED)
    if model.family in ("vit", "modernbert", "eurobert"):
        output["transform"] = model.family == "modernbert" and task != "Model"
    if output.get("classes") and model.output.classes and task == "ImageClassification":
        output["classes"] = model.output.classes
    output |= {of: getattr(model.output, of) for of in ("unused", "transform_bias", "transform_activation")}
    output["pooler_dropped"] = bool(model.output.transform_activation) and task == "SequenceClassification"
    tied = output["predicts"] == "tokens" and (model.tied_embeddings or not model.output.over_vocabulary)
    changed = {"name": name, "output": Output(**output), "tied_embeddings": tied}
    return model.model_copy(update=changed | ({} if model.family == "modernbert" else {"head_bias": True}))


def output_of(fields: Fields, task: str, *, pooled: bool) -> Values:
    """The output of a class; ``pooled`` where sentences have a dense layer before it."""
    sentences = pooled and (task in ("PreTraining", "Model") or TASKS.get(task) == "sequence-classes")
    output: Values = {"predicts": TASKS.get(task, "tokens"), "transform": task in LANGUAGE, "pooler": sentences}
    if task == "PreTraining":
        output["sentence_classes"] = USUAL_LABELS
    if output["predicts"] in ("classes", "sequence-classes"):
        output["classes"] = ONE_CLASS.get(task) or _labels(fields)
    return output


def two_biases(output: Values, values: Values) -> Values:
    """BERT's output with a second bias, which nothing reads, where its output layer is not the embedding's."""
    twice = output["predicts"] == "tokens" and not values["tied_embeddings"]
    return {**output, "unused": values["vocab"]} if twice else output


def _labels(fields: Fields) -> int:
    """Labels of a classifier: their number, or the table of their names."""
    names = fields.data.get("id2label")
    named = len(names) if isinstance(names, Mapping) else 0
    return fields.whole("num_labels", "_num_labels") or named or USUAL_LABELS


def with_output(output: Values, values: Values, *, bias: bool) -> Values:
    """The output with what goes with it: only a vocabulary's matrix can be the embedding's."""
    language = output["predicts"] == "tokens"
    return {"output": output, "head_bias": bias, "tied_embeddings": values["tied_embeddings"] and language}
