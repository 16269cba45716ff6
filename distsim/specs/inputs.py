"""What a network reads where that is not tokens of a vocabulary: images cut into squares, spectrograms of sound."""

from typing import Self

from pydantic import Field, model_validator

from distsim.specs.base import Spec


class Patches(Spec):
    """Images cut into squares, each of which is a token (Dosovitskiy et al. 2020, ViT, arXiv:2010.11929)."""

    image: int = Field(ge=1)
    """Pixels along a side of an image."""
    size: int = Field(ge=1)
    """Pixels along a side of a square."""
    channels: int = Field(default=3, ge=1)
    learned_tokens: int = Field(default=1, ge=0)
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

    bins: int = Field(ge=1)
    """Frequencies of one frame."""
    taps: int = Field(default=3, ge=1)
    """Frames that a convolution sees at once."""
    per_token: int = Field(default=2, ge=1)
    """Frames for each token: the stride of the second convolution."""


class TextTower(Spec):
    """A second stack, of causal layers over text, held against one that reads images (Radford et al. 2021, CLIP,
    arXiv:2103.00020)."""

    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    ffn: int = Field(ge=1)
    vocab: int = Field(ge=1)
    context: int = Field(ge=1)
    """Tokens of the text that goes with an image."""
    projection: int = Field(ge=1)
    """Width to which both stacks are projected to be compared."""

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a hidden width of {self.hidden}")
        return self
