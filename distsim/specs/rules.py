"""Every rule that a layout must obey, stated once: for one layout with a message, for many as masks."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from distsim.arrays import Number, maximum
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
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def listed(numbers: list[int], most: int = 14) -> str:
    """``1, 2, 4, 8``, cut with an ellipsis when long."""
    return ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")


def _experts(model: Model) -> int:
    return model.experts.count if model.experts else 1


def common_kv_heads(model: Model) -> int:
    """The most ranks that can each have key-value heads of their own in every layer."""
    return math.gcd(*(count for _, count in model.head_counts))


def _inner(model: Model) -> list[int]:
    """Inner widths of the MLPs."""
    shared = model.shared_keys.ffn if model.shared_keys else None
    return list(dict.fromkeys([model.ffn, shared or model.ffn]))


def _all(conditions: Iterable[Number]) -> Number:
    """Whether all hold, for arrays too."""
    return functools.reduce(operator.and_, conditions)


def _and(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers))


def _passed_on(model: Model) -> str:
    """What later layers read beside the hidden state; empty for most models."""
    if model.shared_keys:
        return f"keys and values that the last {model.shared_keys.layers} layers"
    return "inputs made beside the embedding that all layers" if model.layer_inputs else ""


def _output_groups(model: Model) -> int:
    """Groups of heads whose outputs are projected together; 0 where heads are projected at once."""
    return model.compressed_attention.output_groups if model.compressed_attention else 0


def _groups(model: Model) -> int:
    """Groups of Mamba-2 mixers; any degree divides those of a model that has none."""
    return model.mamba.groups if model.mamba and model.mamba.step_rank is None else 0


def _key_heads(model: Model) -> int:
    """Key heads of the delta rule; any degree divides those of a model that has none."""
    return model.delta.key_heads if model.delta else 0


def _linear_heads(model: Model) -> int:
    """Heads of lightning attention; any degree divides those of a model that has none."""
    return model.lightning.heads if model.lightning else 0


def _splits(layout: Layout) -> list[str]:
    """Of pipeline and context parallelism what one layout has."""
    return [name for name in ("pp", "cp") if getattr(layout, name) > 1]


def _two_stacks(model: Model) -> str:
    """What a model of two stacks is; empty where there is one."""
    return "an encoder with a decoder" if model.encoder_layers else "two stacks side by side" if model.text else ""


def _text(model: Model) -> int:
    """Heads of a second stack over text."""
    return model.text.heads if model.text else 0


def _learned(model: Model) -> int:
    """Tokens that stand before the squares of an image."""
    return model.patches.learned_tokens if model.patches else 0


def _heads(model: Model) -> int:
    """What a number of ranks has to divide so that each has whole heads in every layer."""
    return math.gcd(*(heads for heads, _ in model.head_counts))


def _counted(model: Model, which: int) -> str:
    """Heads or key-value heads in words, where layers with a window have their own."""
    return " and ".join(str(count) for count in dict.fromkeys(one[which] for one in model.head_counts))


def _fits_kv_heads(model: Model, tp: Number) -> Any:
    """Whether ranks share key-value heads, or copy them, in every layer."""
    return _all((count % tp == 0) | (tp % count == 0) for _, count in model.head_counts)


def _single(model: Model) -> str:
    """Scans whose channels stand alone, which no rank shares; empty where there are none."""
    mamba_1 = model.mamba is not None and model.mamba.step_rank is not None
    return "scans of single channels" if mamba_1 or model.recurrence else ""


def _uncut(model: Model) -> str:
    """What context parallelism has no way to cut; empty where it has."""
    if model.patches:
        return "images"
    if model.composed_attention:
        return "distances between all tokens"
    return _single(model)


def _tp_divides(name: str, count: Callable[[Model], int], what: Callable[[Model], str]) -> Rule:
    """The rule that tensor parallel ranks have whole ones of what is counted, 0 where a model has none."""
    return Rule(
        f"tp divides {name}",
        lambda m, y: count(m) % y.tp == 0,
        lambda m, y: f"tensor parallel degree {y.tp} does not divide {count(m)} {what(m)}",
        lambda m, y: f"valid degrees: {listed(divisors(count(m)))}",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "tp divides heads",
        lambda m, y: (m.attention_layers == 0) | (_heads(m) % y.tp == 0),
        lambda m, y: f"tensor parallel degree {y.tp} does not divide {_counted(m, 0)} attention heads of {m.name}",
        lambda m, y: f"valid degrees: {listed(divisors(_heads(m)))}",
    ),
    Rule(
        "tp fits kv heads",
        lambda m, y: (m.attention_layers == 0) | _fits_kv_heads(m, y.tp),
        lambda m, y: (
            f"tensor parallel degree {y.tp} neither divides {_counted(m, 1)} key-value heads of {m.name} nor is a"
            " multiple"
        ),
        lambda m, y: f"valid degrees: {listed([d for d in divisors(_heads(m)) if _fits_kv_heads(m, d)])}",
    ),
    Rule(
        "tp divides ffn",
        lambda m, y: _all(ffn % y.tp == 0 for ffn in _inner(m)),
        lambda m, y: (
            f"tensor parallel degree {y.tp} does not divide the MLP's inner width {_and(_inner(m))} of {m.name}"
        ),
        lambda m, y: f"valid degrees: {listed([d for d in divisors(_heads(m)) if all(f % d == 0 for f in _inner(m))])}",
    ),
    _tp_divides("mamba groups", _groups, lambda m: f"groups of {m.name}'s Mamba-2 mixers"),
    _tp_divides("key heads", _key_heads, lambda m: f"key heads of {m.name}'s delta rule"),
    _tp_divides("linear attention", _linear_heads, lambda m: f"linear heads of {m.name}"),
    _tp_divides("output groups", _output_groups, lambda m: f"groups of heads of {m.name}'s outputs"),
    Rule(
        "one stage where there are two stacks",
        lambda m, y: (y.pp * y.cp == 1) | (not _two_stacks(m)),
        lambda m, y: (
            f"{' and '.join(f'{name} {getattr(y, name)}' for name in _splits(y))} given, but {m.name} is "
            f"{_two_stacks(m)}, which only tp splits"
        ),
        lambda m, y: f"leave {' and '.join(f'--{name}' for name in _splits(y))} out",
    ),
    Rule(
        "stages pass on hidden states alone",
        lambda m, y: (y.pp == 1) | (not _passed_on(m)),
        lambda m, y: f"pp {y.pp} given, but {m.name} has {_passed_on(m)} read, and stages pass on hidden states alone",
        lambda m, y: "leave --pp out: shard with --zero 3 or --tp",
    ),
    Rule(
        "an image has squares",
        lambda m, y: y.seq > _learned(m),
        lambda m, y: f"--seq {y.seq} holds no square of an image: {m.name} puts {_learned(m)} learned before them",
        lambda m, y: f"{m.name} reads {m.context}",
    ),
    Rule(
        "tp divides the text's stack",
        lambda m, y: (m.text is None) | (_text(m) % y.tp == 0),
        lambda m, y: f"tensor parallel degree {y.tp} does not divide {_text(m)} heads of {m.name}'s text stack",
        lambda m, y: f"valid degrees: {listed([d for d in divisors(_text(m)) if m.heads % d == 0])}",
    ),
    Rule(
        "tp splits mixers",
        lambda m, y: (y.tp == 1) | (not _single(m)),
        lambda m, y: f"tensor parallel degree {y.tp} given, but {_single(m)} of {m.name} are held whole",
        lambda m, y: "leave --tp out",
    ),
    Rule(
        "cp cuts sequences that mixers can pass on",
        lambda m, y: (y.cp == 1) | (not _uncut(m)),
        lambda m, y: f"cp {y.cp} given, but {_uncut(m)} of {m.name} are not cut into parts",
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
        lambda m, y: _experts(m) % y.ep == 0,
        lambda m, y: (
            f"expert parallel degree {y.ep} does not divide {_experts(m)} experts of {m.name}"
            if m.experts
            else f"expert parallel degree {y.ep} given, but {m.name} has no experts"
        ),
        lambda m, y: f"valid degrees: {listed(divisors(_experts(m)))}",
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
            "experts live inside data parallel"
        ),
        lambda m, y: f"ep*etp may be: {listed(divisors(y.dp * y.cp * y.tp))}",
    ),
    Rule(
        "zero group divides dp",
        lambda m, y: (y.dp * y.cp) % y.zero_group == 0,
        lambda m, y: f"sharding group of {y.zero_group} ranks does not divide the {y.dp * y.cp} data parallel ranks",
        lambda m, y: f"valid sizes: {listed(divisors(y.dp * y.cp))}",
    ),
)


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
