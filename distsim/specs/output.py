"""What a network makes of its last layer, where that is not the plain output layer of a language model."""

from typing import Literal, Self

from pydantic import model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Natural

Predicts = Literal["tokens", "classes", "sequence-classes", "nothing"]


class Output(Spec):
    """The modules between the last layer and the loss. By default one product with the vocabulary's matrix."""

    predicts: Predicts = "tokens"
    """Logits over the vocabulary, ``classes`` of them for each token (tagging, question answering) or for each sequence
    (classification), or none (embeddings)."""
    classes: Natural = 0
    """Classes that a task tells apart; 0 where logits are over the vocabulary or there are none."""
    transform: bool = False
    """A dense layer, an activation and a norm come before the output layer (masked language models)."""
    transform_norm: bool = True
    """That norm is there (not so where ELECTRA tells replaced tokens)."""
    transform_bias: bool | None = None
    """That dense layer has a bias; by default where the layers' MLPs have them."""
    transform_activation: str = ""
    """Its activation where that is not the layers' own (RoBERTa, ELECTRA: GELU whatever these have)."""
    pooler: bool = False
    """A dense layer and tanh on the first token of each sequence (BERT)."""
    pooler_dropped: bool = False
    """Dropout comes before that layer (RoBERTa's and ELECTRA's classifiers), which then reads a copy of the token."""
    projection: Natural = 0
    """Width to which the last states are projected where nothing is predicted (EmbeddingGemma 2); 0: they are not."""
    sentence_classes: Natural = 0
    """Classes of a second output on what the pooler gives: next-sentence prediction has 2."""
    unused: Natural = 0
    """Parameters that the modules hold and no loss reads (ESM's contact head)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.classes > 0) != (self.predicts in ("classes", "sequence-classes")):
            raise ValueError(f"classes {self.classes} and predicts {self.predicts!r} do not go together")
        if self.projection and self.predicts != "nothing":
            raise ValueError(f"projection {self.projection} needs predicts 'nothing'")
        if self.sentence_classes and not self.pooler:
            raise ValueError(f"sentence_classes {self.sentence_classes} needs a pooler")
        return self

    @property
    def over_vocabulary(self) -> bool:
        """Whether logits are over the vocabulary."""
        return self.predicts == "tokens"
