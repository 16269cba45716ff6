"""Attention to compressed keys (DeepSeek-V4) in a configuration."""

from __future__ import annotations

from typing import Any

from distsim.interop.huggingface.fields import Fields, Words
from distsim.interop.huggingface.recurrent import shortest
from distsim.interop.huggingface.windows import COMPRESSED

SPARSE, HEAVY = COMPRESSED


def deepseek_v4(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Ratios by layer (its own files), or the kinds of layers with their ratios (transformers)."""
    layers, width = values["layers"], values["head_dim"]
    if (shared := fields.whole("n_shared_experts")) not in (None, 1):
        raise fields.wrong("n_shared_experts", shared, "expected 1: its code builds one whatever a file says")
    fields.settled("num_hash_layers", "mlp_layer_types", "compress_rope_parameters", "partial_rotary_factor")
    rates = {SPARSE: fields.whole(f"compress_rates.{SPARSE}", "compress_rate_csa") or 4,
             HEAVY: fields.whole(f"compress_rates.{HEAVY}", "compress_rate_hca") or 128}  # fmt: skip
    stated = fields.row("compress_ratios")
    if (kinds := fields.row("layer_types", length=layers)) is not None:
        fields.settled("compress_ratios")
        ratios = [rates.get(str(kind), 0) for kind in kinds]
    elif stated is not None:
        if len(stated) < layers:
            problem = Words(f"a list of {len(stated)}")
            raise fields.wrong("compress_ratios", problem, f"expected one entry for each of {layers} layers")
        ratios = [fields.as_whole("compress_ratios", one, least=0) for one in stated[:layers]]
    else:  # as transformers has it where nothing is said
        ratios = [rates[HEAVY] if layer < 2 or layer % 2 == 0 else rates[SPARSE] for layer in range(layers)]
    rotated = min(fields.whole("qk_rope_head_dim") or round(width * values["rotary_fraction"]), width)
    own = {
        "q_rank": fields.needed("q_lora_rank"), "rope_dim": rotated, "window": fields.needed("sliding_window"),
        "ratios": shortest(tuple(ratios)), "output_groups": fields.needed("o_groups"),
        "output_rank": fields.needed("o_lora_rank"),
    }  # fmt: skip
    names = ("index_n_heads", "index_head_dim", "index_topk")
    if rates[SPARSE] in ratios:
        indexer = zip(("index_heads", "index_dim", "index_keys"), map(fields.needed, names), strict=True)
        own |= {"index_ratio": rates[SPARSE], **dict(indexer)}
    else:
        fields.settled(*names)
    return {"compressed_attention": own, "kv_heads": 1, "window": None, "window_pattern": (),
            "rotary_fraction": rotated / width}  # fmt: skip
