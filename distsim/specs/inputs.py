"""What a network reads where that is not tokens of a vocabulary: images cut into squares, spectrograms of sound."""

from typing import Self

from pydantic import model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, Natural


class Patches(Spec):
    """Images cut into squares, each of which is a token (Dosovitskiy et al. 2020, ViT, arXiv:2010.11929)."""

    image: Count
    """Pixels along a side of an image."""
    size: Count
    """Pixels along a side of a square."""
    channels: Count = 3
    learned_tokens: Natural = 1
    """Learned tokens before the squares: the class token."""
    bias: bool = True
    """The projection of squares has a bias (not so in CLIP)."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.size > self.image:
            raise ValueError(f"patches of {self.size} pixels do not fit into images of {self.image}")
        return self

    @property
    def tokens(self) -> int:
        """Tokens per image."""
        return (self.image // self.size) ** 2 + self.learned_tokens

    @property
    def values(self) -> int:
        """Values of one square."""
        return self.channels * self.size**2


class Frames(Spec):
    """A spectrogram that two convolutions turn into tokens (Radford et al. 2022, Whisper, arXiv:2212.04356)."""

    bins: Count
    """Frequencies of one frame."""
    taps: Count = 3
    """Frames that a convolution sees at once."""
    per_token: Count = 2
    """Frames for each token: the stride of the second convolution."""


class TextTower(Spec):
    """A second stack, of causal layers over text, held against one that reads images (Radford et al. 2021, CLIP,
    arXiv:2103.00020)."""

    layers: Count
    hidden: Count
    heads: Count
    ffn: Count
    vocab: Count
    context: Count
    """Tokens of the text that goes with an image."""
    projection: Count
    """Width to which both stacks are projected to be compared."""

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a hidden width of {self.hidden}")
        return self
