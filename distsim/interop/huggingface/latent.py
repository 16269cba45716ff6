"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) in a configuration."""

from __future__ import annotations

from distsim.interop.huggingface.fields import Fields


def read_latent_attention(fields: Fields, head_dim: int) -> dict[str, int]:
    """Ranks and widths; a query rank of null or 0 means a full query projection. Values are ``head_dim`` wide if
    nothing else is stated."""
    fields.settled("qk_head_dim")  # the sum of two others
    return {
        "q_rank": fields.whole("q_lora_rank", least=0) or 0,
        "kv_rank": fields.needed("kv_lora_rank"),
        "nope_dim": fields.needed("qk_nope_head_dim"),
        "rope_dim": fields.needed("qk_rope_head_dim"),
        "value_dim": fields.whole("v_head_dim") or head_dim,
    }
