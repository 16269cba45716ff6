"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) in a configuration."""

from __future__ import annotations

from distsim.interop.huggingface.fields import Fields


def read_latent_attention(fields: Fields, head_dim: int) -> dict[str, int]:
    """Ranks and widths; a query rank of null or 0 means a full query projection. Values are ``head_dim`` wide if
    nothing else is stated."""
    fields.settled("qk_head_dim")  # the sum of two others
    heads = fields.whole("index_n_heads", least=0) or 0
    fields.settled("indexer_types", "index_topk_freq", "index_topk_pattern", "index_skip_topk_offset")
    indexer = {} if not heads else {
        "index_heads": heads, "index_dim": fields.needed("index_head_dim"), "index_keys": fields.needed("index_topk"),
    }  # fmt: skip
    return {
        **indexer,
        "q_rank": fields.whole("q_lora_rank", least=0) or 0,
        "kv_rank": fields.needed("kv_lora_rank"),
        "nope_dim": fields.needed("qk_nope_head_dim"),
        "rope_dim": fields.needed("qk_rope_head_dim"),
        "value_dim": fields.whole("v_head_dim") or head_dim,
    }
