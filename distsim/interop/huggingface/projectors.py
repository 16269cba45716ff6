"""What makes tokens of patches, class by class. Each function returns fields of the tower with its ``projector``, or
None where the spec cannot express what a file states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from distsim.interop.huggingface.fields import Fields
from distsim.interop.huggingface.modalities import side

Values = dict[str, Any]
VISION = "vision_config."
"""Begins the keys of a tower."""


class Sight(NamedTuple):
    """What a projector is read from."""

    fields: Fields
    """Of the configuration around tower and decoder."""
    tower: Values
    width: int
    """The decoder's."""


def two_products(sight: Sight) -> Values | None:
    """LLaVA: two products with an activation between them, on the output of one layer."""
    fields, learned = sight.fields, sight.tower.get("learned_tokens", 0)
    if not _one_layer(fields, "vision_feature_layer"):
        return None
    dropped = fields.text("vision_feature_select_strategy", default="default") == "default"
    if dropped != bool(learned):  # otherwise a class token goes on to the decoder, or a patch does not
        return None
    bias = fields.flag("multimodal_projector_bias", default=True)
    return {"projector": {"widths": (sight.width,), "bias": bias}}


def two_products_and_rows(sight: Sight) -> Values | None:
    """LLaVA-NeXT and OneVision: as LLaVA, with a learned row between lines of tiles."""
    found = two_products(sight)
    return found and {"projector": {**found["projector"], "extra": sight.width}}


def one_product(sight: Sight) -> Values | None:
    """PaliGemma: one product, whose output is as wide as the decoder."""
    fits = sight.fields.needed("projection_dim") == sight.width
    return {"projector": {}} if fits else None


def averaged(sight: Sight) -> Values | None:
    """Gemma 3: squares of patches are averaged, and normed before one product."""
    across = sight.tower["image"] // sight.tower["patch"]
    tokens = round(sight.fields.needed("mm_tokens_per_image") ** 0.5)
    if across % tokens or tokens**2 != sight.fields.whole("mm_tokens_per_image"):
        return None
    return {"projector": {"patches": (across // tokens) ** 2, "pooled": True, "norm": "rmsnorm", "bias": False}}


def gemma4(sight: Sight) -> Values | None:
    """Gemma 4: squares of patches are averaged."""
    return {"projector": {"patches": sight.fields.needed(f"{VISION}pooling_kernel_size") ** 2}}


def shuffled(sight: Sight) -> Values | None:
    """Idefics 3 and SmolVLM: patches side by side, and one product."""
    return {"projector": {"patches": sight.fields.needed("scale_factor") ** 2, "bias": False}}


def normed(sight: Sight) -> Values | None:
    """InternVL: patches side by side, a norm over them, two products."""
    fields = sight.fields
    ratio = fields.number("downsample_ratio", default=0.5)
    if ratio <= 0 or not (_one_layer(fields, "vision_feature_layer") and _one_layer(fields, "select_layer")):
        return None
    return {"projector": {"patches": int(1 / ratio) ** 2, "norm": "layernorm", "norm_merged": True,
                          "widths": (sight.width,)}}  # fmt: skip


def merged(sight: Sight) -> Values | None:
    """Mistral 3: patches are normed and merged to one patch's width before two products."""
    fields = sight.fields
    if not _one_layer(fields, "vision_feature_layer"):
        return None
    return {"projector": {
        "patches": fields.needed("spatial_merge_size") ** 2, "norm": "rmsnorm", "merged": sight.tower["hidden"],
        "widths": (sight.width,), "bias": fields.flag("multimodal_projector_bias"),
    }}  # fmt: skip


def llama4(sight: Sight) -> Values | None:
    """Llama 4: patches side by side, two products with an activation behind each, and one to the decoder's width."""
    fields = sight.fields
    ratio = fields.number(f"{VISION}pixel_shuffle_ratio", default=0.5)
    inner, outer, out = (
        fields.needed(f"{VISION}{key}") for key in ("projector_input_dim", "projector_output_dim", "vision_output_dim")
    )
    patches = round(ratio**-2) if ratio > 0 else 0
    if not inner == outer == out or sight.tower["ffn"] != patches * sight.tower["hidden"]:
        return None
    return {"projector": {"patches": patches, "widths": (inner, outer), "bias": False}}


def qwen(sight: Sight) -> Values | None:
    """Qwen-VL: patches are normed one by one, then merged by two products."""
    return _qwen(sight, "out_hidden_size")


def qwen2(sight: Sight) -> Values | None:
    """Qwen2-VL: as the later ones, with the decoder's width under another name."""
    return _qwen(sight, "hidden_size")


def _qwen(sight: Sight, key: str) -> Values | None:
    fields = sight.fields
    patches = fields.needed(f"{VISION}spatial_merge_size") ** 2
    if fields.needed(f"{VISION}{key}") != sight.width:
        return None
    return {"frames": side(fields, f"{VISION}temporal_patch_size"),
            "projector": {"patches": patches, "widths": (patches * sight.tower["hidden"],)}}  # fmt: skip


def glm(sight: Sight) -> Values | None:
    """GLM-4V: patches become one by a convolution, then a product, a norm and a gated MLP as wide as the decoder."""
    fields = sight.fields
    if fields.needed(f"{VISION}out_hidden_size") != sight.width:
        return None
    return {
        "frames": side(fields, f"{VISION}temporal_patch_size"),
        "projector": {"patches": fields.needed(f"{VISION}spatial_merge_size") ** 2, "merged": sight.width,
                      "gated_ffn": fields.needed(f"{VISION}intermediate_size")},
    }  # fmt: skip


def moonvit(sight: Sight) -> Values | None:
    """Kimi: patches are normed one by one, then merged by two products."""
    name = f"{VISION}merge_kernel_size"
    sides = [sight.fields.as_whole(name, one) for one in sight.fields.row(name) or []]
    if len(sides) != 2 or sides[0] != sides[1]:
        return None
    patches = sides[0] ** 2
    return {"projector": {"patches": patches, "widths": (patches * sight.tower["hidden"],)}}


def _one_layer(fields: Fields, name: str) -> bool:
    """Whether the output of one layer is read, not those of several side by side."""
    return not isinstance(fields.find(name)[1], list)


PROJECTORS: Mapping[str, Callable[[Sight], Values | None]] = {
    "averaged": averaged,
    "gemma4": gemma4,
    "glm": glm,
    "llama4": llama4,
    "merged": merged,
    "moonvit": moonvit,
    "normed": normed,
    "one_product": one_product,
    "qwen": qwen,
    "qwen2": qwen2,
    "shuffled": shuffled,
    "two_products": two_products,
    "two_products_and_rows": two_products_and_rows,
}
