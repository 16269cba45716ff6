"""What the class under ``architectures`` trains of its family: both stacks of two, one of them, or no vocabulary."""

from __future__ import annotations

import re
from typing import Any

from distsim.errors import DistsimError
from distsim.interop.huggingface.encoders import output_of
from distsim.interop.huggingface.families import Family
from distsim.interop.huggingface.fields import Fields
from distsim.specs.model import Model

Values = dict[str, Any]
BOTH = re.compile(r"(ForConditionalGeneration|ForMaskedLM|ForPreTraining|MTModel|LMHeadModel|(?<!Encoder)Model)$")
"""Classes of two stacks with the output over the vocabulary, or with none, of which a note tells."""
TASKS = re.compile(r"For(SequenceClassification|QuestionAnswering)$")
"""Classes of two stacks with a task's output on what the decoder makes of the encoder's own tokens."""
ENCODER = re.compile(r"(EncoderModel|ForTokenClassification)$")
"""Classes of T5's encoder alone."""
LACKING = re.compile(r"For\w*(Classification|Answering)$|(?<!LMHead)(?<!MT)(?<!ChatGLM)Model$")
"""Classes of decoders without an output layer over the vocabulary; ChatGLM's network has one by itself."""


def first_class(classes: Any) -> str:
    """The class that a configuration names first; empty for none."""
    return str(classes[0]) if isinstance(classes, list) and classes else ""


def of_two_stacks(fields: Fields, family: Family, values: Values) -> Values:
    """What a class changes of two stacks: its output, or that only the encoder is there."""
    named = first_class(fields.data.get("architectures"))
    if not named or BOTH.search(named):
        return {}
    if task := TASKS.search(named):
        output = output_of(fields, task[1], pooled=True)
        return {"output": output, "tied_embeddings": False, "decoder_context": values["context"]}
    if family.special == "t5" and (alone := ENCODER.search(named)):
        output = output_of(fields, alone[1].removeprefix("For").removeprefix("Encoder"), pooled=False)
        return {"layers": values["encoder_layers"], "encoder_layers": 0, "decoder_context": None, "causal": False,
                "output": output, "tied_embeddings": False}  # fmt: skip
    stem = re.split(r"For(?=[A-Z])|Encoder|Decoder", named)[0]
    hint = f'"{stem}ForConditionalGeneration" under architectures means both stacks'
    if named.endswith("ForCausalLM"):
        problem = f"{named} is only the decoder of {family.name}, which is not supported"
    else:
        problem = f"{named} is not supported: only {family.name} classes with both stacks are"
    raise DistsimError(problem, hint, where=fields.where)


def other_output(model: Model, classes: Any) -> str:
    """The class that a configuration names for a decoder, where it has no output layer over the vocabulary."""
    named = first_class(classes)
    return named if model.causal and model.output.over_vocabulary and LACKING.search(named) else ""
