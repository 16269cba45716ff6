"""What of a model ranks have to divide, and what none can cut: the numbers and words that rules of a layout read."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from typing import Any

from distsim.arrays import Number
from distsim.specs.model import Model


def all_hold(conditions: Iterable[Number]) -> Number:
    """Whether all hold, for arrays too."""
    return functools.reduce(operator.and_, conditions)


def expert_count(model: Model) -> int:
    """Routed experts of a layer; 1 where there are none."""
    return model.experts.count if model.experts else 1


def common_kv_heads(model: Model) -> int:
    """The most ranks that can each have key-value heads of their own in every layer."""
    return math.gcd(*(count for _, count in model.head_counts))


def inner_widths(model: Model) -> list[int]:
    """Inner widths of the MLPs."""
    shared = model.shared_keys.ffn if model.shared_keys else None
    own = filter(None, model.sizes.ffn) if model.sizes else ()
    return list(dict.fromkeys([model.ffn, shared or model.ffn, *own]))


def passed_on(model: Model) -> str:
    """What later layers read beside the hidden state; empty for most models."""
    if model.shared_keys:
        return f"keys and values that {model.shared_keys.told}"
    return "per-layer inputs that all layers" if model.layer_inputs else ""


def output_groups(model: Model) -> int:
    """Groups of heads whose outputs are projected together; 0 where heads are projected at once."""
    return model.compressed_attention.output_groups if model.compressed_attention else 0


def mixer_groups(model: Model) -> int:
    """Groups of Mamba-2 mixers; any degree divides those of a model that has none."""
    return model.mamba.groups if model.mamba and model.mamba.step_rank is None else 0


def key_heads(model: Model) -> int:
    """Key heads of the delta rule; any degree divides those of a model that has none."""
    return model.delta.key_heads if model.delta else 0


def linear_heads(model: Model) -> int:
    """Heads of lightning attention; any degree divides those of a model that has none."""
    return model.lightning.heads if model.lightning else 0


def two_stacks(model: Model) -> str:
    """What a model of two stacks is; empty where there is one."""
    return "an encoder-decoder" if model.encoder_layers else "two stacks side by side" if model.text else ""


def text_heads(model: Model) -> int:
    """Heads of a second stack over text."""
    return model.text.heads if model.text else 0


def tower_heads(model: Model) -> int:
    """Heads of a vision tower; any degree divides those of a model that has none, or is shown no images."""
    return model.shown_tower.heads if model.shown_tower else 0


def learned_tokens(model: Model) -> int:
    """Tokens that stand before the squares of an image."""
    return model.patches.learned_tokens if model.patches else 0


def common_heads(model: Model) -> int:
    """What a number of ranks has to divide so that each has whole heads in every layer."""
    return math.gcd(*(heads for heads, _ in model.head_counts))


def traded_heads(model: Model, tp: Number) -> Number:
    """Heads of a tensor parallel rank that all-to-alls of context parallel ranks must divide: those of Mamba-2 where
    nothing attends."""
    alone = model.mamba is not None and not model.attention_layers
    return (model.mamba.heads if alone and model.mamba else min(heads for heads, _ in model.head_counts)) // tp


def counted_heads(model: Model, which: int) -> str:
    """Heads or key-value heads in words, where some layers have their own: ``3, 4 and 5``."""
    *others, last = dict.fromkeys(f"{counts[which]}" for counts in model.head_counts)
    return f"{', '.join(others)} and {last}" if others else last


def fits_kv_heads(model: Model, tp: Number) -> Any:
    """Whether ranks share key-value heads, or copy them, in every layer."""
    return all_hold((count % tp == 0) | (tp % count == 0) for _, count in model.head_counts)


def single_scans(model: Model) -> str:
    """Scans whose channels stand alone, which no rank shares; empty where there are none."""
    mamba_1 = model.mamba is not None and model.mamba.step_rank is not None
    return "per-channel scans" if mamba_1 or model.recurrence else ""


def uncut(model: Model) -> str:
    """What context parallelism has no way to cut; empty where it has."""
    if model.patches:
        return "images"
    if model.composed_attention:
        return "distances between all tokens"
    if model.ngrams:
        return "convolutions of n-grams"
    return single_scans(model)
