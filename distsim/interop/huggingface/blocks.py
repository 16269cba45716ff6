"""Decoders whose files describe blocks one by one, or experts beside attention: Llama-Nemotron and Arctic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.arrays import round_up
from distsim.interop.huggingface.fields import Fields, Words

Values = dict[str, Any]
WIDTH_STEP = 256
"""What inner widths are rounded up to (configuration_decilm.py of the models' repositories)."""
UNREAD = ("replace_with_linear", "sparsify", "window_length", "num_sink_tokens", "unshifted_sink")


def nemotron_nas(fields: Fields, values: Values) -> Values:
    """Llama-Nemotron Super and Ultra: attention or none, an MLP of its own width or none, in each of ``block_configs``;
    blocks with neither are no layers. A file without that list has layers all alike."""
    if (blocks := fields.row("block_configs")) is None:
        return {}
    found = [_block(fields, values["heads"], values["hidden"], block) for block in blocks]
    layers = [both for both in found if any(both)]
    if len(found) != values["layers"] or not layers:
        told = f"a list of {len(found)}, {len(layers)} of them with attention or an MLP"
        raise fields.wrong("block_configs", Words(told), f"expected one entry for each of {values['layers']} layers")
    kv_heads, ffn = ([both[which] for both in layers] for which in (0, 1))
    return {
        "layers": len(layers), "kv_heads": max(kv_heads) or values["heads"], "ffn": max(ffn) or values["ffn"],
        "sizes": {"kv_heads": kv_heads, "ffn": ffn},
    }  # fmt: skip


def _block(fields: Fields, heads: int, hidden: int, block: Any) -> tuple[int, int]:
    """Key-value heads and inner width of a block; 0 for what it lacks."""
    attention, mlp = (block.get(name) if isinstance(block, Mapping) else None for name in ("attention", "ffn"))
    if not isinstance(attention, Mapping) or not isinstance(mlp, Mapping) or _strange(attention) or _strange(mlp):
        raise fields.wrong("block_configs", block, "expected attention and an MLP, or no_op in place of either")
    group = "n_heads_in_group"
    return (
        0 if attention.get("no_op") else heads // fields.as_whole(group, attention.get(group), most=heads),
        0 if mlp.get("no_op") else _width(fields, hidden, mlp),
    )


def _strange(part: Mapping[str, Any]) -> bool:
    """Whether a part is something else than attention to all tokens, or than an MLP."""
    return any(part.get(key) for key in UNREAD)


def _width(fields: Fields, hidden: int, mlp: Mapping[str, Any]) -> int:
    """The inner width of a block's MLP: two thirds of so many hidden widths twice, or as it is stated."""
    stated, times = mlp.get("intermediate_size"), mlp.get("ffn_mult")
    if stated is not None:
        return fields.as_whole("intermediate_size", stated)
    if not isinstance(times, int | float) or not 0 < times < 1000:
        raise fields.wrong("ffn_mult", times, "expected a positive number")
    return int(round_up(int(2 * times * hidden / 3), WIDTH_STEP))


def arctic(fields: Fields, values: Values) -> Values:
    """Arctic: experts in each layer beside attention and a dense MLP as wide as the model."""
    fields.settled("moe_token_dropping", "moe_train_capacity_factor", "moe_eval_capacity_factor", "moe_min_capacity")
    fields.settled("enable_expert_tensor_parallelism")
    for name in ("use_residual", "parallel_attn_mlp_res"):
        if not fields.flag(name):
            raise fields.wrong(name, False, "only experts beside attention and a dense MLP are supported")
    if (every := fields.whole("moe_layer_frequency")) not in (None, 1):
        raise fields.wrong("moe_layer_frequency", every, "expected experts in each layer")
    return {"ffn": values["hidden"]}
