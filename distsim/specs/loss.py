"""Ways of making the loss that a trainer puts in the place of its framework's own."""

from typing import Any

from pydantic import Field

from distsim.specs.base import Sourced
from distsim.specs.model import Model
from distsim.specs.quantity import Amount


class Loss(Sourced):
    """A loss over the vocabulary, told by what it changes of the framework's kernels (specs/framework.py)."""

    name: str
    aliases: tuple[str, ...] = ()
    kernels: dict[str, Any] = Field(default_factory=dict)
    compiled: dict[str, Any] = Field(default_factory=dict)
    """What they are beyond that where layers are compiled."""
    earlier: dict[str, Any] = Field(default_factory=dict)
    """What they were beyond that in runs before the year ``until``."""
    until: Amount = 0.0
    families: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Model families that it is written for, and the kernels that it leaves there as they are; none: every family."""
    triton: bool = False
    """Its kernels are Triton's, called by programs of torch."""
    patches: bool = False
    """It comes with other kernels that are patched into models of transformers."""
    decoders_only: bool = False
    """Its trainer takes models that predict the next token, and no others."""

    def written_for(self, family: str) -> bool:
        """Whether it has any effect on a family's models."""
        return not self.families or family in self.families

    def refuses(self, model: Model) -> bool:
        """Whether a loss of decoders alone is asked to serve another model."""
        return self.decoders_only and (not model.causal or model.encoder_layers > 0)
