"""Ways of making the loss that a trainer puts in the place of its framework's own."""

from typing import Any

from pydantic import Field

from distsim.specs.base import Sourced


class Loss(Sourced):
    """A loss over the vocabulary, told by what it changes of the framework's kernels (specs/framework.py)."""

    name: str
    aliases: tuple[str, ...] = ()
    kernels: dict[str, Any] = Field(default_factory=dict)
    compiled: dict[str, Any] = Field(default_factory=dict)
    """What they are beyond that where layers are compiled."""
