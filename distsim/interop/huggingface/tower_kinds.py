"""What no table can say of a tower. Each function returns its fields, or None where the spec cannot express it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distsim.interop.huggingface.fields import Fields
from distsim.interop.huggingface.projectors import VISION
from distsim.interop.huggingface.recurrent import shortest

Values = dict[str, Any]


def siglip(fields: Fields, values: Values) -> Values | None:
    """SigLIP: a pooling head of one query, which is there unless a file drops it, and which no decoder reads."""
    if not fields.flag(f"{VISION}vision_use_head"):
        return values
    width, ffn = values["hidden"], values["ffn"]
    head = 4 * width**2 + 2 * width * ffn + 8 * width + ffn
    return {**values, "extra": head}


def internvl(fields: Fields, values: Values) -> Values | None:
    """InternViT: two norms, and over all heads at once where queries and keys are normed; a last norm unless means are
    taken."""
    kind = fields.text(f"{VISION}norm_type", default="layer_norm")
    norms = {"layer_norm": "layernorm", "rms_norm": "rmsnorm"}
    if kind not in norms or fields.flag(f"{VISION}use_mask_token"):
        return None
    if not fields.flag(f"{VISION}use_absolute_position_embeddings", default=True):
        values = {**values, "position_rows": 0}
    final = not fields.flag(f"{VISION}use_mean_pooling", default=True)
    if final and kind == "rms_norm":  # that norm has a bias, which the others have not
        return None
    normed = fields.flag(f"{VISION}use_qk_norm", f"{VISION}qk_normalization")
    return {**values, "norm": norms[kind], "qk_norm": "full" if normed else "none", "final_norm": final}


def qwen2(fields: Fields, values: Values) -> Values | None:
    """Qwen2-VL: the inner width is a multiple of the width."""
    return {**values, "ffn": fields.needed(f"{VISION}mlp_ratio") * values["hidden"]}


def qwen2_5(fields: Fields, values: Values) -> Values | None:
    """Qwen2.5-VL: most layers see windows, whose sides are whole tokens."""
    merge = fields.needed(f"{VISION}spatial_merge_size")
    window = (fields.needed(f"{VISION}window_size") // merge // values["patch"] * merge) ** 2
    name = f"{VISION}fullatt_block_indexes"
    whole = {fields.as_whole(name, one, 0) for one in fields.row(name) or []}
    pattern = tuple(layer not in whole for layer in range(values["layers"]))
    return {**values, "window": window, "window_pattern": shortest(pattern)} if window and any(pattern) else values


def qwen3(fields: Fields, values: Values) -> Values | None:
    """Qwen3-VL: some layers' output goes to the decoder's first layers too."""
    return {**values, "deepstack": len(fields.row(f"{VISION}deepstack_visual_indexes") or [])}


def moonvit(fields: Fields, values: Values) -> Values | None:
    """MoonViT: learned positions of a grid, between whose rows others are interpolated."""
    sides = [fields.needed(f"{VISION}pos_emb_{one}", f"{VISION}init_pos_emb_{one}") for one in ("height", "width")]
    return {**values, "position_rows": sides[0] * sides[1]}


def gemma4(fields: Fields, values: Values) -> Values | None:
    """Gemma 4: tables of positions across and along; what clipped products keep is not modelled."""
    grouped = fields.whole(f"{VISION}num_key_value_heads") not in (None, values["heads"])
    if grouped or fields.flag(f"{VISION}use_clipped_linears") or fields.flag(f"{VISION}attention_bias"):
        return None
    return {**values, "position_rows": 2 * fields.needed(f"{VISION}position_embedding_size")}


KINDS: Mapping[str, Callable[[Fields, Values], Values | None]] = {
    "gemma4": gemma4,
    "internvl": internvl,
    "moonvit": moonvit,
    "qwen2": qwen2,
    "qwen2_5": qwen2_5,
    "qwen3": qwen3,
    "siglip": siglip,
}
