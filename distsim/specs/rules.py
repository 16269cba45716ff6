"""Every rule that a layout must obey, stated once: for one layout with a message, for many as masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from distsim.arrays import Number, maximum, minimum
from distsim.specs.cuts import (
    all_hold,
    common_heads,
    counted_heads,
    expert_count,
    fits_kv_heads,
    inner_widths,
    key_heads,
    learned_tokens,
    linear_heads,
    mixer_groups,
    output_groups,
    passed_on,
    single_scans,
    text_heads,
    tower_heads,
    traded_heads,
    two_stacks,
    uncut,
)
from distsim.specs.layout import Layout
from distsim.specs.model import Model


class Rule(NamedTuple):
    """``holds`` takes a model and a layout of numbers or arrays; ``problem`` and ``mend`` speak of one layout."""

    name: str
    holds: Callable[[Model, Layout], Number]
    problem: Callable[[Model, Layout], str]
    mend: Callable[[Model, Layout], str]


def divisors(number: int, limit: int = 4096) -> list[int]:
    """Whole divisors in rising order, up to ``limit``."""
    low = [d for d in range(1, min(math.isqrt(number), limit) + 1) if number % d == 0]
    return [*low, *(other for d in reversed(low) if d < (other := number // d) <= limit)]


def listed(numbers: list[int], most: int = 14) -> str:
    """``1, 2, 4, 8``, cut with an ellipsis when long."""
    return ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")


def _and(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers))


def _splits(layout: Layout) -> list[str]:
    """Which of pipeline and context parallelism a layout uses."""
    return [name for name in ("pp", "cp") if getattr(layout, name) > 1]


def _whole_shares(model: Model) -> list[int]:
    """Degrees that divide heads and the inner widths of MLPs."""
    return [d for d in divisors(common_heads(model)) if all(ffn % d == 0 for ffn in inner_widths(model))]


def _tp_divides(name: str, count: Callable[[Model], int], what: Callable[[Model], str]) -> Rule:
    """The rule that tensor parallel ranks have whole ones of what is counted, 0 where a model has none."""
    return Rule(
        f"tp divides {name}",
        lambda m, y: count(m) % y.tp == 0,
        lambda m, y: f"tensor parallel degree {y.tp} does not divide {count(m)} {what(m)}",
        lambda m, y: f"valid degrees: {listed(divisors(count(m)))}",
    )


def _tp_divides_stack(stack: str, heads: Callable[[Model], int]) -> Rule:
    """The rule that tensor parallel ranks have whole heads of a second stack, 0 where a model has none, as of the
    first."""
    return Rule(
        f"tp divides the {stack}",
        lambda m, y: heads(m) % y.tp == 0,
        lambda m, y: f"tensor parallel degree {y.tp} does not divide {heads(m)} heads of {m.name}'s {stack}",
        lambda m, y: f"valid degrees: {listed([d for d in divisors(heads(m)) if m.heads % d == 0])}",
    )


SHARED_VOCABULARY = ("1f1b", "v-half")
"""Schedules that passes of a vocabulary that all stages share were worked into (Yeung et al. 2024, arXiv:2411.05288).
"""

RULES: tuple[Rule, ...] = (
    Rule(
        "tp divides heads",
        lambda m, y: (m.attention_layers == 0) | (common_heads(m) % y.tp == 0),
        lambda m, y: f"tensor parallel degree {y.tp} does not divide {counted_heads(m, 0)} attention heads of {m.name}",
        lambda m, y: f"valid degrees: {listed(divisors(common_heads(m)))}",
    ),
    Rule(
        "tp fits kv heads",
        lambda m, y: (m.attention_layers == 0) | fits_kv_heads(m, y.tp),
        lambda m, y: (
            f"tensor parallel degree {y.tp} is neither a divisor nor a multiple of {counted_heads(m, 1)} key-value "
            f"heads of {m.name}"
        ),
        lambda m, y: f"valid degrees: {listed([d for d in divisors(common_heads(m)) if fits_kv_heads(m, d)])}",
    ),
    Rule(
        "tp divides ffn",
        lambda m, y: all_hold(ffn % y.tp == 0 for ffn in inner_widths(m)),
        lambda m, y: (
            f"tensor parallel degree {y.tp} does not divide the MLP's inner width {_and(inner_widths(m))} of {m.name}"
        ),
        lambda m, y: f"valid degrees: {listed(_whole_shares(m))}",
    ),
    _tp_divides("mamba groups", mixer_groups, lambda m: f"groups of {m.name}'s Mamba-2 mixers"),
    _tp_divides("key heads", key_heads, lambda m: f"key heads of {m.name}'s delta rule"),
    _tp_divides("linear attention", linear_heads, lambda m: f"linear heads of {m.name}"),
    _tp_divides("output groups", output_groups, lambda m: f"groups of heads of {m.name}'s outputs"),
    Rule(
        "one stage where there are two stacks",
        lambda m, y: (y.pp * y.cp == 1) | (not two_stacks(m)),
        lambda m, y: (
            f"{' and '.join(f'{name} {getattr(y, name)}' for name in _splits(y))} given, but {m.name} is "
            f"{two_stacks(m)}, which only tp can split"
        ),
        lambda m, y: f"leave {' and '.join(f'--{name}' for name in _splits(y))} out",
    ),
    Rule(
        "stages pass on hidden states alone",
        lambda m, y: (y.pp == 1) | (not passed_on(m)),
        lambda m, y: f"pp {y.pp} given, but {m.name} has {passed_on(m)} read, and stages pass on only hidden states",
        lambda m, y: "leave --pp out: shard with --zero 3 or --tp",
    ),
    Rule(
        "an image has squares",
        lambda m, y: y.seq > learned_tokens(m),
        lambda m, y: (
            f"--seq {y.seq} leaves no token for an image patch: {m.name} puts {learned_tokens(m)} learned before them"
        ),
        lambda m, y: f"{m.name} reads {m.context} tokens per image",
    ),
    _tp_divides_stack("text stack", text_heads),
    _tp_divides_stack("vision tower", tower_heads),
    Rule(
        "tp splits mixers",
        lambda m, y: (y.tp == 1) | (not single_scans(m)),
        lambda m, y: f"tensor parallel degree {y.tp} given, but the {single_scans(m)} of {m.name} cannot be split",
        lambda m, y: "leave --tp out",
    ),
    Rule(
        "cp cuts sequences that mixers can pass on",
        lambda m, y: (y.cp == 1) | (not uncut(m)),
        lambda m, y: f"cp {y.cp} given, but the {uncut(m)} of {m.name} cannot be split",
        lambda m, y: "leave --cp out",
    ),
    Rule(
        "cp divides sequence",
        lambda m, y: y.seq % y.cp == 0,
        lambda m, y: f"context parallel degree {y.cp} does not divide the sequence of {y.seq} tokens",
        lambda m, y: f"valid degrees: {listed(divisors(y.seq, 512))}",
    ),
    Rule(
        "sequence parallel divides sequence",
        lambda m, y: (y.sequence_parallel == 0) | (y.seq % (y.cp * y.tp) == 0),
        lambda m, y: (
            f"sequence parallelism over tp {y.tp} and cp {y.cp} does not divide the sequence of {y.seq} tokens"
        ),
        lambda m, y: f"use a sequence that is a multiple of {y.cp * y.tp}, or --no-sequence-parallel",
    ),
    Rule(
        "ep divides experts",
        lambda m, y: expert_count(m) % y.ep == 0,
        lambda m, y: (
            f"expert parallel degree {y.ep} does not divide {expert_count(m)} experts of {m.name}"
            if m.experts
            else f"expert parallel degree {y.ep} given, but {m.name} has no experts"
        ),
        lambda m, y: f"valid degrees: {listed(divisors(expert_count(m)))}",
    ),
    Rule(
        "etp divides expert width",
        lambda m, y: (m.experts.ffn if m.experts else 1) % y.etp == 0,
        lambda m, y: (
            f"expert tensor parallel degree {y.etp} does not divide the experts' width {m.experts.ffn} of {m.name}"
            if m.experts
            else f"expert tensor parallel degree {y.etp} given, but {m.name} has no experts"
        ),
        lambda m, y: f"valid degrees: {listed(divisors(m.experts.ffn if m.experts else 1, 64))}",
    ),
    Rule(
        "ep inside data parallel",
        lambda m, y: (y.dp * y.cp * y.tp) % (y.ep * y.etp) == 0,
        lambda m, y: (
            f"ep {y.ep} times etp {y.etp} does not divide dp*cp*tp = {y.dp * y.cp * y.tp}; "
            "expert parallelism lies inside data parallelism"
        ),
        lambda m, y: f"ep*etp may be: {listed(divisors(y.dp * y.cp * y.tp))}",
    ),
    Rule(
        "zero group divides dp",
        lambda m, y: (y.dp * y.cp) % y.zero_group == 0,
        lambda m, y: f"sharding group of {y.zero_group} ranks does not divide the {y.dp * y.cp} data parallel ranks",
        lambda m, y: f"valid sizes: {listed(divisors(y.dp * y.cp))}",
    ),
    Rule(
        "stages share a vocabulary",
        lambda m, y: not y.vocab_parallel or y.pp > 1,
        lambda m, y: f"--vocab-parallel {y.vocab_parallel} has no effect with pp 1",
        lambda m, y: "add --pp 2 or more, or leave it out",
    ),
    Rule(
        "schedules that share a vocabulary",
        lambda m, y: not y.vocab_parallel or y.pp == 1 or y.schedule in SHARED_VOCABULARY,
        lambda m, y: f"--vocab-parallel {y.vocab_parallel} is not supported by schedule {y.schedule}",
        lambda m, y: f"schedules that support it: {', '.join(SHARED_VOCABULARY)}",
    ),
    Rule(
        "a vocabulary to share",
        lambda m, y: not y.vocab_parallel or m.output.over_vocabulary,
        lambda m, y: (
            f"--vocab-parallel {y.vocab_parallel} shares an output layer over the vocabulary, but {m.name} predicts "
            f"{m.output.predicts}"
        ),
        lambda m, y: "leave it out",
    ),
    Rule(
        "one output layer to share",
        lambda m, y: not y.vocab_parallel or not m.mtp_trained,
        lambda m, y: (
            f"--vocab-parallel {y.vocab_parallel} shares one output layer, but --mtp {m.mtp_trained} adds others"
        ),
        lambda m, y: "leave one of the two out",
    ),
)


def trades_heads(model: Model, cp_mode: str, tp: Number, cp: Number) -> Number:
    """Whether context parallel ranks divide the heads that they trade for tokens, where that is how they exchange. Its
    message is in engine/jobs/exchange.py, which knows whether a framework has another way."""
    return cp_mode != "all_to_all" or traded_heads(model, tp) % cp == 0


def most_imbalance(model: Model, ep: Number) -> Number:
    """Tokens that the busiest of ``ep`` ranks can have over the mean: each token goes to different experts, so that a
    rank has no more of its choices than it holds experts."""
    return minimum(ep, model.experts.count / model.experts.working_per_token) if model.experts else 1.0


def in_rounds(y: Layout) -> Number:
    """Whether micro-batches make equal rounds of at least as many as there are stages, as interleaved 1F1B deals them
    (torch.distributed.pipelining; a group size that Megatron-LM takes). Fewer than stages are one round."""
    return y.micro_batches % maximum(y.micro_batches // y.pp, 1) == 0


def enough_to_interleave(y: Layout) -> Number:
    """Whether there are as many micro-batches as stages, which Megatron-LM asks for."""
    return y.micro_batches >= y.pp


def multiples_of_stages(y: Layout) -> Number:
    """Whether micro-batches are a multiple of the stages (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2)."""
    return y.micro_batches % y.pp == 0


def interleaves(y: Layout) -> Number:
    """Whether interleaved 1F1B, where it is chosen, gets micro-batches that every framework can deal."""
    return (y.schedule != "interleaved-1f1b") | (in_rounds(y) & enough_to_interleave(y))


def broken(model: Model, layout: Layout) -> list[Rule]:
    """The rules that one layout breaks, in order."""
    return [rule for rule in RULES if not rule.holds(model, layout)]


def valid(model: Model, layout: Layout) -> Any:
    """Mask over the layouts of an array-valued ``layout``: True where all rules hold."""
    mask: Any = True
    for rule in RULES:
        mask = mask & rule.holds(model, layout)
    return mask
