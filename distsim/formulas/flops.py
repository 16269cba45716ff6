"""Floating-point operations by the conventions behind published MFU figures."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formula import formula


@formula(unit="FLOP", source="Chowdhery et al. 2022, PaLM (arXiv:2204.02311), appendix B: 6 N + 12 L H Q T per token")
def model_flops_per_token(parameters: Number, layers: Number, heads: Number, head_width: Number, seq: Number) -> Number:
    """FLOPs of forward and backward for one token, attention counted dense. ``parameters`` are those a token passes
    through, without the input embedding (a tied matrix counts once, as the output layer)."""
    return 6 * parameters + 12 * layers * heads * head_width * seq


@formula(unit="1", source="Chowdhery et al. 2022, PaLM (arXiv:2204.02311), section 4.1")
def flops_utilisation(flops_per_second: Number, peak: Number) -> Number:
    """Share of the datasheet's dense peak."""
    return flops_per_second / peak


@formula(unit="FLOP", source="Narayanan et al. 2021 (arXiv:2104.04473), section 5.1, equation 3, per token")
def hardware_flops_per_token(layers: Number, hidden: Number, vocab: Number, seq: Number) -> Number:
    """FLOPs per token of a GPT with plain MLPs of width 4 h under full recomputation."""
    return 96 * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))


@formula(unit="FLOP", source="recalled: alpa-projects/alpa benchmark/alpa/util.py, compute_moe_tflops, per token")
def slotted_flops_per_token(
    layers: Number,
    hidden: Number,
    vocab: Number,
    seq: Number,
    ffn: Number,
    experts: Number,
    per_token: Number,
    group_tokens: Number,
) -> Number:
    """FLOPs per token of a GPT under full recomputation in which every second layer has experts with slots, whose
    router, masks and products with masks over ``group_tokens`` count too. A row that Alpa's table gives in both
    seconds and FLOP/s (2.4B on eight V100) comes out 1.4% lower."""
    attention = 8 * hidden**2 + 4 * seq * hidden
    dense = attention + 4 * hidden * ffn
    masks = 8 * hidden * group_tokens + 4 * group_tokens
    routed = attention + 4 * hidden * ffn * per_token + 2 * hidden * experts + masks
    return 4 * layers / 2 * (dense + routed) + 6 * hidden * vocab
