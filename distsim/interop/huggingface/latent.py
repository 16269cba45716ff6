"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) in a configuration, and what chooses its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.interop.huggingface.fields import Fields, Words
from distsim.interop.huggingface.recurrent import shortest

OWN = {"full": True, "F": True, "shared": False, "S": False}
"""What configurations call a layer with an indexer, and one that attends to what the last indexer chose."""


def plain_attention(data: Mapping[str, Any]) -> bool:
    """Whether a file of a family with latent attention switches it off (DeepSeek-VL2 Tiny, DeepSeek-OCR)."""
    return data.get("use_mla") is False or ("kv_lora_rank" in data and not data["kv_lora_rank"])


def read_latent_attention(fields: Fields, head_dim: int, layers: int, *, indexed: bool = True) -> dict[str, Any]:
    """Ranks and widths; a query rank of null or 0 means a full query projection. Values are ``head_dim`` wide if
    nothing else is stated."""
    # the sum of two others; whether tokens behind the last whole pool are chosen, fifteen at most
    fields.settled("qk_head_dim", "q_head_dim", "index_kpool_always_select_tail")
    heads = fields.whole("index_n_heads", least=0) or 0
    indexer = {} if not heads or not indexed else {
        "index_heads": heads, "index_dim": fields.needed("index_head_dim"), "index_keys": fields.needed("index_topk"),
        "index_layers": index_layers(fields, layers), "index_pool": fields.whole("index_kpool") or 1,
    }  # fmt: skip
    return {
        **indexer,
        **({"unrotated_layers": bare} if (bare := unrotated_layers(fields, layers)) else {}),
        "q_rank": fields.whole("q_lora_rank", least=0) or 0,
        "kv_rank": fields.needed("kv_lora_rank"),
        "nope_dim": fields.needed("qk_nope_head_dim"),
        "rope_dim": fields.needed("qk_rope_head_dim", least=0),
        "value_dim": fields.whole("v_head_dim") or head_dim,
    }


def unrotated_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers rotate nothing, where a list or an interval says so (1 in the list: rotates)."""
    every = fields.whole("no_rope_layer_interval", least=0)
    listed = fields.row("no_rope_layers")
    if listed is None:
        own = tuple(bool(every) and (layer + 1) % (every or 1) == 0 for layer in range(layers))
    elif len(listed) < layers:
        raise fields.wrong(
            "no_rope_layers", Words(f"a list of {len(listed)}"), f"expected one entry for each of {layers} layers"
        )
    else:
        own = tuple(not fields.as_whole("no_rope_layers", one, 0, 1) for one in listed[:layers])
    return shortest(own) if any(own) else ()


def index_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have an indexer of their own: layer by layer, or every so many from an offset on (GLM-5)."""
    fields.settled("indexer_types", "index_topk_freq", "index_topk_pattern", "index_skip_topk_offset")
    for name in ("indexer_types", "index_topk_pattern"):
        kinds = fields.find(name)[1]
        if kinds:
            if not isinstance(kinds, (list, str)) or set(map(str, kinds)) - set(OWN) or len(kinds) != layers:
                raise fields.wrong(name, kinds, f"expected one of full and shared for each of {layers} layers")
            own = tuple(OWN[kind] for kind in kinds)
            break
    else:
        every = fields.whole("index_topk_freq", least=0) or 1
        offset = fields.whole("index_skip_topk_offset", least=0)
        start = 2 if offset is None else offset
        own = tuple(max(layer - start + 1, 0) % every == 0 for layer in range(layers))
    return () if all(own) else shortest(own)
