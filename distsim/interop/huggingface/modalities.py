"""Networks that read images or sound, two stacks of BART's kind, and Mamba: what no table can say of them."""

from __future__ import annotations

from typing import Any

from distsim.arrays import ceil_div
from distsim.interop.huggingface.encoders import POOLED, output_of, task_of
from distsim.interop.huggingface.fields import Fields

Values = dict[str, Any]
BART_OFFSET = 2
"""Rows of BART's tables before the first position."""
STEP_SHARE = 16
"""Hidden width over the rank of Mamba's step widths where a file says ``auto`` (Gu and Dao 2023, section 3.6)."""


def vit(fields: Fields, values: Values) -> Values:
    """ViT: squares of an image and a class token; classes told from that token, or a pooler in the bare model."""
    task = task_of(fields)
    found = images(fields)
    output = {**output_of(fields, task, pooled=POOLED["vit"](task)), "transform": False}
    if output["predicts"] not in ("sequence-classes", "nothing"):
        raise fields.wrong("architectures", fields.data.get("architectures"), "expected ViTForImageClassification")
    if output["pooler"] and fields.whole("pooler_output_size") not in (None, values["hidden"]):
        raise fields.wrong("pooler_output_size", fields.find("pooler_output_size")[1], "expected the hidden size")
    fields.settled("encoder_stride", "pooler_output_size")
    return {**found, "output": output, "tied_embeddings": False}


def images(fields: Fields, prefix: str = "") -> Values:
    """The squares that an image is cut into, and the table of their positions."""
    patches: Values = {"image": side(fields, f"{prefix}image_size"), "size": side(fields, f"{prefix}patch_size"),
                       "channels": fields.whole(f"{prefix}num_channels") or 3}  # fmt: skip
    if patches["size"] > patches["image"]:
        raise fields.wrong(f"{prefix}patch_size", patches["size"], f"it must fit into image_size {patches['image']}")
    tokens = (patches["image"] // patches["size"]) ** 2 + 1
    return {"patches": patches, "vocab": 0, "context": tokens, "position_rows": tokens}


def clip(fields: Fields, values: Values) -> Values:
    """CLIP: layers over images, then layers over text; both end in a projection to one width."""
    classes = fields.row("architectures") or ["CLIPModel"]
    if classes[0] != "CLIPModel":
        raise fields.wrong("architectures", classes[0], "expected CLIPModel, whose two halves both train")
    fields.settled("text_config_dict", "vision_config_dict", "logit_scale_init_value")
    fields.settled("text_config.projection_dim", "vision_config.projection_dim")
    text = {
        "layers": fields.needed("text_config.num_hidden_layers", most=10_000),
        "hidden": fields.needed("text_config.hidden_size"), "heads": fields.needed("text_config.num_attention_heads"),
        "ffn": fields.needed("text_config.intermediate_size"), "vocab": fields.needed("text_config.vocab_size"),
        "context": fields.needed("text_config.max_position_embeddings"),
        "projection": fields.needed("projection_dim"),
    }  # fmt: skip
    act = fields.text("text_config.hidden_act", default=values["activation"])
    if act != values["activation"]:
        raise fields.wrong("text_config.hidden_act", act, f"expected {values['activation']}, as for images")
    found = images(fields, "vision_config.")
    found["patches"]["bias"] = False
    return {**found, "text": text, "layers": values["layers"] + text["layers"], "tied_embeddings": False,
            "output": {"predicts": "nothing"}}  # fmt: skip


def side(fields: Fields, name: str) -> int:
    """Pixels along a side; a list must state the same for both."""
    found, value = fields.find(name)
    if isinstance(value, list):
        if len(set(map(str, value))) != 1:
            raise fields.wrong(found, value, "only square images and patches are supported")
        value = value[0]
    return fields.as_whole(found, value, most=100_000)


def whisper(fields: Fields, values: Values) -> Values:
    """Whisper: sound through two convolutions; positions of both stacks are tables, the encoder's of fixed sines."""
    fields.settled("use_weighted_layer_sum", "classifier_proj_size", "median_filter_width", "apply_spec_augment")
    return {
        **stacks(fields, values),
        "frames": {"bins": fields.needed("num_mel_bins")},
        "decoder_context": fields.needed("max_target_positions"),
        "position_rows": fields.needed("max_target_positions"),
        "encoder_position_rows": values["context"],
    }


def bart(fields: Fields, values: Values) -> Values:
    """BART: one word embedding for both stacks, a table of positions in each that starts two rows in."""
    if fields.flag("use_prompt"):
        raise fields.wrong("use_prompt", True, "expected false: MVP's prompts are not supported")
    fields.settled("prompt_length", "prompt_mid_dim")
    rows = values["context"] + BART_OFFSET
    return {**translator(fields, values), "position_rows": rows, "encoder_position_rows": rows}


def marian(fields: Fields, values: Values) -> Values:
    """Marian, Pegasus and Blenderbot: as BART, with tables that start at the first row."""
    if fields.whole("decoder_vocab_size") not in (None, values["vocab"]):
        raise fields.wrong(
            "decoder_vocab_size",
            fields.find("decoder_vocab_size")[1],
            "only one vocabulary for both stacks is supported",
        )
    rows = values["context"]
    return {**translator(fields, values), "position_rows": rows, "encoder_position_rows": rows}


def translator(fields: Fields, values: Values) -> Values:
    """Two stacks that read words of one table; M2M-100 and NLLB compute their positions."""
    if not values["tied_embeddings"] or not fields.flag("share_encoder_decoder_embeddings", default=True):
        raise fields.wrong(
            "tie_word_embeddings", False, "expected true: stacks with separate vocabularies are not supported"
        )
    return {**stacks(fields, values), "decoder_context": values["context"]}


def stacks(fields: Fields, values: Values) -> Values:
    """Layers of both stacks, whose shapes must be alike."""
    encoders = fields.whole("encoder_layers") or values["layers"]
    for name, own in (("encoder_attention_heads", "heads"), ("encoder_ffn_dim", "ffn")):
        stated = fields.whole(name) or values[own]
        if stated != values[own] and name not in fields.assumed:
            raise fields.wrong(name, stated, f"expected the decoder's {values[own]}: both stacks must have one shape")
    dropout = fields.number("activation_dropout", default=0.0)
    fields.settled("encoder_layerdrop", "decoder_layerdrop", "num_hidden_layers")
    return {"layers": encoders + values["layers"], "encoder_layers": encoders, "mlp_dropout": dropout}


def mamba2(fields: Fields, values: Values) -> Values:
    """Mamba-2 alone, without attention and MLP."""
    fields.settled("expand", "time_step_rank", "rms_norm", "norm_before_gate", "rescale_prenorm_residual")
    heads, width = fields.needed("num_heads"), fields.needed("head_dim")
    mixer = {
        "heads": heads, "head_dim": width, "state": fields.needed("state_size"), "groups": fields.needed("n_groups"),
        "convolution": fields.needed("conv_kernel"), "bias": fields.flag("use_bias"),
        "convolution_bias": fields.flag("use_conv_bias", default=True), "chunk": fields.needed("chunk_size"),
    }  # fmt: skip
    return {
        "pattern": "M" * values["layers"], "mamba": mixer, "ffn": heads * width, "heads": 1, "kv_heads": 1,
        "head_dim": values["hidden"], "residual_fp32": fields.flag("residual_in_fp32"),
    }  # fmt: skip


def mamba(fields: Fields, values: Values) -> Values:
    """Mamba-1: no attention and no MLP; every channel of the inner width is a head of its own."""
    inner = fields.whole("intermediate_size") or (fields.whole("expand") or 2) * values["hidden"]
    name, rank = fields.find("time_step_rank")
    if rank in (None, "auto"):
        rank = int(ceil_div(values["hidden"], STEP_SHARE))
    fields.settled("expand", "use_mambapy", "use_associative_scan", "rescale_prenorm_residual", "layer_types")
    mixer = {
        "heads": inner, "head_dim": 1, "state": fields.needed("state_size"), "groups": 1,
        "convolution": fields.needed("conv_kernel"), "step_rank": fields.as_whole(name, rank),
        "bias": fields.flag("use_bias"), "convolution_bias": fields.flag("use_conv_bias", default=True),
    }  # fmt: skip
    return {
        "pattern": "M" * values["layers"], "mamba": mixer, "ffn": inner,
        "residual_fp32": fields.flag("residual_in_fp32"),
    }  # fmt: skip
