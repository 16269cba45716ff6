"""FLOPs and peaks as sources count them, told by how they name their convention."""

from __future__ import annotations

from dataclasses import replace

from distsim.arrays import Number
from distsim.engine.jobs.flops import active_parameters, attended, peak_of, reach_of, reads_less
from distsim.engine.jobs.resolve import Setup
from distsim.engine.steps.work import recompute_factor, work_of
from distsim.formulas.flops import hardware_flops_per_token, model_flops_per_token, slotted_flops_per_token
from distsim.interop.runs.flop_words import flop_count


def stated_flops(setup: Setup, convention: str) -> Number | None:
    """FLOPs of one token as a source counts them that names its convention so; None where the words tell of none.
    Hardware FLOPs are the model's with what the setup computes again, layers counted whole wherever repeating them
    stops, but for those who name another formula."""
    model, seq = setup.model, setup.layout.seq
    counted = flop_count(convention)
    if counted is None:
        return None
    if counted.slotted:
        return _slotted_flops(setup)
    if counted.narayanan:
        return hardware_flops_per_token(model.layers, model.hidden, model.vocab, seq)
    seen = reach_of(setup) if reads_less(setup) else seq
    layers, keys = attended(model, seq, seen / 2 if counted.half and model.causal else seen)
    keys = 0 if counted.parameters_alone else keys
    once = model_flops_per_token(active_parameters(setup), layers, model.heads, model.head_dim, keys)
    if not counted.hardware:
        return once
    whole = setup.kernels.model_copy(update={"recompute_stops_early": False})
    return once * recompute_factor(work_of(replace(setup, kernels=whole)))


def _slotted_flops(setup: Setup) -> Number | None:
    """By the formula of experts with slots; None of a model without groups of tokens, for which it was not written."""
    model, experts = setup.model, setup.model.experts
    if experts is None or experts.group_tokens is None:
        return None
    return slotted_flops_per_token(
        model.layers,
        model.hidden,
        model.vocab,
        setup.layout.seq,
        experts.ffn,
        experts.count,
        experts.per_token,
        experts.group_tokens,
    )


def stated_peak(setup: Setup) -> float | None:
    """The rate that the framework's own MFU refers to."""
    peak = setup.accelerator.peak
    narrowest = peak.bf16 or peak.fp16 if setup.framework.mfu_units == "bf16" else None
    return narrowest or peak_of(setup)
