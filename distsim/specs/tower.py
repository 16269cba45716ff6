"""A vision tower before a decoder: encoder layers over patches of images, and what makes tokens of them."""

import functools
import math
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from distsim.specs.base import Spec
from distsim.specs.quantity import Count, Depth, MaybeCount, Natural
from distsim.specs.vision import Trains

if TYPE_CHECKING:
    from distsim.specs.model import Model

LAYERS = "_vision"
"""Ends the name of the family of a tower's layers, where software has something of its own for them."""


class Projector(Spec):
    """From patches to tokens of the decoder: a norm, neighbouring patches made one, products."""

    patches: Count = 1
    """Patches that become one token: set side by side, or where ``pooled`` averaged."""
    pooled: bool = False
    norm: Literal["none", "layernorm", "rmsnorm"] = "none"
    norm_affine: bool = True
    """The norm has learned weights (not so in Gemma 4)."""
    norm_merged: bool = False
    """The norm is over patches that are side by side already."""
    merged: MaybeCount = None
    """Width of what neighbouring patches are first made, by a product without an activation (Mistral 3, GLM-4V)."""
    merged_bias: bool = False
    widths: tuple[Count, ...] = ()
    """Widths between products, each followed by an activation (one kernel that keeps its input, whichever it is); the
    last product gives the decoder's width."""
    bias: bool = True
    gated_ffn: MaybeCount = None
    """Inner width of a gated MLP without biases after those products, a layernorm and the activation (GLM-4V)."""
    extra: Natural = 0
    """Parameters of rows that stand between lines of an image (LLaVA-NeXT)."""


class Tower(Spec):
    """Layers over patches that see all of their image, and the projector behind them."""

    family: str
    """As transformers names the folder of the tower's code: qwen2_vl, siglip, pixtral, …"""
    layers: Depth
    hidden: Count
    heads: Count
    head_dim: MaybeCount = None
    """By default the width over the heads."""
    ffn: Count
    gated: bool = False
    activation: str = "gelu"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norms_per_layer: Literal[2, 4] = 2
    """4 where what attention and MLP give is normed too (Gemma 4)."""
    first_norm: bool = False
    """A norm before the first layer (CLIP, Pixtral)."""
    final_norm: bool = False
    """A norm after the last layer (SigLIP)."""
    qk_norm: Literal["none", "head", "full"] = "none"
    value_norm: bool = False
    """A norm without weights on values (Gemma 4)."""
    qkv_bias: bool = True
    attention_output_bias: bool = True
    mlp_bias: bool = True
    layer_scale: bool = False
    """Learned scales on what attention and MLP add (InternViT)."""
    rotary: bool = False
    position_rows: Natural = 0
    """Rows of a learned table of positions; 0 for none."""
    patch: Count
    """Pixels along a side of a patch."""
    frames: Count = 1
    """Frames of a video in one patch; an image is as many alike ones (Qwen2-VL)."""
    channels: Count = 3
    patch_bias: bool = True
    learned_tokens: Natural = 0
    """Class tokens before the patches, which the decoder does not see."""
    image: Count
    """Pixels along a side of an image, or of each tile that one is cut into: of all where ``fixed``, else usual."""
    fixed: bool = True
    """Images are scaled to that size; otherwise they keep their own (Qwen-VL, Pixtral)."""
    window: MaybeCount = None
    """Patches of a window that see each other, in the layers that ``window_pattern`` marks (Qwen2.5-VL)."""
    window_pattern: tuple[bool, ...] = ()
    """Repeated over the layers; empty means all of them where there is a window."""
    extra: Natural = 0
    """Parameters of a pooling head whose output nothing reads (SigLIP where no file drops it)."""
    projector: Projector = Projector()
    deepstack: Natural = 0
    """Layers whose output goes to the decoder too, each by a projector of its own (Qwen3-VL)."""
    both_ways: bool = False
    """Tokens of an image see each other whatever their order, by a mask of all pairs in each layer of the decoder
    (Gemma 3, PaliGemma)."""
    images: float = Field(default=0.0, ge=0)
    """Images of a sequence in the mean, as a job has it (``--images``); 0 where the tower is not counted."""
    seen: Natural = 0
    """Patches of one image, as a job has it."""
    trains: Trains = "trained"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a hidden width of {self.hidden}")
        if self.patch > self.image:
            raise ValueError(f"patches of {self.patch} pixels do not fit into images of {self.image}")
        if self.window_pattern and self.window is None:
            raise ValueError("window_pattern needs a window")
        return self

    @property
    def side(self) -> int:
        """Pixels to whose multiples the sides of images are scaled: patches that become one token together."""
        return self.patch * math.isqrt(self.projector.patches)

    def patches_of(self, height: int, width: int) -> int:
        """Patches of an image of so many pixels, sides rounded to whole tokens, each at least one."""
        sides = (max(1, round(pixels / self.side)) * self.side // self.patch for pixels in (height, width))
        return next(sides) * next(sides)

    def tokens_of(self, patches: int) -> int:
        """The decoder's tokens for so many patches."""
        return max(1, patches // self.projector.patches)

    @property
    def image_tokens(self) -> float:
        """Tokens of a sequence that are images', in the mean."""
        return self.images * self.tokens_of(self.seen)

    @property
    def encoder(self) -> "Model":
        """The layers as a model of their own."""
        return _encoder(self)


@functools.lru_cache(maxsize=64)
def _encoder(tower: Tower) -> "Model":
    from distsim.specs.model import Model

    like = ("layers", "hidden", "heads", "ffn", "gated", "activation", "norm", "norms_per_layer", "qk_norm",
            "value_norm", "qkv_bias", "attention_output_bias", "mlp_bias")  # fmt: skip
    patches = {"image": tower.image, "size": tower.patch, "channels": tower.channels,
               "learned_tokens": tower.learned_tokens, "bias": tower.patch_bias}  # fmt: skip
    return Model.read({
        **{name: getattr(tower, name) for name in like}, "name": f"{tower.family} tower",
        "family": f"{tower.family}{LAYERS}", "kv_heads": tower.heads,
        "head_dim": tower.head_dim or tower.hidden // tower.heads, "vocab": 0, "causal": False, "patches": patches,
        "context": max(1, tower.seen + tower.learned_tokens), "positions": "rotary" if tower.rotary else "none",
        "tied_embeddings": False, "output": {"predicts": "nothing"},
    })  # fmt: skip
